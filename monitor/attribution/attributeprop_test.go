// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package attribution

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/kerf-gpu/kerf/sharing"
)

// randomDevice makes a GPU with processes of attachments, unmanaged processes and processes that have gone; in MIG mode
// half of the time.
func randomDevice(r *rand.Rand) (Device, []Attachment) {
	d := Device{GPU: gpu0, Listed: r.IntN(10) > 0, Timed: r.IntN(2) == 0}
	if r.IntN(8) > 0 {
		d.Memory = Known(sharing.Bytes(r.Uint64N(1 << 37)))
	}
	if r.IntN(4) > 0 {
		d.SM, d.DRAM = Known(Ratio(r.Float64())), Known(Ratio(r.Float64()))
	}
	if r.IntN(4) > 0 {
		d.Energy = Known(Joules(r.Float64() * 1000))
	}
	if r.IntN(2) == 0 {
		d.Encoder, d.Tensor, d.Occupancy = Known(Ratio(r.Float64())), Known(Ratio(r.Float64())),
			Known(Ratio(r.Float64()))
	}
	slots := 0
	if r.IntN(2) == 0 {
		slots = 1 + r.IntN(7)
	}
	for i := range slots {
		in := Instance{GI: i + 1, Ref: sharing.InstanceRef{Profile: "1g.10gb", Start: i}, Compute: 1.0 / 7}
		if r.IntN(2) == 0 {
			in.Memory, in.SM = Known(sharing.Bytes(r.Uint64N(1<<33))), Known(Ratio(r.Float64()))
			in.Tensor = Known(Ratio(r.Float64() / 8))
		}
		d.Instances = append(d.Instances, in)
	}
	var attachments []Attachment
	for i := range r.IntN(8) {
		f := Share{GPU: sharing.GPURef{UUID: gpu0}, Whole: slots == 0 && r.IntN(5) == 0}
		if i < slots {
			f.GPU.Instance = sharing.InstanceRef{Profile: "1g.10gb", Start: i}
		}
		if r.IntN(6) == 0 {
			f.GPU = sharing.GPURef{UUID: "GPU-1"}
		}
		attachments = append(attachments, attachment(fmt.Sprint("g", i), f))
	}
	if d.Listed {
		for pid := range r.IntN(30) {
			dir := []string{"", "/elsewhere", fmt.Sprint("/cg/g", r.IntN(8)),
				fmt.Sprint("/cg/g", r.IntN(8), "/below")}[r.IntN(4)]
			p := proc(pid+1, dir, sharing.Bytes(r.Uint64N(1<<33)), Ratio(r.Float64()/8))
			if slots > 0 {
				p.GI = 1 + r.IntN(slots)
			}
			if r.IntN(20) == 0 {
				p.Memory = Reading[sharing.Bytes]{}
			}
			d.Processes = append(d.Processes, p)
		}
	}
	return d, attachments
}

// TestPartsAddUp holds the parts against the whole, and what is known by process against a plain sum.
func TestPartsAddUp(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 11))
	seen := map[How]int{}
	excess := 0
	for range 3_000 {
		d, attachments := randomDevice(r)
		s := Attribute(d, attachments)
		parts := []Use{s.Unmanaged, s.Rest}
		for _, g := range s.Grants {
			parts = append(parts, g.Use)
			seen[g.Memory.How]++
			if want, reported := naive(d, g.Grant); g.Memory.How == ByProcess && (!reported || g.Memory.Value != want) {
				t.Fatalf("%s has %d, its processes %d (reported: %t)\n%+v", g.Grant, g.Memory.Value, want, reported, d)
			}
		}
		var memory sharing.Bytes
		var sm, joules float64
		processes := 0
		for _, u := range parts {
			memory += u.Memory.Value
			sm += float64(u.SM.Value)
			joules += float64(u.Energy.Value)
			processes += u.Processes
		}
		if d.Memory.Known && memory != d.Memory.Value+s.Excess.Memory {
			t.Fatalf("memory: parts %d, whole %d, excess %d\n%+v", memory, d.Memory.Value, s.Excess.Memory, d)
		}
		if d.SM.Known && math.Abs(sm-float64(d.SM.Value+s.Excess.SM)) > 1e-9 {
			t.Fatalf("activity: parts %g, whole %g, excess %g", sm, d.SM.Value, s.Excess.SM)
		}
		if math.Abs(joules-float64(d.Energy.Value)) > 1e-9*float64(d.Energy.Value)+1e-9 {
			t.Fatalf("energy: parts %g, whole %g\n%+v", joules, d.Energy.Value, d)
		}
		engineParts(t, d, s, parts)
		if processes != len(d.Processes) {
			t.Fatalf("%d of %d processes are someone's", processes, len(d.Processes))
		}
		if s.Excess.Memory > 0 {
			excess++
		}
	}
	if seen[Unknown] == 0 || seen[ByProcess] == 0 || seen[ByInstance] == 0 || excess == 0 {
		t.Errorf("the random devices do not meet every case: %v, %d with an excess", seen, excess)
	}
}

// engineParts compares the parts of a GPU's engines with the whole. The sum of instances may be more than that.
func engineParts(t *testing.T, d Device, s Sample, parts []Use) {
	t.Helper()
	for name, of := range map[string]struct {
		whole Reading[Ratio]
		part  func(Engines) Amount[Ratio]
	}{
		"encoder":   {d.Encoder, func(e Engines) Amount[Ratio] { return e.Encoder }},
		"tensor":    {d.Tensor, func(e Engines) Amount[Ratio] { return e.Tensor }},
		"occupancy": {d.Occupancy, func(e Engines) Amount[Ratio] { return e.Occupancy }},
	} {
		var sum Ratio
		measured := false
		for _, u := range parts {
			a := of.part(u.Engines)
			sum += a.Value
			measured = measured || a.How == ByInstance && len(d.Instances) > 0 || a.How == ByProcess
			if a.How == ByDeviceShare && (!of.whole.Known || a.Value > of.whole.Value+1e-9) {
				t.Fatalf("%s: a part of %g, and the whole is %v", name, a.Value, of.whole)
			}
		}
		if of.whole.Known && (sum < of.whole.Value-1e-9 || !measured && sum > of.whole.Value+1e-9) {
			t.Fatalf("%s: parts %g, whole %g\n%+v\n%+v", name, sum, of.whole.Value, d, s)
		}
	}
}

// naive is the memory of a grant's processes on its instance; known is false if one is elsewhere.
func naive(d Device, grant string) (sum sharing.Bytes, known bool) {
	for _, p := range d.Processes {
		if p.Cgroup != "/cg/"+grant && !strings.HasPrefix(p.Cgroup, "/cg/"+grant+"/") {
			continue
		}
		if n := len(d.Instances); n > 0 {
			var slot int
			if _, err := fmt.Sscanf(grant, "g%d", &slot); err == nil && slot < n && p.GI != slot+1 {
				continue
			}
		}
		if !p.Memory.Known {
			return 0, false
		}
		sum += p.Memory.Value
	}
	return sum, true
}
