// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package deviceplugin

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kerf-gpu/kerf/sharing"
)

func gpus(numa ...int) []Unit {
	var out []Unit
	for i, n := range numa {
		out = append(out, Unit{GPU: uuid(i), NUMA: n, GiB: 10})
	}
	return out
}

func uuid(i int) sharing.GPURef {
	return sharing.GPURef{UUID: sharing.GPUID(fmt.Sprintf("GPU-00000000-0000-0000-0000-%012d", i))}
}

func ref(name string) sharing.ContainerRef {
	return sharing.ContainerRef{Namespace: "ns", Pod: name, Container: "main"}
}

// listOf decides for a sound node without containers.
func listOf(t testing.TB, resource string, units []Unit) *list {
	t.Helper()
	inv, err := Inventory{Units: units, Memory: true, Percent: true, Whole: true}.checked()
	if err != nil {
		t.Fatal(err)
	}
	return decide(view{resource: resource, inv: inv, known: true})
}

func TestAnswer(t *testing.T) {
	memory := listOf(t, sharing.ResourceMemory, gpus(0, 1))
	percent := listOf(t, sharing.ResourcePercent, gpus(0))
	whole := listOf(t, sharing.ResourceGPU, gpus(0, 0, 1, NoNUMA))
	sick := listOf(t, sharing.ResourceMemory, gpus(0))
	for i := range sick.devices {
		sick.devices[i].healthy = false
	}
	for name, tc := range map[string]struct {
		list *list
		ids  []string
		want []string
		err  string
	}{
		"memory": {list: memory, ids: []string{"u0003", "u0020", "u0001"},
			want: []string{"kerf.dev/guard=armed", "kerf.dev/ask=gpu-memory-gib:3"}},
		"percent": {list: percent, ids: []string{"u0100"},
			want: []string{"kerf.dev/guard=armed", "kerf.dev/ask=gpu-percent:1"}},
		"unhealthy": {list: sick, ids: []string{"u0001"},
			want: []string{"kerf.dev/guard=armed", "kerf.dev/ask=gpu-memory-gib:1"}},
		"whole of one node": {list: whole, ids: []string{"g03", "g02"},
			want: []string{"kerf.dev/guard=armed", "kerf.dev/ask=gpu:2", "kerf.dev/numa=0:2"}},
		"whole of two nodes": {list: whole, ids: []string{"g04", "g02"},
			want: []string{"kerf.dev/guard=armed", "kerf.dev/ask=gpu:2", "kerf.dev/numa=0:1",
				"kerf.dev/numa=1:1"}},
		"whole without a node": {list: whole, ids: []string{"g01"},
			want: []string{"kerf.dev/guard=armed", "kerf.dev/ask=gpu:1"}},
		"all of it": {list: whole, ids: []string{"g01", "g02", "g03", "g04"},
			want: []string{"kerf.dev/guard=armed", "kerf.dev/ask=gpu:4", "kerf.dev/numa=0:2",
				"kerf.dev/numa=1:1"}},
		"none":                {list: memory, err: "without an id"},
		"empty":               {list: memory, ids: []string{""}, err: "is no id"},
		"unknown":             {list: memory, ids: []string{"u0001", "u0021"}, err: `"u0021" is no id`},
		"another resource's":  {list: memory, ids: []string{"g01"}, err: `"g01" is no id`},
		"a GPU":               {list: whole, ids: []string{uuid(0).String()}, err: `"GPU-`},
		"another form":        {list: memory, ids: []string{"u1"}, err: `"u1" is no id`},
		"twice":               {list: memory, ids: []string{"u0002", "u0001", "u0002"}, err: `"u0002" was named twice`},
		"more than there are": {list: whole, ids: []string{"g01", "g02", "g03", "g04", "g01"}, err: "the 4 there are"},
		"control characters":  {list: memory, ids: []string{"u0001\x1b[2J\n"}, err: `\x1b[2J\n`},
	} {
		t.Run(name, func(t *testing.T) {
			in := slices.Clone(tc.ids)
			got, err := tc.list.answer(in)
			if (err != nil) != (tc.err != "") || err != nil && (!strings.Contains(err.Error(), tc.err) ||
				!errors.Is(err, sharing.ErrInvalid)) {
				t.Fatalf("error %v, want %q", err, tc.err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("names (-want +got):\n%s", diff)
			}
			if !slices.Equal(in, tc.ids) {
				t.Errorf("the ids were changed: %v", in)
			}
			if err != nil {
				return
			}
			// The runtime's side must be able to read it, and any order must be the same answer.
			if _, err := sharing.AdmittedBy(got); err != nil {
				t.Errorf("read again: %v", err)
			}
			slices.Reverse(in)
			if again, err := tc.list.answer(in); err != nil || !slices.Equal(again, got) {
				t.Errorf("in another order: %v, %v", again, err)
			}
		})
	}
}

func TestID(t *testing.T) {
	for _, r := range fixed() {
		for _, n := range []int{1, 9, 10, 99, 100, 9999, MaxIDs} {
			if got, ok := number(r, id(r, n)); !ok || got != n {
				t.Errorf("%s %d: %q is read as %d, %v", r, n, id(r, n), got, ok)
			}
		}
	}
	for _, s := range []string{"", "u", "u0", "u0000", "u1", "u00001", "u-001", "u+001", "u10001",
		"u99999999999999999999", "x0001", "u0x01", "u0001 "} {
		if n, ok := number(sharing.ResourceMemory, s); ok {
			t.Errorf("%q is read as %d", s, n)
		}
	}
}

func FuzzNumber(f *testing.F) {
	for _, s := range []string{"u0001", "g01", "u10000", "g-1", ""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		for _, r := range fixed() {
			if n, ok := number(r, s); ok && (id(r, n) != s || n < 1 || n > MaxIDs) {
				t.Errorf("%s: %q is read as %d", r, s, n)
			}
		}
	})
}

