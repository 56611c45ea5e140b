// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package model

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kerf-gpu/kerf/sim/machine"
	"github.com/kerf-gpu/kerf/sim/wire"
)

// inMIG is a machine whose GPU 0 is in MIG mode, without instances.
func inMIG(t *testing.T, name string) *Model {
	t.Helper()
	mach, err := machine.Load(name)
	if err != nil {
		t.Fatal(err)
	}
	mach.GPUs[0].MIG, mach.GPUs[0].Instances = true, nil
	return New(mach, testDriver(t, "r615"))
}

func TestCreateInstance(t *testing.T) {
	m := inMIG(t, "h100x8")
	expect := func(what string, got, want error) {
		t.Helper()
		if !errors.Is(got, want) {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
	}
	create := func(profile uint64, start int) error {
		_, err := m.CreateGI(0, true, profile, start)
		return err
	}
	expect("by a user", func() error { _, err := m.CreateGI(0, false, 9, AnyStart); return err }(), wire.NoPermission)
	expect("without MIG mode", func() error { _, err := m.CreateGI(1, true, 9, AnyStart); return err }(),
		wire.NotSupported)
	expect("an unknown profile", create(77, AnyStart), wire.Invalid)
	expect("a place that is none", create(9, 1), wire.Invalid)
	expect("3g at 4", create(9, 4), nil)
	expect("1g on it", create(19, 5), wire.Insufficient)
	expect("7g", create(0, AnyStart), wire.Insufficient)
	expect("1g anywhere", create(19, AnyStart), nil)

	want := []Instance{{GI: 1, Instance: machine.Instance{Start: 4}}, {GI: 2, Instance: machine.Instance{Start: 0},
		Block: 1}}
	got, err := m.Instances(0)
	for i := range got {
		got[i].Profile = machine.Profile{}
	}
	if d := cmp.Diff(want, got); d != "" || err != nil {
		t.Errorf("instances (-want +got):\n%s%v", d, err)
	}

	id, err := m.Open(0, 100)
	expect("open", err, nil)
	_, err = m.CreateContext(id, 1, inA)
	expect("a context without a compute instance", err, wire.NotFound)
	ci, err := m.CreateCI(0, true, 1, Whole, AnyStart)
	expect("a compute instance", err, nil)
	_, err = m.CreateCI(0, true, 1, Whole, AnyStart)
	expect("a second one", err, wire.Insufficient)
	ctx, err := m.CreateContext(id, 1, inA)
	expect("a context", err, nil)
	_, err = m.Alloc(id, 41*gib, ctx, wire.KindLinear, inA)
	expect("more than the instance has", err, wire.OutOfMemory)
	expect("destroy while used", m.DestroyCI(0, true, 1, ci), wire.InUse)
	expect("destroy with a compute instance", m.DestroyGI(0, true, 1), wire.InUse)
	expect("the neighbour", m.DestroyGI(0, true, 2), nil)
	m.Close(id, 0)
	expect("by a user", m.DestroyCI(0, false, 1, ci), wire.NoPermission)
	expect("another compute instance", m.DestroyCI(0, true, 1, 1), wire.NotFound)
	before := made(t, m)
	expect("destroy", m.DestroyCI(0, true, 1, ci), nil)
	_, err = m.CreateCI(0, true, 1, Whole, AnyStart)
	expect("again", err, nil)
	if made(t, m) == before {
		t.Error("a compute instance that is made again looks like the one before")
	}
	expect("destroy", m.DestroyCI(0, true, 1, ci), nil)
	expect("destroy", m.DestroyGI(0, true, 1), nil)
	expect("destroy again", m.DestroyGI(0, true, 1), wire.NotFound)
	expect("7g", create(0, AnyStart), nil)
	if got, _ := m.Instances(0); len(got) != 1 || got[0].GI != 1 {
		t.Errorf("the id of a destroyed instance is not given again: %+v", got)
	}
}

func made(t *testing.T, m *Model) uint64 {
	t.Helper()
	list, err := m.Instances(0)
	if err != nil || len(list) == 0 || len(list[0].Computes) != 1 {
		t.Fatal(list, err)
	}
	return list[0].Computes[0].Made
}

// Random calls: the instances stay a legal set, ids tell them apart, and what could be made is refused only when
// the sums or the places say so, slice by slice.
func TestRandomInstances(t *testing.T) {
	for _, name := range []string{"a30x2", "h100x8", "rtxpro6000x4"} {
		t.Run(name, func(t *testing.T) {
			m := inMIG(t, name)
			hw, err := m.Hardware(0)
			if err != nil {
				t.Fatal(err)
			}
			r := rand.New(rand.NewPCG(1, 2))
			refused := 0
			for range 3000 {
				list, err := m.Instances(0)
				if err != nil {
					t.Fatal(err)
				}
				if len(list) > 0 && r.IntN(3) == 0 {
					in := list[r.IntN(len(list))]
					if err := m.DestroyGI(0, true, in.GI); err != nil {
						t.Fatal(err)
					}
					continue
				}
				p := hw.Model.Profiles[r.IntN(len(hw.Model.Profiles))]
				start := p.Starts[r.IntN(len(p.Starts))]
				want := room(hw.Model, list, p, start)
				id, err := m.CreateGI(0, true, p.ID, start)
				if (err == nil) != want || err != nil && !errors.Is(err, wire.Insufficient) {
					t.Fatalf("%s at %d next to %+v: %v, want room: %v", p.Name, start, list, err, want)
				}
				if err != nil {
					refused++
				} else if slices.ContainsFunc(list, func(in Instance) bool { return in.GI == id }) {
					t.Fatalf("id %d is given twice", id)
				}
			}
			if refused < 100 {
				t.Errorf("%d refusals are too few to be a test", refused)
			}
		})
	}
}

// room is the rule, slice by slice.
func room(model machine.Model, list []Instance, p machine.Profile, start int) bool {
	taken := map[int]int{}
	compute, same := 0, 0
	var engines, all [4]uint64
	for _, q := range model.Profiles {
		for i, n := range []uint64{q.Decoders, q.Encoders, q.JPEGs, q.OFAs} {
			all[i] = max(all[i], n)
		}
	}
	for _, in := range append(slices.Clone(list), Instance{Instance: machine.Instance{Profile: p, Start: start}}) {
		for s := range in.Profile.Size {
			taken[in.Start+s]++
		}
		compute += in.Profile.Slices
		if in.Profile.ID == p.ID {
			same++
		}
		for i, n := range []uint64{in.Profile.Decoders, in.Profile.Encoders, in.Profile.JPEGs, in.Profile.OFAs} {
			engines[i] += n
		}
	}
	for i := range engines {
		if engines[i] > all[i] {
			return false
		}
	}
	for _, n := range taken {
		if n > 1 {
			return false
		}
	}
	return compute <= model.ComputeSlices && same <= p.Max
}
