// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package members

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kerf-gpu/kerf/internal/libkerf"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/backend/libkerf/overhead"
)

// proc is a process as the fake kernel has it.
type proc struct {
	start  uint64
	inner  int
	space  uint64
	offset time.Duration
	// err is of each read, and clock of the boot offset.
	err, clock error
}

// slot is what the program itself writes. A fraction of a tick is lost on either side.
func (p proc) slot() libkerf.Process {
	return libkerf.Process{PID: p.inner, Start: uint64(int64(p.start) + int64(p.offset/tick)), Space: p.space}
}

// kernel is a fake Kernel, which counts reads of start times.
type kernel struct {
	all    map[int]proc
	starts int
}

func (k *kernel) of(pid int) (proc, error) {
	p, ok := k.all[pid]
	if !ok {
		return proc{}, fmt.Errorf("process %d: %w", pid, sharing.ErrNotFound)
	}
	return p, p.err
}

func (k *kernel) Start(pid int) (uint64, error) { k.starts++; p, err := k.of(pid); return p.start, err }

func (k *kernel) InnerPID(pid int) (int, error) { p, err := k.of(pid); return p.inner, err }

func (k *kernel) PIDSpace(pid int) (uint64, error) { p, err := k.of(pid); return p.space, err }

func (k *kernel) BootOffset(pid int) (time.Duration, error) {
	p, err := k.of(pid)
	return p.offset, errors.Join(err, p.clock)
}

func (k *kernel) pids() []int { return slices.Sorted(maps.Keys(k.all)) }

// TestWhoseSlot compares one slot with one process.
func TestWhoseSlot(t *testing.T) {
	const host, inner, space = 700, 7, 5
	plain := proc{start: 1000, inner: inner, space: space}
	ahead, behind, odd, hidden := plain, plain, plain, plain
	ahead.offset, behind.offset, odd.offset = 5000*time.Second, -3*time.Second, 5*time.Second+4*time.Millisecond
	hidden.offset, hidden.clock = 5000*time.Second, sharing.ErrUnsupported
	for name, tt := range map[string]struct {
		p    proc
		slot libkerf.Process
		want bool
	}{
		"its own":       {plain, plain.slot(), true},
		"another PID":   {plain, libkerf.Process{PID: host, Start: 1000, Space: space}, false},
		"another start": {plain, libkerf.Process{PID: inner, Start: 1001, Space: space}, false},
		"another PID namespace": {plain, libkerf.Process{PID: inner, Start: 1000, Space: space + 1},
			false},
		"of a program that reads no namespace": {plain, libkerf.Process{PID: inner, Start: 1000}, true},
		"in a time namespace": {ahead, libkerf.Process{PID: inner, Start: 501000, Space: space},
			true},
		"the agent's time in a time namespace":  {ahead, plain.slot(), false},
		"in a time namespace that is behind":    {behind, libkerf.Process{PID: inner, Start: 700, Space: space}, true},
		"a fraction of a tick, rounded down":    {odd, libkerf.Process{PID: inner, Start: 1500, Space: space}, true},
		"a fraction of a tick, one tick later":  {odd, libkerf.Process{PID: inner, Start: 1501, Space: space}, true},
		"a fraction of a tick, two ticks later": {odd, libkerf.Process{PID: inner, Start: 1502, Space: space}, false},
		"a clock that is not known":             {hidden, ahead.slot(), true},
		"such a clock, and another namespace":   {hidden, libkerf.Process{PID: inner, Start: 501000, Space: 9}, false},
		"of an agent that died in Bury": {plain, libkerf.Process{PID: 1<<22 - 1, Start: 1<<42 - 1,
			Space: space}, false},
	} {
		t.Run(name, func(t *testing.T) {
			m := New(&kernel{all: map[int]proc{host: tt.p}})
			ended, err := m.Scan([]int{host}, []libkerf.Process{tt.slot})
			who, known := m.Of(tt.slot)
			want := overhead.Process{PID: host, Start: tt.p.start}
			if err != nil || ended[tt.slot] == tt.want || known != tt.want || known && who != want {
				t.Errorf("ended %v, process %+v (%v), error %v", ended[tt.slot], who, known, err)
			}
		})
	}
}