func TestInventory(t *testing.T) {
	big := []Unit{{GPU: uuid(0), GiB: MaxIDs}, {GPU: uuid(1), GiB: 1}}
	many := make([]Unit, MaxIDs/100+1)
	for i := range many {
		many[i] = Unit{GPU: uuid(i)}
	}
	for name, tc := range map[string]struct {
		units []Unit
		err   string
	}{
		"good":               {units: gpus(0, 1)},
		"as many as can be":  {units: big[:1]},
		"no units":           {err: "are missing"},
		"one twice":          {units: append(gpus(0), gpus(0)...), err: "not distinct"},
		"one without a name": {units: []Unit{{GiB: 1}}, err: "not distinct"},
		"negative":           {units: []Unit{{GPU: uuid(0), GiB: -1}}, err: "no number of GiB"},
		"too much memory":    {units: big, err: "kerf.dev/gpu-memory-gib"},
		"too many GPUs":      {units: many, err: "kerf.dev/gpu-percent"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Inventory{Units: tc.units}.checked()
			if (err != nil) != (tc.err != "") || err != nil && (!strings.Contains(err.Error(), tc.err) ||
				!errors.Is(err, sharing.ErrInvalid)) {
				t.Errorf("error %v, want %q", err, tc.err)
			}
		})
	}
	// The order in which the driver lists GPUs is not in the ids.
	units := gpus(1, 0, NoNUMA, 0, 99)
	first := listOf(t, sharing.ResourceGPU, units)
	slices.Reverse(units)
	if again := listOf(t, sharing.ResourceGPU, units); !first.equal(again) {
		t.Errorf("ids depend on the order of the GPUs:\n%v\n%v", first.devices, again.devices)
	}
}

// The ids of 64 containers' calls are at hand in a list of the size of a large node.
func BenchmarkAnswer(b *testing.B) {
	l := listOf(b, sharing.ResourceMemory, []Unit{{GPU: uuid(0), GiB: MaxIDs}})
	ids := make([]string, 0, MaxIDs)
	for _, d := range l.devices {
		ids = append(ids, d.id)
	}
	for _, n := range []int{1, 80, MaxIDs} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := l.answer(ids[:n]); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
