// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package nri

import (
	"errors"
	"slices"
	"testing"

	"github.com/containerd/nri/pkg/api"

	"github.com/kerf-gpu/kerf/sharing"
)

const limitEnv, requestEnv = "NVIDIA_GPU_MEMORY_LIMIT", "NVIDIA_GPU_MEMORY_REQUEST"

// TestLimitEnvIsCleared: no amount that the tenant wrote for NVIDIA's limit hook is left in a container with a grant.
// The runtime's real code makes the spec.
func TestLimitEnvIsCleared(t *testing.T) {
	c := newContainerd(t).start()
	plug(t, c.socket(), &fakeNode{}).serving(t).know(specOf("train", memory("main", sharing.ContainerApp, "10")))
	tests := map[string]struct {
		env            []string
		limit, request []string
		rejected       bool
	}{
		"none":            {[]string{"PATH=/bin"}, nil, nil, false},
		"limit":           {[]string{limitEnv + "=81920"}, []string{""}, nil, false},
		"request":         {[]string{"A=b", requestEnv + "=1"}, nil, []string{""}, false},
		"both":            {[]string{requestEnv + "=1", limitEnv + "=2"}, []string{""}, []string{""}, false},
		"empty":           {[]string{limitEnv + "="}, []string{""}, nil, false},
		"a longer name":   {[]string{limitEnv + "_X=1"}, nil, nil, false},
		"limit twice":     {[]string{limitEnv + "=1", "A=b", limitEnv + "=2"}, nil, nil, true},
		"request twice":   {[]string{requestEnv + "=1", requestEnv + "=1"}, nil, nil, true},
		"no value at all": {[]string{limitEnv}, []string{""}, nil, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			ctr, raw := containerOf("main", guarded()...), containerOf("main")
			ctr.Env, raw.Env = slices.Clone(tt.env), slices.Clone(tt.env)
			a, err := c.create(podOf("train"), ctr)
			if (err != nil) != tt.rejected {
				t.Fatalf("create: %v, rejected is %t", err, tt.rejected)
			}
			if err != nil {
				return
			}
			spec, err := applied(raw, a, nil)
			if err != nil {
				t.Fatal(err)
			}
			if got := envOf(spec, limitEnv); !slices.Equal(got, tt.limit) {
				t.Errorf("%s is %q, want %q", limitEnv, got, tt.limit)
			}
			if got := envOf(spec, requestEnv); !slices.Equal(got, tt.request) {
				t.Errorf("%s is %q, want %q", requestEnv, got, tt.request)
			}
		})
	}
}

// A container without a grant keeps the variables: they are for GPUs that another device plugin gives.
func TestLimitEnvOfOthersStays(t *testing.T) {
	ctr := &api.Container{Name: "main", Env: []string{limitEnv + "=1024"}}
	a, err := adjustOther(ctr, false)
	if err != nil {
		t.Fatal(err)
	}
	spec, err := applied(ctr, a, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := envOf(spec, limitEnv); !slices.Equal(got, []string{"1024"}) {
		t.Errorf("%s is %q", limitEnv, got)
	}
}

// The variable is rejected if it is there twice.
func TestLimitEnvTwice(t *testing.T) {
	ctr := &api.Container{Name: "main", Env: []string{limitEnv + "=1", limitEnv + "=2"}}
	if _, err := adjustGuarded(ctr, injection()); !errors.Is(err, sharing.ErrInvalid) {
		t.Errorf("adjustGuarded() = %v, want ErrInvalid", err)
	}
}

// TestRemovedVariablesStay shows why clearLimitEnv empties the variables: NRI drops the removal of a variable that no
// other plugin has set.
func TestRemovedVariablesStay(t *testing.T) {
	c := newContainerd(t).start()
	node := &fakeNode{}
	plug(t, c.socket(), node).serving(t)
	ctr := containerOf("main")
	ctr.Env = []string{"NVIDIA_VISIBLE_DEVICES=all"}
	a, err := c.create(podOf("web"), ctr)
	if err != nil {
		t.Fatal(err)
	}
	sent, err := adjustOther(ctr, false)
	if err != nil {
		t.Fatal(err)
	}
	removals := func(a *api.ContainerAdjustment) (n int) {
		for _, e := range a.GetEnv() {
			if _, marked := e.IsMarkedForRemoval(); marked {
				n++
			}
		}
		return n
	}
	if removals(sent) == 0 {
		t.Fatal("the plugin sends no removal, so this test shows nothing")
	}
	if removals(a) > 0 {
		t.Error("NRI passes removals on now: remove the variables in clearLimitEnv")
	}
}