// TestEnd follows a slot through what may become of its process.
func TestEnd(t *testing.T) {
	p := proc{start: 1000, inner: 7}
	slots := []libkerf.Process{p.slot()}
	for name, tt := range map[string]struct {
		change func(k *kernel)
		pids   []int
		ended  bool
		err    error
	}{
		"it runs":              {func(*kernel) {}, []int{70}, false, nil},
		"it has ended":         {func(k *kernel) { delete(k.all, 70) }, []int{}, true, nil},
		"it ends in between":   {func(k *kernel) { delete(k.all, 70) }, []int{70}, true, nil},
		"it leaves the grant":  {func(*kernel) {}, []int{71}, true, nil},
		"its PID is another's": {func(k *kernel) { k.all[70] = proc{start: 2000, inner: 7} }, []int{70}, true, nil},
		"it cannot be read now": {func(k *kernel) { k.all[70] = proc{err: sharing.ErrUnavailable} }, []int{70}, false,
			sharing.ErrUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			k := &kernel{all: map[int]proc{70: p, 71: {start: 3, inner: 8}}}
			m := New(k)
			if ended, err := m.Scan(k.pids(), slots); err != nil || ended[slots[0]] {
				t.Fatalf("%v %v", ended, err)
			}
			tt.change(k)
			ended, err := m.Scan(tt.pids, slots)
			if ended[slots[0]] != tt.ended || !errors.Is(err, tt.err) {
				t.Errorf("ended %v, error %v", ended[slots[0]], err)
			}
			if who, ok := m.Of(slots[0]); err == nil && (!ok || who.PID != 70) {
				t.Errorf("it is not known any more whose it was: %+v", who)
			}
			if m.Forget(slots[0]); len(m.Slots()) > 0 {
				t.Errorf("%v are left", m.Slots())
			}
		})
	}
	k := &kernel{all: map[int]proc{70: {err: sharing.ErrDenied}}}
	if _, err := New(k).Scan([]int{70}, slots); !errors.Is(err, sharing.ErrDenied) {
		t.Errorf("while a process cannot be read, an unknown slot is judged: %v", err)
	}
}

// TestNote finds the slot of a process that came after the scan.
func TestNote(t *testing.T) {
	p := proc{start: 1000, inner: 7, offset: 50 * time.Second}
	k := &kernel{all: map[int]proc{70: p}}
	m := New(k)
	if _, err := m.Scan(nil, nil); err != nil {
		t.Fatal(err)
	}
	if _, known := m.Of(p.slot()); known {
		t.Error("known before it was seen")
	}
	m.Add(overhead.Process{PID: 70, Start: 999}) // its PID is another's by now
	if _, known := m.WithPID(70); known {
		t.Error("the process of another time is taken")
	}
	who := overhead.Process{PID: 70, Start: 1000}
	m.Add(who)
	if got, known := m.WithPID(70); !known || got != who {
		t.Errorf("%+v %v", got, known)
	}
	if got, known := m.Of(p.slot()); !known || got != who {
		t.Errorf("%+v %v", got, known)
	}
	if d := cmp.Diff(map[overhead.Process]libkerf.Process{who: p.slot()}, m.Slots()); d != "" {
		t.Error(d)
	}
}

