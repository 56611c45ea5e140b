// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package shares

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	nodeapi "github.com/kerf-gpu/kerf/api/node/v1alpha1"
	"github.com/kerf-gpu/kerf/sharing"
)

const gib = 1 << 30

// h100 is a healthy GPU with 79 GiB for shares.
func h100(uuid string) *nodeapi.GPU {
	return &nodeapi.GPU{Uuid: uuid, Model: "NVIDIA H100 80GB HBM3", Pci: "0000:01:00.0",
		CapacityBytes: new(uint64(80 * gib)), ReservedBytes: gib / 2, UsedBytes: new(uint64(3 * gib)),
		Health: "healthy", Levels: []string{"exclusive", "driver"}}
}

func status(gpus ...*nodeapi.GPU) *nodeapi.GetNodeResponse {
	return &nodeapi.GetNodeResponse{Ready: true, DriverVersion: "615.1", Gpus: gpus}
}

// TestFromStatus: the amount and the problem of one GPU.
func TestFromStatus(t *testing.T) {
	for name, tt := range map[string]struct {
		change  func(*nodeapi.GetNodeResponse, *nodeapi.GPU)
		gib     int
		problem string
	}{
		"healthy": {func(*nodeapi.GetNodeResponse, *nodeapi.GPU) {}, 79, ""},
		"reserve of the config": {func(_ *nodeapi.GetNodeResponse, g *nodeapi.GPU) { g.ReservedBytes = 10*gib + 1 },
			69, ""},
		"overcommit": {func(_ *nodeapi.GetNodeResponse, g *nodeapi.GPU) { g.MemoryOvercommitPercent = 150 }, 119, ""},
		"impossible overcommit": {func(_ *nodeapi.GetNodeResponse, g *nodeapi.GPU) {
			g.MemoryOvercommitPercent = 1<<32 - 1
		}, 159, ""},
		"agent not ready": {func(p *nodeapi.GetNodeResponse, _ *nodeapi.GPU) {
			p.Ready, p.NotReady = false, []string{"no driver", "no cgroup"}
		}, 79, "the agent is not ready: no driver; no cgroup"},
		"agent not ready without a reason": {func(p *nodeapi.GetNodeResponse, _ *nodeapi.GPU) { p.Ready = false },
			79, "the agent is not ready"},
		"unhealthy": {func(_ *nodeapi.GetNodeResponse, g *nodeapi.GPU) {
			g.Health, g.HealthReason, g.Levels = "unhealthy", "Xid 79", nil
		}, 79, "the GPU is unhealthy: Xid 79"},
		"no health": {func(_ *nodeapi.GetNodeResponse, g *nodeapi.GPU) { g.Health = "" }, 79, "the GPU is unknown"},
		"system memory": {func(_ *nodeapi.GetNodeResponse, g *nodeapi.GPU) {
			g.CapacityBytes, g.UsedBytes = nil, nil
		}, 0, sharing.NoShares},
		"MIG": {func(_ *nodeapi.GetNodeResponse, g *nodeapi.GPU) { g.Mig = true }, 0, "the GPU is in MIG mode"},
		"whole GPU": {func(p *nodeapi.GetNodeResponse, g *nodeapi.GPU) {
			p.Grants = []*nodeapi.Grant{{Shares: []*nodeapi.Share{{Gpu: g.GetUuid(), Whole: true}}}}
		}, 79, "a grant has the whole GPU"},
		"shares of others": {func(p *nodeapi.GetNodeResponse, g *nodeapi.GPU) {
			p.Grants = []*nodeapi.Grant{{Shares: []*nodeapi.Share{{Gpu: g.GetUuid(), MemoryBytes: gib}}}}
		}, 79, ""},
		"level reactive": {func(_ *nodeapi.GetNodeResponse, g *nodeapi.GPU) { g.Levels = []string{"reactive"} },
			79, ""},
		"not enforced": {func(_ *nodeapi.GetNodeResponse, g *nodeapi.GPU) { g.Levels = []string{"exclusive", "none"} },
			79, "no backend enforces shares on the GPU"},
		"not probed": {func(_ *nodeapi.GetNodeResponse, g *nodeapi.GPU) { g.Levels = nil }, 79,
			"no backend enforces shares on the GPU"},
		"tiny": {func(_ *nodeapi.GetNodeResponse, g *nodeapi.GPU) { g.ReservedBytes = 81 * gib }, 0,
			"the GPU has less than 1 GiB of allocatable memory"},
	} {
		g := h100("GPU-a")
		p := status(g)
		tt.change(p, g)
		got := FromStatus(p, Node{})
		if len(got.GPUs) != 1 || got.GPUs[0].GiB != tt.gib || got.GPUs[0].Problem != tt.problem {
			t.Errorf("%s: %+v, want %d GiB and problem %q", name, got.GPUs, tt.gib, tt.problem)
		}
		if n, want := len(got.GPUs[0].IDs()), max(tt.gib, 1); n != want {
			t.Errorf("%s: %d devices, want %d", name, n, want)
		}
	}
}

