// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package listing

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/kerf-gpu/kerf/sharing"
)

const gib = sharing.GiB

// answers is a Kernel with the answers that a test gives it.
type answers struct {
	facts     map[int]Fact
	open      map[int]Answer
	retainers []Owner
	silent    bool
	asked     int // for open files and retainers
}

func (k *answers) Process(pid int) Fact {
	if f, ok := k.facts[pid]; ok {
		return f
	}
	return Fact{State: NoProcess}
}

func (k *answers) Open(pid int) Answer {
	k.asked++
	return k.open[pid]
}

func (k *answers) Retainers() ([]Owner, bool) {
	k.asked++
	return k.retainers, !k.silent
}

func alive(start uint64, o Owner) Fact { return Fact{State: Alive, Start: start, Owner: o} }

// TestStep follows pid 7 from look to look. Looks are at the times 100, 200 and so on.
func TestStep(t *testing.T) {
	running := func(start uint64, o Owner) Line {
		return Line{Kind: Running, Process: Process{7, start}, Owner: o}
	}
	a, gone := alive(50, "a"), Fact{State: NoProcess}
	type look struct {
		fact      Fact
		open      Answer
		retainers []Owner
		silent    bool
		closed    bool // the process is found without its file after the check
		want      Line
	}
	for name, looks := range map[string][]look{
		"one that runs": {
			{fact: a, open: Yes, want: running(50, "a")},
			{fact: a, want: running(50, "a")}, // it is not asked again
		},
		"unmanaged": {{fact: alive(50, ""), open: Yes, want: running(50, "")}},
		"it moves to another cgroup, and ends": {
			{fact: a, open: Yes, want: running(50, "a")},
			{fact: alive(50, "b"), want: running(50, "b")},
			{fact: gone, want: Line{Kind: Ended, Owner: "b"}},
		},
		"it ends, and a process that does not use the GPU has its number": {
			{fact: a, open: Yes, want: running(50, "a")},
			{fact: gone, want: Line{Kind: Ended, Owner: "a"}},
			{fact: alive(250, "b"), open: No, want: Line{Kind: Ended, Owner: "a"}},
			{fact: alive(250, "b"), open: No, want: Line{Kind: Ended, Owner: "a"}},
			{fact: alive(250, "b"), open: NotKnown, want: Line{}},
			{fact: gone, want: Line{Kind: Ended, Owner: "a"}},
		},
		"its number is given again between two looks": {
			{fact: a, open: Yes, want: running(50, "a")},
			{fact: alive(150, "b"), open: No, want: Line{Kind: Ended, Owner: "a"}},
		},
		"the one that has its number uses the GPU, too": {
			{fact: a, open: Yes, want: running(50, "a")},
			{fact: alive(150, "b"), open: Yes, want: Line{Suspects: []Owner{"b", "a"}}},
			{fact: alive(150, "b"), open: Yes, want: Line{Suspects: []Owner{"b", "a"}}},
			{fact: gone, retainers: []Owner{"a", "b"}, want: Line{Suspects: []Owner{"b", "a"}}},
			{fact: gone, retainers: []Owner{"c"}, want: Line{Suspects: []Owner{"b", "a"}}},
			{fact: gone, want: Line{Suspects: []Owner{"b", "a"}}},
			{fact: gone, retainers: []Owner{"a"}, want: Line{Kind: Ended, Owner: "a", Inferred: true}},
			{fact: alive(650, "a"), open: Yes, want: Line{Suspects: []Owner{"b", "a"}}},
			{fact: alive(650, "a"), open: No, retainers: []Owner{"b"},
				want: Line{Kind: Ended, Owner: "b", Inferred: true}},
		},
		"an unmanaged one that has its number uses the GPU, too": {
			{fact: a, open: Yes, want: running(50, "a")},
			{fact: alive(150, ""), open: Yes, want: Line{Suspects: []Owner{"", "a"}}},
			{fact: gone, want: Line{Suspects: []Owner{"", "a"}}},
		},
		"both are of one grant": {
			{fact: a, open: Yes, want: running(50, "a")},
			{fact: alive(150, "a"), open: Yes, want: Line{Kind: Ended, Owner: "a"}},
		},
		"both are unmanaged": {
			{fact: alive(50, ""), open: Yes, want: running(50, "")},
			{fact: alive(150, ""), open: Yes, want: Line{Kind: Unattributed}},
		},
		"it had the number back before its successor was seen": {
			{fact: a, open: Yes, want: running(50, "a")},
			{fact: gone, want: Line{Kind: Ended, Owner: "a"}},
			{fact: a, open: Yes, want: Line{Kind: Ended, Owner: "a"}}, // impossible, and harmless
		},
		"never seen, and one grant keeps it": {
			{fact: gone, retainers: []Owner{"b"}, want: Line{Kind: Ended, Owner: "b", Inferred: true}},
			{fact: gone, retainers: []Owner{"a", "b"}, want: Line{Kind: Ended, Owner: "b", Inferred: true}},
		},
		"never seen, and several may keep it": {
			{fact: gone, retainers: []Owner{"a", "b"}, want: Line{Kind: Unattributed}},
			{fact: gone, want: Line{Kind: Unattributed}},
			{fact: gone, retainers: []Owner{"b"}, silent: true, want: Line{Kind: Unattributed}},
			{fact: gone, retainers: []Owner{"b"}, want: Line{Kind: Ended, Owner: "b", Inferred: true}},
		},
		"never seen, and another one has the number": {
			{fact: alive(50, "b"), open: No, want: Line{Kind: Unattributed}},
			{fact: alive(50, "b"), open: Yes, want: Line{Suspects: []Owner{"b"}}},
			{fact: gone, retainers: []Owner{"a"}, want: Line{Suspects: []Owner{"b"}}},
			{fact: gone, retainers: []Owner{"b"}, want: Line{Kind: Ended, Owner: "b", Inferred: true}},
		},
		"never seen, unmanaged, ended": {
			{fact: alive(50, ""), open: Yes, want: running(50, "")},
			{fact: gone, retainers: []Owner{"b"}, want: Line{Kind: Unattributed}},
		},
		"younger than the entry": {
			{fact: Fact{}, want: Line{}},
			{fact: alive(101, "b"), open: Yes, want: Line{Suspects: []Owner{"b"}}},
		},
		"as old as the entry": {
			{fact: Fact{}, want: Line{}},
			{fact: alive(100, "b"), open: Yes, want: running(100, "b")},
		},
		"its files cannot be read": {
			{fact: a, open: NotKnown, want: Line{}},
			{fact: a, open: Yes, want: running(50, "a")},
			{fact: Fact{}, want: Line{}},
			{fact: a, want: running(50, "a")},
		},
		"it closes its files and lives on": {
			{fact: a, open: Yes, closed: true, want: running(50, "a")},
			{fact: a, open: No, want: Line{Kind: Ended, Owner: "a"}},
			{fact: a, open: NotKnown, want: Line{Suspects: []Owner{"a"}}},
			{fact: a, open: Yes, want: running(50, "a")},
			{fact: a, want: running(50, "a")},
			{fact: gone, want: Line{Kind: Ended, Owner: "a"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var l List
			for i, look := range looks {
				look.want.Entry = Entry{7, gib, true}
				k := &answers{facts: map[int]Fact{7: look.fact}, open: map[int]Answer{7: look.open},
					retainers: look.retainers,
					silent:    look.silent}
				got := l.Step(uint64(i+1)*100, []Entry{look.want.Entry}, k)
				if d := cmp.Diff([]Line{look.want}, got, cmpopts.EquateEmpty()); d != "" {
					t.Errorf("look %d (-want +got):\n%s", i, d)
				}
				if look.closed {
					l.Closed(got[0].Process)
				}
			}
		})
	}
}

// TestStepAsksLittle looks twice at processes that run: reading their files is expensive.
func TestStepAsksLittle(t *testing.T) {
	k := &answers{facts: map[int]Fact{1: alive(1, "a"), 2: alive(2, "b")}, open: map[int]Answer{1: Yes, 2: Yes}}
	var l List
	for range 3 {
		l.Step(100, []Entry{{PID: 1}, {PID: 2}}, k)
	}
	if k.asked != 2 {
		t.Errorf("asked %d times, want once for each", k.asked)
	}
}

// TestEntryThatComesBack is not taken for the one before: who had the number then is of no matter.
func TestEntryThatComesBack(t *testing.T) {
	k := &answers{facts: map[int]Fact{7: alive(50, "a")}, open: map[int]Answer{7: Yes}}
	var l List
	l.Step(100, []Entry{{PID: 7}}, k)
	l.Step(200, nil, k)
	l.Closed(Process{7, 50}) // it is not known any more
	k.facts[7] = alive(250, "b")
	if got := l.Step(300, []Entry{{PID: 7}}, k); got[0].Kind != Running || got[0].Owner != "b" {
		t.Errorf("%+v", got)
	}
}

func TestChargeOf(t *testing.T) {
	entry := func(bytes sharing.Bytes) Entry { return Entry{1, bytes, true} }
	most := Entry{1, ^sharing.Bytes(0), true}
	for name, c := range map[string]struct {
		lines []Line
		want  Charge
	}{
		"nothing": {nil, Charge{Known: true}},
		"others'": {[]Line{
			{Entry: entry(gib), Kind: Running, Owner: "x"}, {Entry: entry(gib), Kind: Ended, Owner: "x"},
			{Entry: entry(gib), Kind: Unattributed},
			{Entry: entry(gib), Kind: Running}, {Entry: entry(gib), Suspects: []Owner{"x", ""}},
			{Entry: Entry{PID: 3}, Kind: Running, Owner: "x"},
		}, Charge{Known: true}},
		"its own": {[]Line{
			{Entry: entry(gib), Kind: Running, Owner: "a"}, {Entry: entry(2 * gib), Kind: Ended, Owner: "a"},
			{Entry: entry(4 * gib), Kind: Ended, Owner: "b", Inferred: true},
		}, Charge{Bytes: 7 * gib, Ended: 6 * gib, Inferred: 4 * gib, Known: true}},
		"an amount that is unknown": {[]Line{{Entry: entry(gib), Kind: Running, Owner: "a"},
			{Entry: Entry{PID: 3}, Kind: Ended, Owner: "a"}}, Charge{}},
		"one that may be its own":  {[]Line{{Entry: entry(gib), Suspects: []Owner{"x", "b"}}}, Charge{}},
		"one that may be anyone's": {[]Line{{Entry: entry(gib)}}, Charge{}},
		"more than there is to count": {[]Line{{Entry: most, Kind: Running, Owner: "a"},
			{Entry: entry(1), Kind: Ended, Owner: "a"}}, Charge{}},
	} {
		if got := ChargeOf(c.lines, "a", "b"); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
	lines := []Line{{Entry: entry(gib), Kind: Unattributed}, {Entry: Entry{PID: 3}, Kind: Unattributed},
		{Entry: entry(gib), Kind: Running}, {Entry: entry(2 * gib), Kind: Unattributed}}
	if got := SumUnattributed(lines); got != 3*gib {
		t.Errorf("unowned: %s", got)
	}
}
