// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package attribution

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/kerf-gpu/kerf/sharing"
)

const (
	gpu0 sharing.GPUID = "GPU-0"
	gib                = sharing.GiB
)

func attachment(grant string, f ...Share) Attachment {
	return Attachment{Grant: grant, Cgroup: "/cg/" + grant, Shares: f}
}

func proc(pid int, dir string, memory sharing.Bytes, sm Ratio) Process {
	return Process{PID: pid, GI: NoInstance, Memory: Known(memory), SM: sm, DRAM: sm / 2, Cgroup: dir}
}

func mem(v sharing.Bytes, h How) Amount[sharing.Bytes] { return Amount[sharing.Bytes]{v, h} }
func rat(v Ratio, h How) Amount[Ratio]                 { return Amount[Ratio]{v, h} }
func jou(v Joules, h How) Amount[Joules]               { return Amount[Joules]{v, h} }

func use(memory Amount[sharing.Bytes], sm, dram Amount[Ratio], energy Amount[Joules], processes int) Use {
	return Use{Memory: memory, SM: sm, DRAM: dram, Energy: energy, Processes: processes}
}

// about compares what was computed in another order.
func about() cmp.Options {
	return cmp.Options{
		cmp.Comparer(func(a, b Ratio) bool { return math.Abs(float64(a-b)) < 1e-9 }),
		cmp.Comparer(func(a, b Joules) bool { return math.Abs(float64(a-b)) < 1e-9 }),
	}
}

