// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package translate_test

import (
	"errors"
	"maps"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/translate"
	"github.com/kerf-gpu/kerf/sharing/translate/translatetest"
)

func TestCases(t *testing.T) {
	t.Parallel()
	for _, tt := range translatetest.Cases() {
		c, err := tt.Options.Pod(tt.Pod)
		if len(tt.Refused) > 0 {
			if !errors.Is(err, sharing.ErrInvalid) || !c.Empty() && !strings.Contains(tt.Name, "UUID") {
				t.Errorf("%s: %v, %+v", tt.Name, err, c)
				continue
			}
			for _, want := range tt.Refused {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%s: %v, want %q", tt.Name, err, want)
				}
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", tt.Name, err)
			continue
		}
		got := [2]map[string]string{orEmpty(c.Limits[translatetest.Main]), c.Annotations}
		if d := cmp.Diff([2]map[string]string{tt.Limits, tt.Annotations}, got); d != "" {
			t.Errorf("%s: %s", tt.Name, d)
		}
		if said := strings.Join(c.Differences, "\n"); !strings.Contains(said, tt.Difference) || tt.Difference == "" &&
			strings.Contains(said, "rounded") {
			t.Errorf("%s: said %q", tt.Name, said)
		}
		if c.Empty() != (len(tt.Limits) == 0 && !tt.RequestsNone) {
			t.Errorf("%s: empty is %v", tt.Name, c.Empty())
		}
	}
}

func orEmpty(m map[string]string) map[string]string {
	if m == nil {
		return map[string]string{}
	}
	return m
}

