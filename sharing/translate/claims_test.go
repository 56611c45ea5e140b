// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package translate

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/dra"
)

func TestClaims(t *testing.T) {
	const model, level = "device.attributes['gpu.kerf.dev'].model.matches(", "device.attributes['gpu.kerf.dev'].level"
	share := func(change func(*Claim)) Claim {
		c := Claim{Class: "share.kerf.dev", Count: 1, GiB: 10}
		change(&c)
		return c
	}
	for name, tt := range map[string]struct {
		limits, annotations map[string]string
		want                Claim
		err                 string
	}{
		"memory": {map[string]string{"kerf.dev/gpu-memory-gib": "10"}, nil, share(func(*Claim) {}), ""},
		"memory on three GPUs, rounded up": {map[string]string{"kerf.dev/gpu-memory-gib": "30",
			"kerf.dev/gpu-percent": "60"}, map[string]string{"kerf.dev/gpu-count": "3"},
			share(func(c *Claim) { c.Count, c.Percent = 3, 20 }), ""},
		"percent": {map[string]string{"kerf.dev/gpu-percent": "25"}, nil,
			share(func(c *Claim) { c.GiB, c.Percent = 20, 25 }), ""},
		"whole GPUs at level exclusive": {map[string]string{"kerf.dev/gpu": "2"},
			map[string]string{"kerf.dev/min-enforcement": "exclusive"}, Claim{Class: "whole.kerf.dev", Count: 2}, ""},
		"an instance": {map[string]string{"kerf.dev/mig-1g.10gb": "1"},
			map[string]string{"kerf.dev/min-enforcement": "hardware"},
			Claim{Class: "mig.kerf.dev", Count: 1, MIG: "1g.10gb"}, ""},
		"globs": {map[string]string{"kerf.dev/gpu-memory-gib": "10"},
			map[string]string{"kerf.dev/gpu-model": "*H100*,A[13]0?,!*T4's*"},
			share(func(c *Claim) {
				c.Selectors = []string{model + "'^(?i:.*H100.*)$') || " + model + "'^(?i:A[13]0.)$')",
					"!" + model + `'^(?i:.*T4\'s.*)$')`}
			}), ""},
		"a level and a profile": {map[string]string{"kerf.dev/gpu-memory-gib": "10"},
			map[string]string{"min-enforcement.kerf.dev/main": "userspace", "kerf.dev/profile": "small"},
			share(func(c *Claim) {
				c.Selectors = []string{level + "Userspace || " + level + "Driver"}
				c.MinLevel, c.Profile = "userspace", "small"
			}), ""},
		"a share at level hardware": {map[string]string{"kerf.dev/gpu-memory-gib": "10"},
			map[string]string{"kerf.dev/min-enforcement": "hardware"}, Claim{}, "is a level that no such device has"},
		"a percent that does not divide": {map[string]string{"kerf.dev/gpu-memory-gib": "9",
			"kerf.dev/gpu-percent": "50"}, map[string]string{"kerf.dev/gpu-count": "3"}, Claim{},
			"does not divide evenly by 3 GPUs"},
		"a profile alone": {nil, map[string]string{"kerf.dev/profile": "small"}, Claim{}, "a claim states amounts"},
		"no amount": {map[string]string{"kerf.dev/gpu-memory-gib": "10Gi"}, nil, Claim{},
			"kerf.dev/gpu-memory-gib"},
	} {
		got, err := ClaimOptions{Memory: 80 * sharing.GiB}.Claims(Pod{Annotations: tt.annotations,
			Containers: []Container{{Name: "main", Limits: tt.limits}}})
		if tt.err != "" {
			if !errors.Is(err, sharing.ErrInvalid) || !strings.Contains(err.Error(), tt.err) {
				t.Errorf("%s: %v, want %q", name, err, tt.err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if d := cmp.Diff(tt.want, got.Of["main"]); d != "" {
			t.Errorf("%s: (-want +got):\n%s", name, d)
		}
		if len(got.DropAnnotations) != len(tt.annotations) {
			t.Errorf("%s: drops %q", name, got.DropAnnotations)
		}
	}
	if none, err := (ClaimOptions{}).Claims(Pod{Annotations: map[string]string{"kerf.dev/gpu-model": "*"},
		Containers: []Container{{Name: "main"}}}); err != nil || len(none.Of) != 0 || none.DropAnnotations != nil {
		t.Errorf("a pod without a request: %+v, %v", none, err)
	}
}

// TestClaimNames: a template's name is different if anything of its claim is.
func TestClaimNames(t *testing.T) {
	names := map[string]Claim{}
	for _, c := range []Claim{
		{Class: "share.kerf.dev", Count: 1, GiB: 10}, {Class: "share.kerf.dev", Count: 2, GiB: 10},
		{Class: "share.kerf.dev", Count: 1, GiB: 10, Percent: 2}, {Class: "whole.kerf.dev", Count: 1},
		{Class: "mig.kerf.dev", Count: 1, MIG: "1g.10gb"}, {Class: "mig.kerf.dev", Count: 1, MIG: "2g.20gb"},
		{Class: "whole.kerf.dev", Count: 1, Selectors: []string{"a"}},
		{Class: "whole.kerf.dev", Count: 1, Selectors: []string{"b"}},
		{Class: "whole.kerf.dev", Count: 1, Profile: "a"},
		{Class: "whole.kerf.dev", Count: 1, MinLevel: "a"},
	} {
		if other, taken := names[c.Name()]; taken {
			t.Errorf("%+v and %+v are called %s", c, other, c.Name())
		}
		names[c.Name()] = c
	}
}

// TestClassesAndAttributes: the names are those of the DRA front end.
func TestClassesAndAttributes(t *testing.T) {
	var has []string
	for _, d := range dra.Devices(dra.Node{}, []dra.GPU{{GPU: sharing.GPU{UUID: "GPU-1", Memory: 80 * sharing.GiB,
		Model: "m"}, Share: true, Levels: []sharing.Level{sharing.LevelDriver}}}) {
		for _, a := range d.Attributes {
			has = append(has, "device.attributes['"+dra.Driver+"']."+a.Name)
		}
	}
	all := strings.Join(has, "\n")
	for _, selector := range []string{levels(sharing.LevelReactive), attribute("model"), attribute("uuid")} {
		for part := range strings.SplitSeq(selector, " || ") {
			if !strings.Contains(all, part) {
				t.Errorf("no device has %s", part)
			}
		}
	}
}