func TestAttribute(t *testing.T) {
	shared := Share{GPU: sharing.GPURef{UUID: gpu0}}
	one, two := sharing.InstanceRef{Profile: "1g.10gb", Start: 0}, sharing.InstanceRef{Profile: "2g.20gb", Start: 2}
	cases := map[string]struct {
		device      Device
		attachments []Attachment
		want        Sample
	}{
		"two sharers get their own numbers": {
			Device{
				Memory: Known(10 * gib), SM: Known(Ratio(0.8)), DRAM: Known(Ratio(0.4)), Energy: Known(Joules(100)),
				Listed: true, Timed: true,
				Processes: []Process{proc(1, "/cg/a", 4*gib, 0.5), proc(2, "/cg/b/child", 3*gib, 0.2),
					proc(3, "/cg/b", 2*gib, 0)},
			},
			[]Attachment{attachment("a", shared), attachment("b", shared)},
			Sample{
				Grants: []GrantUse{
					{Grant: "a", Use: use(mem(4*gib, ByProcess), rat(0.5, ByProcess), rat(0.25, ByProcess),
						jou(50, ByDeviceShare), 1)},
					{Grant: "b", Use: use(mem(5*gib, ByProcess), rat(0.2, ByProcess), rat(0.1, ByProcess),
						jou(20, ByDeviceShare), 2)},
				},
				Unmanaged: use(mem(0, ByProcess), rat(0, ByProcess), rat(0, ByProcess), jou(0, ByDeviceShare), 0),
				Rest: use(mem(1*gib, Unattributed), rat(0.1, Unattributed), rat(0.05, Unattributed),
					jou(30, Unattributed), 0),
			},
		},
		"an unmanaged process, one in a cgroup with a longer name, one on a foreign GPU, and one that ended": {
			Device{Memory: Known(10 * gib), Listed: true, Processes: []Process{
				proc(1, "/cg/a", gib, 0), proc(2, "/cg/ab", gib, 0), proc(3, "/cg/else", gib, 0), proc(4, "", gib, 0),
				proc(5, "/user", gib, 0),
			}},
			[]Attachment{attachment("a", shared), attachment("else", Share{GPU: sharing.GPURef{UUID: "GPU-1"}})},
			Sample{
				Grants:        []GrantUse{{Grant: "a", Use: Use{Memory: mem(gib, ByProcess), Processes: 1}}},
				Unmanaged:     Use{Memory: mem(3*gib, ByProcess), Processes: 3},
				UnmanagedPIDs: []int{2, 3, 5},
				Rest:          Use{Memory: mem(6*gib, Unattributed), Processes: 1},
			},
		},
		"what is unknown is absent": {
			Device{Memory: Known(10 * gib), Listed: true, Processes: []Process{proc(1, "/cg/a", gib, 0),
				{PID: 2, Cgroup: "/cg/a"}, proc(3, "/cg/b", gib, 0)}},
			[]Attachment{attachment("a", shared), attachment("b", shared), attachment("c", shared)},
			Sample{
				Grants: []GrantUse{
					{Grant: "a", Use: Use{Processes: 2}},
					{Grant: "b", Use: Use{Memory: mem(gib, ByProcess), Processes: 1}},
					{Grant: "c", Use: Use{Memory: mem(0, ByProcess), SM: rat(0, ByProcess), DRAM: rat(0, ByProcess)}},
				},
				Unmanaged: Use{Memory: mem(0, ByProcess), SM: rat(0, ByProcess), DRAM: rat(0, ByProcess)},
				Rest:      Use{Memory: mem(9*gib, Unattributed)},
			},
		},
		"no list, no numbers": {
			Device{Memory: Known(gib), SM: Known(Ratio(0.5))},
			[]Attachment{attachment("a", shared)},
			Sample{
				Grants: []GrantUse{{Grant: "a"}},
				Rest:   Use{Memory: mem(gib, Unattributed), SM: rat(0.5, Unattributed)},
			},
		},
		"alone on a shared GPU": {
			Device{Memory: Known(2 * gib), SM: Known(Ratio(0.5)), Energy: Known(Joules(10)), Listed: true,
				Processes: []Process{{PID: 1, GI: NoInstance, Cgroup: "/cg/a"}}},
			[]Attachment{attachment("a", shared), attachment("b", shared)},
			Sample{
				Grants: []GrantUse{
					{Grant: "a", Use: Use{Memory: mem(2*gib, ByDeviceShare), SM: rat(0.5, ByDeviceShare),
						Energy: jou(5, ByDeviceShare), Processes: 1}},
					{Grant: "b", Use: Use{Memory: mem(0, ByProcess), SM: rat(0, ByProcess), DRAM: rat(0, ByProcess),
						Energy: jou(0, ByDeviceShare)}},
				},
				Unmanaged: Use{Memory: mem(0, ByProcess), SM: rat(0, ByProcess), DRAM: rat(0, ByProcess),
					Energy: jou(0, ByDeviceShare)},
				Rest: Use{Memory: mem(0, Unattributed), SM: rat(0, Unattributed), Energy: jou(5, Unattributed)},
			},
		},
		"a whole GPU's energy is its grant's": {
			Device{Memory: Known(2 * gib), SM: Known(Ratio(0.5)), Energy: Known(Joules(10)), Listed: true,
				Processes: []Process{proc(1, "/cg/a", gib, 0)}},
			[]Attachment{attachment("a", Share{GPU: sharing.GPURef{UUID: gpu0}, Whole: true})},
			Sample{
				Grants: []GrantUse{{Grant: "a", Use: Use{Memory: mem(gib, ByProcess), SM: rat(0.5, ByInstance),
					Energy: jou(10, ByInstance), Processes: 1}}},
				Unmanaged: Use{Memory: mem(0, ByProcess), SM: rat(0, ByProcess), DRAM: rat(0, ByProcess),
					Energy: jou(0, ByDeviceShare)},
				Rest: Use{Memory: mem(gib, Unattributed), SM: rat(0, Unattributed), Energy: jou(0, Unattributed)},
			},
		},
		"MIG instances, one of them used by an unmanaged process, and a process on another instance than its own": {
			Device{
				Memory: Known(20 * gib), Listed: true, SM: Known(Ratio(0.5)), Energy: Known(Joules(100)),
				Processes: []Process{
					{PID: 1, GI: 7, Memory: Known(3 * gib), Cgroup: "/cg/a"},
					{PID: 2, GI: 9, Memory: Known(5 * gib), Cgroup: "/cg/b"},
					{PID: 3, GI: 9, Memory: Known(gib), Cgroup: "/cg/a"},
				},
				Instances: []Instance{
					{GI: 7, Ref: one, Memory: Known(4 * gib), SM: Known(Ratio(0.7)), Compute: 1.0 / 7},
					{GI: 9, Ref: two, Memory: Known(6 * gib), SM: Known(Ratio(0.7)), Compute: 2.0 / 7},
				},
			},
			[]Attachment{attachment("a", Share{GPU: sharing.GPURef{UUID: gpu0, Instance: one}}),
				attachment("b", Share{GPU: sharing.GPURef{UUID: gpu0, Instance: two}}),
				attachment("c", Share{GPU: sharing.GPURef{UUID: gpu0, Instance: sharing.InstanceRef{Profile: "1g.10gb",
					Start: 6}}})},
			Sample{
				Grants: []GrantUse{
					{Grant: "a", Instance: one, Use: Use{Memory: mem(4*gib, ByInstance), SM: rat(0.1, ByInstance),
						Energy: jou(10, ByDeviceShare), Processes: 1}},
					{Grant: "b", Instance: two, Use: Use{Memory: mem(5*gib, ByProcess), Processes: 1}},
					{Grant: "c", Instance: sharing.InstanceRef{Profile: "1g.10gb", Start: 6},
						Use: Use{Memory: mem(0, ByProcess)}},
				},
				Unmanaged:     Use{Memory: mem(gib, ByProcess), Processes: 1},
				UnmanagedPIDs: []int{3},
				Rest: Use{Memory: mem(10*gib, Unattributed), SM: rat(0.4, Unattributed),
					Energy: jou(90, Unattributed)},
			},
		},
		"two instances of one grant on one GPU": {
			Device{Memory: Known(20 * gib), Listed: true,
				Processes: []Process{{PID: 1, GI: 7, Memory: Known(3 * gib), Cgroup: "/cg/a"},
					{PID: 1, GI: 9, Memory: Known(4 * gib), Cgroup: "/cg/a"}},
				Instances: []Instance{{GI: 7, Ref: one}, {GI: 9, Ref: two}}},
			[]Attachment{attachment("a", Share{GPU: sharing.GPURef{UUID: gpu0, Instance: two}},
				Share{GPU: sharing.GPURef{UUID: gpu0, Instance: one}})},
			Sample{
				Grants: []GrantUse{
					{Grant: "a", Instance: one, Use: Use{Memory: mem(3*gib, ByProcess), Processes: 1}},
					{Grant: "a", Instance: two, Use: Use{Memory: mem(4*gib, ByProcess), Processes: 1}},
				},
				Unmanaged: Use{Memory: mem(0, ByProcess), SM: rat(0, ByProcess), DRAM: rat(0, ByProcess)},
				Rest:      Use{Memory: mem(13*gib, Unattributed)},
			},
		},
		"answers of different moments": {
			Device{Memory: Known(gib), SM: Known(Ratio(0.5)), Energy: Known(Joules(10)), Listed: true, Timed: true,
				Processes: []Process{proc(1, "/cg/a", 3*gib, 0.7), proc(2, "/x", gib, 0.6)}},
			[]Attachment{attachment("a", shared)},
			Sample{
				Grants: []GrantUse{
					{Grant: "a", Use: use(mem(3*gib, ByProcess), rat(0.7, ByProcess), rat(0.35, ByProcess),
						jou(7/1.3, ByDeviceShare), 1)}},
				Unmanaged: use(mem(gib, ByProcess), rat(0.6, ByProcess), rat(0.3, ByProcess),
					jou(6/1.3, ByDeviceShare), 1),
				UnmanagedPIDs: []int{2},
				Rest: Use{Memory: mem(0, Unattributed), SM: rat(0, Unattributed),
					Energy: jou(0, Unattributed)},
				Excess: Excess{Memory: 3 * gib, SM: 0.8},
			},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			c.device.GPU, c.want.GPU = gpu0, gpu0
			if d := cmp.Diff(c.want, Attribute(c.device, c.attachments), about(), cmpopts.EquateEmpty()); d != "" {
				t.Error(d)
			}
		})
	}
}

