// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package machine_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// If both generations of the record are lost or damaged, no grant is lost where the driver knows the caps: what runs is
// taken from cgroups and driver, and nothing is granted twice. Only names are gone.
func TestLostRecord(t *testing.T) {
	t.Parallel()
	tests := map[string]func(data []byte) []byte{ // nil: the file is removed
		"removed":    func([]byte) []byte { return nil },
		"empty":      func([]byte) []byte { return []byte{} },
		"cut":        func(d []byte) []byte { return d[:len(d)/2] },
		"no JSON":    func([]byte) []byte { return []byte("\x00\xff garbage {{{") },
		"a digit":    func(d []byte) []byte { return bytes.Replace(d, []byte("4294967296"), []byte("4294967295"), 1) },
		"all zeroes": func(d []byte) []byte { return make([]byte, len(d)) },
	}
	for name, damage := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t, setup{hardware: "t4x4"})
			runs := m.four()
			checkInvariants(t, m)
			before := m.state()
			m.killAgent()
			m.damage("record.json", damage)
			m.damage("record.previous.json", damage)
			m.startAgent()
			m.ready()
			m.wantRecovered(before, runs)

			// A second restart reads what the first recovered.
			again := held(m.state())
			m.restartAgent()
			m.wantSame(again, runs)
			m.refused(flags("--gpus 2"))
		})
	}
}

// damage changes a file of the agent's; nil removes it.
func (m *machine) damage(name string, how func([]byte) []byte) {
	m.t.Helper()
	path := m.dir + "/" + name
	data, err := os.ReadFile(path)
	if err != nil {
		m.t.Fatal(err)
	}
	after := how(data)
	if bytes.Equal(data, after) {
		m.t.Fatalf("the damage changed nothing: %s", data)
	}
	if after == nil {
		err = os.Remove(path)
	} else {
		err = os.WriteFile(path, after, 0o600)
	}
	if err != nil {
		m.t.Fatal(err)
	}
}

// flip flips one bit of a file.
func flip(data []byte) []byte {
	out := bytes.Clone(data)
	out[len(out)*2/3] ^= 4
	return out
}

// settled waits until both generations of the record have the same grants.
func (m *machine) settled() {
	m.t.Helper()
	eventually(m.t, "two equal generations of the record", func() error {
		newest, err := os.ReadFile(m.dir + "/record.json")
		if err != nil {
			return err
		}
		previous, err := os.ReadFile(m.dir + "/record.previous.json")
		if err == nil && !bytes.Equal(newest, previous) {
			err = errors.New("they differ")
		}
		return err
	})
}

// One flipped bit in the newest record, or no newest record at all, changes nothing, also where no driver knows the
// caps. A grant that is watched still is.
func TestOneGenerationIsLost(t *testing.T) {
	t.Parallel()
	for name, damage := range map[string]func([]byte) []byte{
		"one bit": flip, "removed": func([]byte) []byte { return nil },
		"cut": func(d []byte) []byte { return d[:len(d)/2] },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newWatched(t, ", onOverCap: warn")
			within := m.run(flags("--memory 4GiB --name within"), load("--alloc 3GiB --hold 1h"))
			whole := m.run(flags("--gpus 1 --name whole"), load("--alloc 3GiB --hold 1h"))
			over := m.run(flags("--memory 4GiB --name over"), load("--alloc 6GiB --hold 1h"))
			for _, r := range []*run{within, whole, over} {
				r.loads(1)
			}
			before := held(m.state())
			m.settled()
			m.killAgent()
			m.damage("record.json", damage)
			m.startAgent()
			m.ready()
			m.wantSame(before, []*run{within, whole, over})
			m.settled()
			m.killAgent()
			m.damage("record.json", damage)
			m.write(watched(", onOverCap: kill"))
			m.startAgent()
			wantKilled(t, over)
			m.ready()
			if !within.running() || !whole.running() {
				t.Error("a grant within its cap ended")
			}
		})
	}
}

