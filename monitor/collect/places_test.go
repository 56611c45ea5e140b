// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"bytes"
	"slices"
	"testing"
	"time"

	"github.com/kerf-gpu/kerf/monitor/attribution"
	"github.com/kerf-gpu/kerf/sharing"
)

// on has one GPU with processes of 1 byte each.
func (f *fakeNode) on(pids ...int) {
	d := attribution.Device{Memory: attribution.Known(sharing.Bytes(len(pids))), Listed: true}
	for _, pid := range pids {
		d.Processes = append(d.Processes, attribution.Process{PID: pid, GI: attribution.NoInstance,
			Memory: attribution.Known(sharing.Bytes(1))})
	}
	f.readings = []Reading{{Info: Info{UUID: "GPU-0"}, Device: d}}
}

// TestWhoseAPidIs follows pids over their processes' lives: each is looked at once, and again when its process ended.
func TestWhoseAPidIs(t *testing.T) {
	f := &fakeNode{grants: map[string]Grant{"a": grant("a", "GPU-0"), "b": grant("b", "GPU-0")},
		dirs: map[int]string{7: "/cg/a", 8: "/cg/b"}}
	now := time.Unix(1_000_000, 0)
	h := NewBroadcaster()
	c, _ := f.collector(&bytes.Buffer{})
	c.opts.Broadcaster, c.opts.Now = h, func() time.Time { return now }
	steps := []struct {
		name    string
		do      func()
		a, b, s int // processes of the grants, and unmanaged processes
		asked   int
	}{
		{"both are new", func() { f.on(7, 8) }, 1, 1, 0, 2},
		{"both are known", func() {}, 1, 1, 0, 0},
		{"a pid is another's", func() { f.ended, f.dirs[7] = []int{7}, "/user" }, 0, 1, 1, 1},
		{"a container is created again, same pid", func() { f.ended, f.dirs[8] = []int{8}, "/cg/a" }, 1, 0, 1, 1},
		{"one leaves the GPU", func() { f.on(8) }, 1, 0, 0, 0},
		{"and comes back as someone", func() { f.on(7, 8); f.dirs[7] = "/cg/b" }, 1, 1, 0, 1},
		{"root moves a process", func() { f.dirs[8] = "/cg/b"; now = now.Add(2 * placeKept) }, 0, 2, 0, 2},
		{"the clock jumps back", func() { now = now.Add(-time.Hour) }, 0, 2, 0, 0},
		{"no descriptors are left for new ones", func() { f.closed = true; f.dirs[9] = "/cg/a"; f.on(7, 8, 9) }, 1, 2,
			0, 1},
		{"so that they are read each time", func() { f.dirs[9] = "/cg/b" }, 0, 3, 0, 1},
		{"one cannot be known", func() { delete(f.dirs, 9) }, 0, 2, 0, 1},
	}
	for _, s := range steps {
		f.asked = 0
		s.do()
		now = now.Add(time.Second)
		c.Cycle(t.Context())
		u := h.Latest().GPUs[0].Use
		if a, b := u.Grants[0].Processes, u.Grants[1].Processes; a != s.a || b != s.b || u.Unmanaged.Processes != s.s ||
			f.asked != s.asked {
			t.Errorf("%s: %d and %d processes, %d unmanaged, %d looks; want %d, %d, %d, %d", s.name, a, b,
				u.Unmanaged.Processes, f.asked, s.a, s.b, s.s, s.asked)
		}
	}
	f.on()
	c.Cycle(t.Context())
	if len(f.watched) != 0 || len(c.places.known) != 0 {
		t.Errorf("after the last one: %v are held, %v known", f.watched, c.places.known)
	}
}

// TestProcessesInCommon: snapshots have a GPU's processes in common while neither they nor their cgroups change, and
// none changes what another has.
func TestProcessesInCommon(t *testing.T) {
	f := &fakeNode{grants: map[string]Grant{"a": grant("a", "GPU-0")}, dirs: map[int]string{7: "/cg/a", 8: "/cg/a",
		9: "/user"}}
	f.on(7, 8)
	c, h := f.collector(&bytes.Buffer{})
	var before []attribution.Process
	for _, s := range []struct {
		name   string
		do     func()
		common bool
		dirs   []string
	}{
		{"at first", func() {}, false, []string{"/cg/a", "/cg/a"}},
		{"as before", func() {}, true, []string{"/cg/a", "/cg/a"}},
		{"one is in another cgroup", func() { f.ended, f.dirs[8] = []int{8}, "/cg/b" }, false,
			[]string{"/cg/a", "/cg/b"}},
		{"as before, again", func() {}, true, []string{"/cg/a", "/cg/b"}},
		{"they are reported again", func() { f.on(7, 8) }, false, []string{"/cg/a", "/cg/b"}},
		{"one is another", func() { f.on(7, 9) }, false, []string{"/cg/a", "/user"}},
		{"none", func() { f.on() }, false, nil},
	} {
		was := slices.Clone(before)
		s.do()
		c.Cycle(t.Context())
		got := h.Latest().GPUs[0].Device.Processes
		var dirs []string
		for _, p := range got {
			dirs = append(dirs, p.Cgroup)
		}
		if common := len(got) > 0 && len(before) > 0 && &got[0] == &before[0]; common != s.common ||
			!slices.Equal(dirs, s.dirs) {
			t.Errorf("%s: in common: %v, in %q", s.name, common, dirs)
		}
		if !slices.Equal(was, before) {
			t.Errorf("%s: the snapshot before has %+v now, and had %+v", s.name, before, was)
		}
		for _, p := range f.readings[0].Device.Processes {
			if p.Cgroup != "" {
				t.Errorf("%s: what the source reported is changed: %+v", s.name, p)
			}
		}
		before = got
	}
}