// A process below the cgroups of two attachments is the deeper one's, in whichever order the attachments come.
func TestTheDeepestAttachmentDecides(t *testing.T) {
	above, below := attachment("above", Share{GPU: sharing.GPURef{UUID: gpu0}}),
		attachment("below", Share{GPU: sharing.GPURef{UUID: gpu0}})
	below.Cgroup = above.Cgroup + "/inner"
	d := Device{GPU: gpu0, Memory: Known(9 * gib), Listed: true, Processes: []Process{
		proc(1, above.Cgroup, gib, 0), proc(2, below.Cgroup, 2*gib, 0), proc(3, below.Cgroup+"/x", 4*gib, 0),
		proc(4, above.Cgroup, gib, 0),
	}}
	for _, attachments := range [][]Attachment{{above, below}, {below, above}} {
		given := slices.Clone(attachments)
		s := Attribute(d, attachments)
		if a, b := s.Grants[0].Memory, s.Grants[1].Memory; a != mem(2*gib, ByProcess) || b != mem(6*gib, ByProcess) {
			t.Errorf("%s first: above %v, below %v", attachments[0].Grant, a, b)
		}
		if d := cmp.Diff(given, attachments); d != "" {
			t.Errorf("the caller's attachments are in another order: %s", d)
		}
	}
}