// TestReadsAreBounded has a tenant write slots of processes that never were, in a grant with many processes.
func TestReadsAreBounded(t *testing.T) {
	const processes, slots, scans = 4000, 20, 80
	k := &kernel{all: map[int]proc{}}
	var own []libkerf.Process
	for pid := range processes {
		k.all[pid] = proc{start: 1000, inner: pid, space: 1}
		if pid < slots {
			own = append(own, k.all[pid].slot())
		}
	}
	m, pids := New(k), k.pids()
	late := 0
	for scan := range scans {
		forged := libkerf.Process{PID: 9, Start: uint64(scan), Space: 1}
		ended, err := m.Scan(pids, append([]libkerf.Process{forged}, own...))
		if err != nil {
			t.Fatal(err)
		}
		if !ended[forged] {
			late++
		}
		for _, s := range own {
			if who, known := m.Of(s); ended[s] || !known || who.PID != s.PID {
				t.Fatalf("scan %d: slot of process %d: ended %v, process %+v", scan, s.PID, ended[s], who)
			}
		}
	}
	if most := processes + scans*(slots+readsPerScan); k.starts > most {
		t.Errorf("%d reads in %d scans, want no more than %d", k.starts, scans, most)
	}
	if late == 0 || late == scans {
		t.Errorf("%d of %d forged slots waited", late, scans)
	}
	// A real slot that waits for its turn is found, and so is its end.
	next := k.all[slots].slot()
	wait := func(ended bool) {
		t.Helper()
		for range processes/readsPerScan + 1 {
			got, err := m.Scan(pids, append([]libkerf.Process{next}, own...))
			if err != nil {
				t.Fatal(err)
			}
			if _, known := m.Of(next); known && got[next] == ended {
				return
			}
		}
		t.Errorf("slot of process %d: never seen with ended %v", slots, ended)
	}
	wait(false)
	pids = slices.DeleteFunc(pids, func(pid int) bool { return pid == slots })
	wait(true)
}

// TestCacheIsBounded has many short processes use a GPU, one after the other.
func TestCacheIsBounded(t *testing.T) {
	k := &kernel{all: map[int]proc{}}
	m := New(k)
	for i := range 1000 {
		k.all = map[int]proc{i: {start: 7, inner: i}}
		if _, err := m.Scan(k.pids(), nil); err != nil {
			t.Fatal(err)
		}
		m.Add(overhead.Process{PID: i, Start: 7})
	}
	if len(m.inner) != 1 || len(m.noted) != 1 {
		t.Errorf("%d and %d processes are kept", len(m.inner), len(m.noted))
	}
}

// TestAgainstNaive runs random processes and compares each scan with one that reads everything.
func TestAgainstNaive(t *testing.T) {
	for seed := range uint64(200) {
		rnd := rand.New(rand.NewPCG(seed, 11))
		k := &kernel{all: map[int]proc{}}
		m := New(k)
		slots := map[libkerf.Process]int{}
		for scan := range 60 {
			switch pid := rnd.IntN(12); rnd.IntN(4) {
			case 0:
				delete(k.all, pid)
			case 1:
				k.all[pid] = proc{start: uint64(1000 + scan), inner: rnd.IntN(4), space: uint64(rnd.IntN(2) + 1),
					offset: time.Duration(rnd.IntN(3)) * time.Second}
			case 2:
				if p, ok := k.all[pid]; ok {
					slots[p.slot()] = pid
				}
			case 3:
				slots[libkerf.Process{PID: rnd.IntN(4), Start: uint64(1000 + rnd.IntN(scan+1)),
					Space: uint64(rnd.IntN(3))}] = pid
			}
			ended, err := m.Scan(k.pids(), slices.Collect(maps.Keys(slots)))
			if err != nil {
				t.Fatal(err)
			}
			for slot := range slots {
				runs := false
				for _, p := range k.all {
					own := p.slot()
					runs = runs || own.PID == slot.PID && own.Start == slot.Start &&
						(slot.Space == 0 || own.Space == slot.Space)
				}
				if ended[slot] == runs {
					t.Fatalf("seed %d, scan %d: slot %+v has ended %v, and its process runs: %v", seed, scan, slot,
						ended[slot], runs)
				}
			}
			for slot := range slots {
				if ended[slot] && rnd.IntN(2) == 0 {
					delete(slots, slot)
					m.Forget(slot)
				}
			}
		}
	}
}