// TestFromStatusKeepsKnownGPUs: GPUs are in order, one that disappears has a problem, and MIG instances are left out.
func TestFromStatusKeepsKnownGPUs(t *testing.T) {
	before := FromStatus(status(h100("GPU-b"), h100("GPU-a"), h100("GPU-c/3g.40gb@4"), h100("GPU-c/@")), Node{})
	want := Node{DriverVersion: "615.1", GPUs: []GPU{
		{UUID: "GPU-a", Model: "NVIDIA H100 80GB HBM3", PCI: "0000:01:00.0", GiB: 79,
			CapacityBytes: new(uint64(80 * gib)), UsedBytes: new(uint64(3 * gib))},
		{UUID: "GPU-b", Model: "NVIDIA H100 80GB HBM3", PCI: "0000:01:00.0", GiB: 79,
			CapacityBytes: new(uint64(80 * gib)), UsedBytes: new(uint64(3 * gib))},
	}}
	if d := cmp.Diff(want, before); d != "" {
		t.Fatalf("-want +got:\n%s", d)
	}
	after := FromStatus(status(h100("GPU-b")), before)
	want.GPUs[0].Problem = "the agent does not report this GPU: it is lost or excluded by the config"
	want.GPUs[0].UsedBytes = nil
	if d := cmp.Diff(want, after); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
	if before.SameDevices(after) {
		t.Error("a GPU that is gone makes no difference")
	}
	if back := FromStatus(status(h100("GPU-a"), h100("GPU-b")), after); !back.SameDevices(before) {
		t.Errorf("the GPU is back: %+v", back)
	}
}

// TestUnreachable: without an agent, all devices stay and are unhealthy. The node of before does not change.
func TestUnreachable(t *testing.T) {
	before := FromStatus(status(h100("GPU-a"), h100("GPU-b")), Node{})
	got := Unreachable(before, "no agent")
	if len(got.GPUs) != 2 || got.DriverVersion != "615.1" {
		t.Fatalf("%+v", got)
	}
	for i, g := range got.GPUs {
		if g.Problem != "no agent" || g.UsedBytes != nil || g.GiB != 79 || before.GPUs[i].Problem != "" {
			t.Errorf("%+v, and before %+v", g, before.GPUs[i])
		}
	}
}

// TestSameDevices: each value that Nomad gets makes a difference, and usage makes none.
func TestSameDevices(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(*Node)
		same   bool
	}{
		"nothing": {func(*Node) {}, true},
		"usage":   {func(n *Node) { n.GPUs[0].UsedBytes = nil }, true},
		"driver":  {func(n *Node) { n.DriverVersion = "1" }, false},
		"UUID":    {func(n *Node) { n.GPUs[0].UUID = "GPU-x" }, false},
		"model":   {func(n *Node) { n.GPUs[0].Model = "L40S" }, false},
		"PCI":     {func(n *Node) { n.GPUs[0].PCI = "" }, false},
		"memory":  {func(n *Node) { n.GPUs[0].GiB++ }, false},
		"problem": {func(n *Node) { n.GPUs[0].Problem = "x" }, false},
		"GPUs":    {func(n *Node) { n.GPUs = nil }, false},
	} {
		n := FromStatus(status(h100("GPU-a")), Node{})
		tt.change(&n)
		if got := n.SameDevices(FromStatus(status(h100("GPU-a")), Node{})); got != tt.same {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// TestReserve: devices of one GPU make up a share, and others are errors.
func TestReserve(t *testing.T) {
	mig := h100("GPU-mig")
	mig.Mig = true
	n := FromStatus(status(h100("GPU-a"), h100("GPU-b"), mig), Node{})
	all := n.GPUs[0].IDs()
	for name, tt := range map[string]struct {
		ids  []string
		want Request
		says string
	}{
		"one":          {all[:1], Request{"GPU-a", 1}, ""},
		"some":         {[]string{all[78], all[3]}, Request{"GPU-a", 2}, ""},
		"all":          {all, Request{"GPU-a", 79}, ""},
		"none":         {nil, Request{}, "no device is requested"},
		"two GPUs":     {[]string{"GPU-a:0", "GPU-b:0"}, Request{}, "a share has memory of one GPU"},
		"twice":        {[]string{"GPU-a:0", "GPU-a:1", "GPU-a:0"}, Request{}, `"GPU-a:0": the device is requested twice`},
		"above":        {[]string{"GPU-a:79"}, Request{}, "the GPU has 79 GiB for shares"},
		"other number": {[]string{"GPU-a:01"}, Request{}, "the GPU has 79 GiB for shares"},
		"no number":    {[]string{"GPU-a"}, Request{}, "the GPU has 79 GiB for shares"},
		"MIG mode":     {[]string{"GPU-mig:0"}, Request{}, "the GPU has 0 GiB for shares"},
		"unknown GPU":  {[]string{"GPU-x:0"}, Request{}, `the agent reported no GPU with UUID "GPU-x"`},
		"empty":        {[]string{""}, Request{}, `the agent reported no GPU with UUID ""`},
	} {
		got, err := n.Reserve(tt.ids)
		if got != tt.want || (err == nil) != (tt.says == "") || err != nil && !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%s: %+v, %v; want %+v, %q", name, got, err, tt.want, tt.says)
		}
	}
	want := map[string]string{"KERF_NOMAD_GPU": "GPU-a", "KERF_NOMAD_MEMORY": "20GiB"}
	if d := cmp.Diff(want, Request{"GPU-a", 20}.Env()); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}