func TestSevenSharers(t *testing.T) {
	d := Device{GPU: gpu0, Memory: Known(80 * gib), SM: Known(Ratio(1)), Energy: Known(Joules(700)), Listed: true,
		Timed: true}
	var attachments []Attachment
	for i := range 7 {
		name := fmt.Sprint("g", i)
		attachments = append(attachments, attachment(name, Share{GPU: sharing.GPURef{UUID: gpu0}}))
		for k := range i + 1 {
			d.Processes = append(d.Processes, proc(100*i+k+1, "/cg/"+name, gib, 1.0/28))
		}
	}
	s := Attribute(d, attachments)
	for i, g := range s.Grants {
		want := use(mem(sharing.Bytes(i+1)*gib, ByProcess), rat(Ratio(i+1)/28, ByProcess),
			rat(Ratio(i+1)/56, ByProcess), jou(Joules(i+1)*25, ByDeviceShare), i+1)
		if diff := cmp.Diff(want, g.Use, about()); diff != "" {
			t.Error(g.Grant, diff)
		}
	}
	if s.Rest.Memory != mem(52*gib, Unattributed) {
		t.Error("left:", s.Rest.Memory)
	}
}

func TestTally(t *testing.T) {
	var sum Accumulator
	use := func(m sharing.Bytes, sm Amount[Ratio]) Sample {
		return Sample{GPU: gpu0, Grants: []GrantUse{
			{Grant: "a", Use: Use{Memory: mem(m, ByProcess), SM: sm, Energy: jou(5, ByDeviceShare)}}}}
	}
	living := map[string]bool{"a": true}
	for _, s := range []Sample{use(3*gib, rat(0.5, ByProcess)), use(5*gib, rat(0, ByProcess)),
		use(gib, Amount[Ratio]{}), use(gib, rat(0, ByProcess))} {
		sum.Add([]Sample{s}, 2*time.Second, living)
	}
	sum.Add(nil, -time.Hour, living) // a clock that jumped
	got, _ := sum.Of(Place{Grant: "a", GPU: sharing.GPURef{UUID: gpu0}})
	want := Total{Peak: mem(5*gib, ByProcess), Energy: jou(20, ByDeviceShare), Active: time.Second,
		Watched: 6 * time.Second, Idle: 4 * time.Second}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	for i := range 10_000 { // pods come and go
		name := fmt.Sprint("p", i)
		sum.Add([]Sample{{GPU: gpu0, Grants: []GrantUse{{Grant: name}}}}, time.Second, map[string]bool{name: true})
	}
	if sum.Len() != 3 {
		t.Errorf("%d places are remembered; the last pod, unmanaged processes and the rest are 3", sum.Len())
	}
}

