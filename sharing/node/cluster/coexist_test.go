// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"log/slog"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kerf-gpu/kerf/api/gpunode"
	"github.com/kerf-gpu/kerf/internal/cdi"
	"github.com/kerf-gpu/kerf/internal/kube"
	"github.com/kerf-gpu/kerf/sharing"
)

func TestOverlap(t *testing.T) {
	gpus := []sharing.GPU{{UUID: "GPU-aa"}, {UUID: "GPU-bb"}, {UUID: "GPU-cc"}}
	why := func(resource string) string {
		return "another device plugin hands it out as " + resource + "; take the GPU, or the node, from one of both"
	}
	for name, tt := range map[string]struct {
		others map[string][]string
		want   map[sharing.GPUID]string
	}{
		"no one else": {nil, map[sharing.GPUID]string{}},
		"other GPUs": {map[string][]string{"nvidia.com/gpu": {"GPU-dd"}, "example.com/nic": {"0"}},
			map[sharing.GPUID]string{}},
		"one GPU": {map[string][]string{"nvidia.com/gpu": {"GPU-bb", "GPU-dd"}},
			map[sharing.GPUID]string{"GPU-bb": why("nvidia.com/gpu")}},
		"replicas": {map[string][]string{"nvidia.com/gpu.shared": {"GPU-aa::0", "GPU-aa::1"}},
			map[sharing.GPUID]string{"GPU-aa": why("nvidia.com/gpu.shared")}},
		"another's way": {map[string][]string{"nvidia.com/gpu": {"GPU-cc-9"}},
			map[sharing.GPUID]string{"GPU-cc": why("nvidia.com/gpu")}},
		"two, said by one": {map[string][]string{"b.com/gpu": {"GPU-aa"}, "a.com/gpu": {"GPU-aa"}},
			map[sharing.GPUID]string{"GPU-aa": why("a.com/gpu")}},
		"ids of no meaning": {map[string][]string{"nvidia.com/gpu": {"0", "1", ""}}, map[sharing.GPUID]string{}},
	} {
		if d := cmp.Diff(tt.want, overlap(tt.others, gpus)); d != "" {
			t.Errorf("%s:\n%s", name, d)
		}
	}
}

// TestClaimedBy: a GPU that another DRA driver prepared is closed until the claim's spec is gone. What a device plugin
// says comes first.
func TestClaimedBy(t *testing.T) {
	gpus := []sharing.GPU{{UUID: "GPU-aa", Minor: 0},
		{UUID: "GPU-bb", Minor: 1}, {UUID: "GPU-cc", Minor: 2}}
	got := map[sharing.GPUID]string{"GPU-aa": "a plugin"}
	one := cdi.Claimed{Kind: "k8s.gpu.nvidia.com/claim", Paths: []string{"/dev/nvidia0", "/dev/nvidia1"}}
	claimedBy([]cdi.Claimed{one}, gpus, got)
	want := map[sharing.GPUID]string{"GPU-aa": "a plugin", "GPU-bb": "another DRA driver has given it to a pod as " +
		"k8s.gpu.nvidia.com/claim; end the pod, or take the GPU, or the node, from one of both"}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

// TestCordonsAndOverlap: a GPU that another plugin hands out stays closed whatever the cluster says, and the reverse.
func TestCordonsAndOverlap(t *testing.T) {
	var last map[sharing.GPUID]string
	calls := 0
	c := &cordons{
		log: slog.New(slog.DiscardHandler), dir: t.TempDir(), warn: func(string) {}, rest: func(gpunode.Spec) {},
		set: func(why map[sharing.GPUID]string) { last, calls = why, calls+1 },
	}
	c.overlap(map[sharing.GPUID]string{"GPU-a": "another"})
	c.overlap(map[sharing.GPUID]string{"GPU-a": "another"})
	if calls != 1 {
		t.Errorf("reported %d times", calls)
	}
	c.tell(kube.Spec{Text: []byte(`{"cordonedGPUs":[{"uuid":"GPU-b","reason":"fan"}]}`)}, nil)
	if d := cmp.Diff(map[sharing.GPUID]string{"GPU-a": "another", "GPU-b": "fan"}, last); d != "" {
		t.Error(d)
	}
	c.tell(kube.Spec{}, nil)
	c.overlap(nil)
	if len(last) != 0 {
		t.Errorf("left %v", last)
	}
}