// TestOptions: what a pod cannot say itself.
func TestOptions(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		options translate.Options
		limits  map[string]string
		want    map[string]string
		refused string
	}{
		"MIG single": {translate.Options{MIGSingle: "1g.10gb"}, map[string]string{"nvidia.com/gpu": "1"},
			map[string]string{"kerf.dev/mig-1g.10gb": "1"}, ""},
		"MIG single, two": {translate.Options{MIGSingle: "1g.10gb"}, map[string]string{"nvidia.com/gpu": "2"}, nil,
			"MIG strategy single"},
		"a factor": {translate.Options{MemoryFactor: 1024}, map[string]string{"nvidia.com/gpumem": "10"},
			map[string]string{"kerf.dev/gpu-memory-gib": "10"}, ""},
		"a factor of Volcano": {translate.Options{MemoryFactor: 10},
			map[string]string{"volcano.sh/vgpu-memory": "1024"},
			map[string]string{"kerf.dev/gpu-memory-gib": "10"}, ""},
		"too large a factor": {translate.Options{MemoryFactor: 1 << 20},
			map[string]string{"nvidia.com/gpumem": "65536"}, nil, "is more than any GPU has"},
	} {
		c, err := tt.options.Pod(translate.Pod{Containers: []translate.Container{{Name: "a", Limits: tt.limits}}})
		if tt.refused != "" {
			if !errors.Is(err, sharing.ErrInvalid) || !strings.Contains(err.Error(), tt.refused) {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		if d := cmp.Diff(tt.want, c.Limits["a"]); d != "" || err != nil {
			t.Errorf("%s: %v\n%s", name, err, d)
		}
	}
	for _, tt := range []struct {
		options        translate.Options
		resource, want string
	}{
		{translate.Options{}, "nvidia.com/gpu", "kerf.dev/gpu"},
		{translate.Options{MIGSingle: "1g.10gb"}, "nvidia.com/gpu", "kerf.dev/mig-1g.10gb"},
		{translate.Options{Replicas: 2, SharedByName: true}, "nvidia.com/gpu", ""},
		{translate.Options{}, "nvidia.com/mig-1g.10gb.me", "kerf.dev/mig-1g.10gb.me"},
		{translate.Options{}, "nvidia.com/mig-big", ""},
		{translate.Options{}, "nvidia.com/gpumem", ""},
	} {
		if got, ok := tt.options.Quota(tt.resource); ok != (tt.want != "") || ok && got != tt.want {
			t.Errorf("%+v, %s: %q, %v", tt.options, tt.resource, got, ok)
		}
	}
}

// TestOf: a request that a pod can ask for is read back as it was, but for the rounding.
func TestOf(t *testing.T) {
	t.Parallel()
	for name, r := range map[string]sharing.Request{
		"memory": {Memory: 10 * sharing.GiB, GPUs: 2, Percent: 50, Models: []string{"*H100*"},
			Place: sharing.PlacePack},
		"percent": {Percent: 25, GPUs: 1, MinLevel: sharing.LevelDriver},
		"whole":   {Kind: sharing.KindWhole, GPUs: 8},
		"mig":     {Kind: sharing.KindMIG, MIG: "1g.10gb", GPUs: 1},
		"profile": {Memory: sharing.GiB, Profile: "small",
			UUIDs: []sharing.GPUID{"GPU-8f6d1c2a-0b1e-4c55-9d3f-2a7b6c5d4e3f"}},
	} {
		w, err := translate.Of(r)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		back, err := w.Read()
		if d := cmp.Diff(r, back); d != "" || err != nil || len(w.Differences) > 0 {
			t.Errorf("%s: %v %q\n%s", name, err, w.Differences, d)
		}
	}
	for name, r := range map[string]sharing.Request{"open": {Profile: "p", GPUs: 1},
		"a size of MIG": {Kind: sharing.KindMIG, MIG: ">= 16GiB", GPUs: 1}, "nothing": {}} {
		if _, err := translate.Of(r); !errors.Is(err, sharing.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// FuzzPod: nothing panics; what is translated is read by a node, is at least what was asked and less than a GiB more on
// each GPU, and asks for nothing of another tool's any more.
func FuzzPod(f *testing.F) {
	f.Add("1", "3000", "", "30", "", "", uint8(0))
	f.Add("", "", "50", "", "0.25", "2", uint8(4))
	f.Add("2", "", "", "", "", "", uint8(3))
	f.Fuzz(func(t *testing.T, gpus, memory, share, cores, fraction, model string, replicas uint8) {
		p := translate.Pod{Annotations: map[string]string{},
			Containers: []translate.Container{{Name: "a", Limits: map[string]string{}},
				{Name: "b", Limits: map[string]string{"cpu": "1"}}}}
		for name, v := range map[string]string{"nvidia.com/gpu": gpus, "nvidia.com/gpumem": memory,
			"nvidia.com/gpumem-percentage": share, "nvidia.com/gpucores": cores} {
			if v != "" {
				p.Containers[0].Limits[name] = v
			}
		}
		for name, v := range map[string]string{"gpu-fraction": fraction, "nvidia.com/use-gputype": model} {
			if v != "" {
				p.Annotations[name] = v
			}
		}
		o := translate.Options{Replicas: int(replicas)}
		c, err := o.Pod(p)
		if err != nil {
			return
		}
		after := translate.Pod{Annotations: maps.Clone(p.Annotations),
			Containers: []translate.Container{{Name: "a", Limits: c.Limits["a"]}, p.Containers[1]}}
		for _, name := range c.DropAnnotations {
			delete(after.Annotations, name)
		}
		maps.Copy(after.Annotations, c.Annotations)
		if c.Empty() || len(c.Limits["a"]) == 0 { // amounts of 0 request nothing
			return
		}
		if again, err := o.Pod(after); err != nil || !again.Empty() {
			t.Fatalf("a second time: %+v, %v", again, err)
		}
		r, asks, err := sharing.RequestFromResources(c.Limits["a"], after.Annotations, "a")
		if err != nil || !asks {
			t.Fatalf("%+v: %v, %v", c, asks, err)
		}
		if mib, err := strconv.ParseUint(memory, 10, 64); err == nil && r.Memory > 0 {
			each, _ := r.Each()
			if asked := sharing.Bytes(mib) * sharing.MiB; each < asked || each >= asked+sharing.GiB {
				t.Fatalf("%d MiB became %v", mib, each)
			}
		}
	})
}