// The agent is killed at each step of a write, early and late. It comes back each time with what runs.
func TestKilledAtEachStepOfTheRecord(t *testing.T) {
	t.Parallel()
	for _, point := range []string{"record-after-temporary", "record-after-previous", "record-after-placed"} {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t, setup{hardware: "t4x4"})
			neighbour := m.run(flags("--memory 4GiB --name neighbour"), load("--alloc 3GiB --hold 1h"))
			neighbour.loads(1)
			before := held(m.state())
			for writes := range 4 { // the first of all, which the start makes, and some later ones
				m.killAgent()
				when := "exit"
				if writes > 0 {
					when = fmt.Sprintf("%d*off->exit", writes)
				}
				m.startAgent("KERF_FAILPOINTS=" + point + "=" + when)
				var last *run
				for i := 0; m.agent.running(); i++ {
					last = m.run(flags(fmt.Sprintf("--memory 1GiB --name w%d-%d", writes, i)), []string{"true"})
					eventually(t, "an end of it or of the agent", func() error {
						if last.running() && m.agent.running() {
							return errors.New("both run")
						}
						return nil
					})
				}
				m.agentCrashed()
				if last != nil {
					last.wait() // the agent may have left it frozen, until there was an agent again
				}
				eventually(t, "only the neighbour", func() error {
					if s := m.state(); len(s.Grants) != 1 {
						return fmt.Errorf("grants %+v", s.Grants)
					}
					return nil
				})
				m.wantSame(before, []*run{neighbour})
			}
			m.run(flags("--gpus 3"), hold()).granted()
			checkInvariants(t, m)
		})
	}
}

// wantRecovered compares amounts, GPUs and processes with those before; names and percents are lost.
func (m *machine) wantRecovered(before status, runs []*run) {
	m.t.Helper()
	type piece struct {
		Memory map[string]uint64
		PIDs   []int
		Level  string
	}
	pieces := func(s status) map[string]piece {
		all := map[string]piece{}
		for _, g := range s.Grants {
			p := piece{Memory: map[string]uint64{}, PIDs: g.PIDs, Level: g.Level}
			for _, f := range g.Shares {
				p.Memory[f.GPU] = f.Memory
			}
			all[g.ID] = p
		}
		return all
	}
	now := m.state()
	if d := cmp.Diff(pieces(before), pieces(now)); d != "" {
		m.t.Errorf("grants after the record was lost (-before +after):\n%s", d)
	}
	for _, g := range now.Grants {
		if !g.Recovered {
			m.t.Errorf("grant %s is %s, want recovered", g.ID, g.State)
		}
	}
	for _, r := range runs {
		if !r.running() {
			m.t.Errorf("%q ended: %v", r.cmd.Args, r.wait())
		}
	}
	checkInvariants(m.t, m)
}

// If neither driver nor library knows caps, a lost checkpoint leaves it unknown what the processes may use: then
// nothing more is granted on their GPU until they end.
func TestLostRecordOnAnOldDriver(t *testing.T) {
	t.Parallel()
	for _, grants := range []int{1, 2} {
		m := newWatched(t, "")
		var runs []*run
		for range grants {
			r := m.run(flags("--memory 1GiB --placement-policy spread"), load("--alloc 512MiB --hold 1h"))
			r.loads(1)
			runs = append(runs, r)
		}
		m.state()
		m.killAgent()
		m.damage("record.json", func([]byte) []byte { return nil })
		m.damage("record.previous.json", func([]byte) []byte { return nil })
		m.startAgent()
		if said := m.refused(flags("--memory 1GiB")); said == "" {
			t.Error("refused without a word")
		}
		for _, g := range m.state().Grants {
			if g.Level != "unknown" && g.Level != "none" {
				t.Errorf("%d grants: level %q is reserved for a grant that nothing is known of", grants, g.Level)
			}
		}
		for _, r := range runs {
			if !r.running() {
				t.Error("a program ended")
			}
			r.end()
		}
		if grants > 1 {
			m.restartAgent() // as the agent's reason says
		}
		m.noGrants()
		m.ready()
		m.run(flags("--gpus 4"), hold()).granted()
	}
}

// A record of a newer agent is not touched: the older one refuses to start, and says so.
func TestRecordOfANewerAgent(t *testing.T) {
	t.Parallel()
	m := newMachine(t, setup{hardware: "t4x4"})
	r := m.run(flags("--memory 1GiB --name kept"), load("--alloc 512MiB --hold 1h"))
	r.loads(1)
	before := held(m.state())
	m.killAgent()
	path := m.dir + "/record.json"
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	newer := regexp.MustCompile(`"schema": *`).ReplaceAll(bytes.TrimRight(good, "\n"), []byte("${0}9"))
	if bytes.Equal(good, newer) {
		t.Fatalf("no schema in the record: %s", good)
	}
	if err := os.WriteFile(path, newer, 0o600); err != nil {
		t.Fatal(err)
	}
	m.startAgent()
	if got := m.agent.wait(); got.code != 1 || !strings.Contains(got.err, "record") ||
		!strings.Contains(got.err, "newer") {
		t.Errorf("agent on a newer record: %v", got)
	}
	if now, err := os.ReadFile(path); err != nil || !bytes.Equal(now, newer) {
		t.Errorf("the record was touched: %v", err)
	}
	if err := os.WriteFile(path, good, 0o600); err != nil {
		t.Fatal(err)
	}
	m.startAgent()
	m.ready()
	m.wantSame(before, []*run{r})
}