func TestEngines(t *testing.T) {
	shared := Share{GPU: sharing.GPURef{UUID: gpu0}}
	slot := sharing.InstanceRef{Profile: "1g.10gb", Start: 0}
	video := func(p Process, enc, dec Ratio) Process {
		p.Encoder, p.Decoder = enc, dec
		return p
	}
	two := []Process{video(proc(1, "/cg/a", gib, 0.6), 0.3, 0), video(proc(2, "/cg/b", gib, 0.2), 0, 0.1)}
	cases := map[string]struct {
		device      Device
		attachments []Attachment
		a, b, rest  Engines
	}{
		"sharers": {
			Device{SM: Known(Ratio(0.8)), Encoder: Known(Ratio(0.5)), Decoder: Known(Ratio(0.1)),
				Tensor:    Known(Ratio(0.4)),
				Occupancy: Known(Ratio(0.2)), Listed: true, Timed: true, Processes: two},
			[]Attachment{attachment("a", shared), attachment("b", shared)},
			Engines{rat(0.3, ByProcess), rat(0, ByProcess), rat(0.3, ByDeviceShare), rat(0.15, ByDeviceShare)},
			Engines{rat(0, ByProcess), rat(0.1, ByProcess), rat(0.1, ByDeviceShare), rat(0.05, ByDeviceShare)},
			Engines{rat(0.2, Unattributed), rat(0, Unattributed), rat(0, Unattributed), rat(0, Unattributed)},
		},
		"time that no one accounts for has its part": {
			Device{SM: Known(Ratio(1)), Tensor: Known(Ratio(0.5)), Listed: true, Timed: true, Processes: two},
			[]Attachment{attachment("a", shared), attachment("b", shared)},
			Engines{Tensor: rat(0.3, ByDeviceShare)}, Engines{Tensor: rat(0.1, ByDeviceShare)},
			Engines{Tensor: rat(0.1, Unattributed)},
		},
		"no process is timed": {
			Device{SM: Known(Ratio(0.8)), Encoder: Known(Ratio(0.5)), Tensor: Known(Ratio(0.4)), Listed: true,
				Processes: two},
			[]Attachment{attachment("a", shared), attachment("b", shared)},
			Engines{}, Engines{}, Engines{Encoder: rat(0.5, Unattributed), Tensor: rat(0.4, Unattributed)},
		},
		"alone, and an instance": {
			Device{
				Tensor: Known(Ratio(0.4)), Listed: true, Processes: []Process{{PID: 2, GI: 1, Cgroup: "/cg/b"}},
				Instances: []Instance{{GI: 1, Ref: slot, Compute: 0.5, Tensor: Known(Ratio(0.6)),
					Occupancy: Known(Ratio(0.1))}},
			},
			[]Attachment{attachment("a",
				Share{GPU: sharing.GPURef{UUID: gpu0, Instance: sharing.InstanceRef{Profile: "1g.10gb", Start: 4}}}),
				attachment("b", Share{GPU: sharing.GPURef{UUID: gpu0, Instance: slot}})},
			Engines{}, Engines{Tensor: rat(0.3, ByInstance), Occupancy: rat(0.05, ByInstance)},
			Engines{Tensor: rat(0.1, Unattributed)},
		},
		"a whole GPU": {
			Device{Encoder: Known(Ratio(0.5)), Tensor: Known(Ratio(0.4)), Listed: true, Processes: two[:1]},
			[]Attachment{attachment("a", Share{GPU: sharing.GPURef{UUID: gpu0}, Whole: true})},
			Engines{Encoder: rat(0.5, ByInstance), Tensor: rat(0.4, ByInstance)}, Engines{},
			Engines{Encoder: rat(0, Unattributed), Tensor: rat(0, Unattributed)},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			c.device.GPU = gpu0
			s := Attribute(c.device, c.attachments)
			got := []Engines{{}, {}, s.Rest.Engines}
			for i, g := range s.Grants {
				got[i] = g.Engines
			}
			if d := cmp.Diff([]Engines{c.a, c.b, c.rest}, got, about()); d != "" {
				t.Error(d)
			}
		})
	}
}
