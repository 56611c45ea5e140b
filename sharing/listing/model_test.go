// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package listing

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/kerf-gpu/kerf/sharing"
)

// machine is a naive model of a kernel and a driver: processes with few pids, and memory that lives as long as a
// process has a descriptor of it.
type machine struct {
	rand   *rand.Rand
	clock  uint64
	living map[int]*program // by pid
	memory []*client
	// unread are the pids that cannot be read at this look.
	unread map[int]bool
}

type program struct {
	Process
	grant Owner
}

// client is memory, who made it, and who has its descriptor.
type client struct {
	maker   program
	bytes   sharing.Bytes
	holders map[*program]bool
	seen    bool // while its maker lived, had it open, and could be read
}

func (m *machine) open(p *program) bool {
	return slices.ContainsFunc(m.memory, func(c *client) bool { return c.holders[p] })
}

// Process, Open and Retainers implement Kernel.
func (m *machine) Process(pid int) Fact {
	p := m.living[pid]
	switch {
	case m.unread[pid]:
		return Fact{}
	case p == nil:
		return Fact{State: NoProcess}
	}
	return Fact{State: Alive, Start: p.Start, Owner: p.grant}
}

func (m *machine) Open(pid int) Answer {
	switch p := m.living[pid]; {
	case m.unread[pid]:
		return NotKnown
	case p != nil && m.open(p):
		return Yes
	}
	return No
}

func (m *machine) Retainers() (grants []Owner, known bool) {
	listed := m.entries()
	for pid, p := range m.living {
		has := slices.ContainsFunc(listed, func(e Entry) bool { return e.PID == pid })
		if !has && m.open(p) && p.grant != "" && !slices.Contains(grants, p.grant) {
			grants = append(grants, p.grant)
		}
	}
	return grants, len(m.unread) == 0
}

func (m *machine) entries() []Entry {
	sum := map[int]sharing.Bytes{}
	for _, c := range m.memory {
		sum[c.maker.PID] += c.bytes
	}
	var out []Entry
	for _, pid := range slices.Sorted(maps.Keys(sum)) {
		out = append(out, Entry{pid, sum[pid], true})
	}
	return out
}

// truth is what grants hold by the entries of a pid.
func (m *machine) truth(pid int) map[Owner]*client {
	out := map[Owner]*client{}
	for _, c := range m.memory {
		if c.maker.PID == pid && (out[c.maker.grant] == nil || c.seen) {
			out[c.maker.grant] = c
		}
	}
	return out
}

// sweep frees memory that no process has a descriptor of.
func (m *machine) sweep() {
	m.memory = slices.DeleteFunc(m.memory, func(c *client) bool { return len(c.holders) == 0 })
}

func (m *machine) any() *program {
	all := slices.Sorted(maps.Keys(m.living))
	if len(all) == 0 {
		return nil
	}
	return m.living[all[m.rand.IntN(len(all))]]
}

// act does one thing at random and returns its name.
func (m *machine) act() string {
	m.clock++
	p := m.any()
	switch what := m.rand.IntN(10); {
	case p == nil || what < 3:
		pid := 1 + m.rand.IntN(6)
		if m.living[pid] != nil {
			return "nothing"
		}
		grant := []Owner{"", "a", "b"}[m.rand.IntN(3)]
		m.living[pid] = &program{Process{pid, m.clock}, grant}
		return fmt.Sprintf("start %d in %q", pid, grant)
	case what < 5:
		m.memory = append(m.memory, &client{maker: *p, bytes: sharing.Bytes(1 + m.rand.IntN(9)),
			holders: map[*program]bool{p: true}})
		return fmt.Sprintf("%d uses the GPU", p.PID)
	case what < 7:
		pid := 1 + m.rand.IntN(6)
		if m.living[pid] != nil {
			return "nothing"
		}
		child := &program{Process{pid, m.clock}, p.grant}
		m.living[pid] = child
		for _, c := range m.memory {
			if c.holders[p] {
				c.holders[child] = true
			}
		}
		return fmt.Sprintf("%d forks %d", p.PID, pid)
	case what < 9:
		delete(m.living, p.PID)
		for _, c := range m.memory {
			delete(c.holders, p)
		}
		m.sweep()
		return fmt.Sprintf("%d ends", p.PID)
	default:
		for _, c := range m.memory {
			delete(c.holders, p)
		}
		m.sweep()
		return fmt.Sprintf("%d closes its files", p.PID)
	}
}

// look makes one check and compares it with the truth.
func (m *machine) look(l *List) error {
	entries := m.entries()
	lines := l.Step(m.clock, entries, m)
	if len(lines) != len(entries) {
		return fmt.Errorf("%d lines for %d entries", len(lines), len(entries))
	}
	for _, c := range m.memory {
		p := m.living[c.maker.PID]
		c.seen = c.seen || p != nil && p.Process == c.maker.Process && !m.unread[c.maker.PID] && m.open(p)
	}
	for i, line := range lines {
		if err := m.check(line, entries[i]); err != nil {
			return fmt.Errorf("pid %d: %+v: %w", entries[i].PID, line, err)
		}
		if p := m.living[line.Process.PID]; line.Kind == Running && !m.open(p) {
			l.Closed(line.Process) // as one finds out who is to signal it
		}
	}
	return nil
}

func (m *machine) check(line Line, e Entry) error {
	if line.Entry != e {
		return fmt.Errorf("it is of %+v", e)
	}
	truth := m.truth(e.PID)
	switch line.Kind {
	case Running:
		if p := m.living[e.PID]; p == nil || p.Process != line.Process || p.grant != line.Owner {
			return fmt.Errorf("such a process does not run")
		}
		if len(truth) != 1 || truth[line.Owner] == nil {
			return fmt.Errorf("it is charged with what %v made", truth)
		}
	case Ended:
		if !line.Inferred && (len(truth) != 1 || truth[line.Owner] == nil) {
			return fmt.Errorf("its grant is charged with what %v made", truth)
		}
		if line.Owner == "" {
			return fmt.Errorf("it is charged to no one")
		}
	case Unattributed:
		for grant, c := range truth {
			if grant != "" && c.seen {
				return fmt.Errorf("grant %q made it, and that was seen", grant)
			}
		}
	case Unclear:
		if len(line.Suspects) == 0 && len(m.unread) == 0 {
			return fmt.Errorf("all could be read")
		}
		for grant, c := range truth {
			if grant != "" && c.seen && !line.May(grant) {
				return fmt.Errorf("grant %q made some of it, and is not suspected", grant)
			}
		}
	}
	return nil
}

// TestAgainstAMachine has processes start, fork, end and take each other's pids at random, and compares each check with
// the truth. Some processes cannot be read now and then.
func TestAgainstAMachine(t *testing.T) {
	for seed := range uint64(300) {
		m := &machine{rand: rand.New(rand.NewPCG(seed, 1)), living: map[int]*program{}, unread: map[int]bool{}}
		var l List
		var story []string
		for range 200 {
			story = append(story, m.act())
			clear(m.unread)
			if seed%2 == 1 && m.rand.IntN(4) == 0 {
				m.unread[1+m.rand.IntN(6)] = true
			}
			if err := m.look(&l); err != nil {
				t.Fatalf("seed %d, after %q: %v", seed, story[max(0, len(story)-20):], err)
			}
		}
	}
}
