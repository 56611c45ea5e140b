// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package reactive

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kerf-gpu/kerf/sharing"
)

// naive decides the same from all samples so far. It remembers only its decisions.
type naive struct {
	samples []Sample
	kills   []map[Process]bool
}

// picture is what one grant uses of a GPU at one step. If the grant has no cap there, or the driver does not report all
// of it, ok is false. The amount for which no process is ended is spared: the cap, and the slack of the grant's
// processes.
type picture struct {
	uses                          []Use
	retainers                     []Process
	limit, spared, held, inferred sharing.Bytes
	ok                            bool
}

func (n *naive) at(i int, grant GrantID, gpu sharing.GPURef) (p picture) {
	slack, running := sharing.Bytes(0), 0
	for _, c := range n.samples[i].Caps {
		if c.Grant == grant && c.GPU == gpu {
			p.limit, slack, p.ok = c.Memory, c.Slack, true
		}
	}
	for _, g := range n.samples[i].GPUs {
		if g.ID != gpu {
			continue
		}
		p.ok = p.ok && g.Answered && !slices.Contains(g.Unclear, grant)
		for _, u := range g.Uses {
			if u.Grant != grant {
				continue
			}
			p.uses, p.held, p.ok = append(p.uses, u), p.held+u.Bytes, p.ok && u.Known
			if u.Inferred {
				p.inferred += u.Bytes
			}
			if !u.Ended {
				running++
			}
		}
		for _, k := range g.Retainers {
			if k.Grant == grant {
				p.retainers = append(p.retainers, k.Process)
			}
		}
	}
	p.spared = p.limit + min(p.limit, sharing.Bytes(running)*slack)
	return p
}

// had reports whether the process, or one that has ended, was there.
func (p picture) had(one Process) bool {
	return slices.Contains(p.retainers, one) ||
		slices.ContainsFunc(p.uses, func(u Use) bool { return u.Process == one })
}

// escaped are the processes of a grant that do not use MPS on a GPU at step i, if the grant has a cap there.
func (n *naive) escaped(i int, grant GrantID, gpu sharing.GPURef) map[Process]bool {
	out := map[Process]bool{}
	for _, g := range n.samples[i].GPUs {
		capped := slices.ContainsFunc(n.samples[i].Caps, func(c Cap) bool { return c.Grant == grant && c.GPU == gpu })
		for _, u := range g.Uses {
			if g.ID == gpu && g.Answered && capped && u.Grant == grant && u.Escaped {
				out[u.Process] = true
			}
		}
	}
	return out
}

// dying reports whether an earlier step named the process, and no full picture since was without it.
func (n *naive) dying(i int, p Process) bool {
	for j := i; j >= 0; j-- {
		if j < i && n.kills[j][p] {
			return true
		}
		full, there := true, false
		for _, g := range n.samples[j].GPUs {
			full = full && g.Answered
			there = there || slices.Contains(g.Unmanaged, p) ||
				slices.ContainsFunc(g.Uses, func(u Use) bool { return u.Process == p }) ||
				slices.ContainsFunc(g.Retainers, func(k Retainer) bool { return k.Process == p })
		}
		if full && !there {
			return false
		}
	}
	return false
}

// step returns the processes to end now, with why.
func (n *naive) step(s Sample) (out []string) {
	i := len(n.samples)
	n.samples, n.kills = append(n.samples, s), append(n.kills, map[Process]bool{})
	for _, c := range s.Caps {
		now := n.at(i, c.Grant, c.GPU)
		if i == 0 || c.Action != Kill || !now.ok || now.held-now.inferred <= now.spared {
			continue
		}
		before := n.at(i-1, c.Grant, c.GPU)
		if !before.ok || before.held <= before.limit {
			continue
		}
		going := func(p Process) bool { return n.dying(i, p) || n.kills[i][p] }
		keeping := slices.DeleteFunc(slices.Clone(now.retainers), going)
		able, left := []Use{}, now.held
		for _, u := range now.uses {
			switch {
			case !u.Ended && going(u.Process), u.Ended && len(keeping) == 0: // no step comes after ReturnTime
				left -= u.Bytes
			case u.Bytes == 0 || !before.had(u.Process):
			case !u.Ended, !u.Inferred && slices.ContainsFunc(keeping, before.had):
				able = append(able, u)
			}
		}
		slices.SortFunc(able, func(a, b Use) int { return worse(b, a) })
		if left <= now.limit || len(able) == 0 {
			continue
		}
		victims := []Process{able[0].Process}
		if able[0].Ended {
			victims = slices.DeleteFunc(keeping, func(p Process) bool { return !before.had(p) })
		}
		for _, p := range victims {
			n.kills[i][p] = true
			out = append(out, fmt.Sprint(c.Grant, c.GPU, p))
		}
	}
	for _, c := range s.Caps {
		for p := range n.escaped(i, c.Grant, c.GPU) {
			if i > 0 && c.Action != Evict && n.escaped(i-1, c.Grant, c.GPU)[p] && !n.dying(i, p) && !n.kills[i][p] {
				n.kills[i][p] = true
				out = append(out, fmt.Sprint(c.Grant, c.GPU, p))
			}
		}
	}
	for _, g := range s.GPUs {
		for _, p := range g.Unmanaged {
			if i == 0 || !s.EndUnmanaged || !n.samples[i-1].EndUnmanaged || n.dying(i, p) || n.kills[i][p] {
				continue
			}
			if slices.ContainsFunc(n.samples[i-1].GPUs, func(b GPU) bool {
				return b.ID == g.ID &&
					slices.Contains(b.Unmanaged, p)
			}) {
				n.kills[i][p] = true
				out = append(out, fmt.Sprint(g.ID, p))
			}
		}
	}
	return out
}

// world makes samples that follow one another as a machine's would: grants with few processes, which grow,
// end, and come again under the same pid.
type world struct {
	rnd   *rand.Rand
	start [6]uint64
	held  [6][2]sharing.Bytes
	// keeps is 1 for a process that has ended, and 2 for one that keeps what others held.
	keeps [6]int
}

func (w *world) next(killUnmanaged bool) Sample {
	s := Sample{EndUnmanaged: killUnmanaged}
	for pid := range w.start {
		if w.rnd.IntN(6) == 0 {
			w.start[pid]++ // another process has the pid now
		}
		if w.rnd.IntN(12) == 0 {
			w.keeps[pid] = w.rnd.IntN(4) // 3 is as 2
		}
		for gpu := range w.held[pid] {
			if w.rnd.IntN(2) == 0 {
				w.held[pid][gpu] = sharing.Bytes(w.rnd.IntN(6))
			}
		}
	}
	for gpu, id := range []sharing.GPURef{{UUID: "g0"}, {UUID: "g1"}} {
		g := GPU{ID: id, Answered: w.rnd.IntN(12) != 0}
		for pid := range w.start {
			p := Process{pid + 1, w.start[pid] + 1} // one that has ended has no start
			grant := []GrantID{"a", "b"}[pid%2]
			switch {
			case !g.Answered || w.rnd.IntN(10) == 0:
			case pid < 4 && w.keeps[pid] > 1:
				g.Retainers = append(g.Retainers, Retainer{p, grant})
			case pid < 4 && w.keeps[pid] == 1:
				g.Uses = append(g.Uses, Use{Process: Process{PID: pid + 1}, Grant: grant, Bytes: w.held[pid][gpu],
					Known: true, Ended: true, Inferred: w.rnd.IntN(8) == 0})
			case pid == 5:
				g.Unmanaged = append(g.Unmanaged, p)
			default:
				g.Uses = append(g.Uses, Use{Process: p, Grant: grant, Bytes: w.held[pid][gpu],
					Known: w.rnd.IntN(20) != 0, Escaped: pid == 4 && w.rnd.IntN(3) != 0})
			}
		}
		if g.Answered && w.rnd.IntN(20) == 0 {
			g.Unclear = []GrantID{"a"}
		}
		s.GPUs = append(s.GPUs, g)
		for _, grant := range []GrantID{"a", "b"} {
			if w.rnd.IntN(15) != 0 {
				s.Caps = append(s.Caps, Cap{grant, id, 5, []Action{Kill, Kill, Kill, Warn}[w.rnd.IntN(4)],
					sharing.Bytes(max(0, w.rnd.IntN(6)-3))})
			}
		}
	}
	return s
}

// Watch and the naive model kill the same processes for any samples. Each killed process was seen twice, of this grant,
// on this GPU, with known usage.
func TestWatchAgreesWithNaiveModel(t *testing.T) {
	const seed = 1
	ended := 0
	for round := range 300 {
		rnd := rand.New(rand.NewPCG(seed, uint64(round)))
		w, n, of := New(), &naive{}, &world{rnd: rnd}
		for step := range 40 {
			s := of.next(rnd.IntN(4) != 0)
			want := n.step(s)
			var got []string
			for _, v := range w.Step(time.Unix(0, int64(step)), s).Verdicts {
				switch {
				case v.Action != Kill:
				case v.Reason == Unmanaged:
					got = append(got, fmt.Sprint(v.GPU, v.Victim))
				default:
					got = append(got, fmt.Sprint(v.Grant, v.GPU, v.Victim))
				}
			}
			slices.Sort(want)
			slices.Sort(got)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Fatalf("seed %d, round %d, step %d: %s\nsample %+v", seed, round, step, diff, s)
			}
			ended += len(got)
		}
	}
	if ended < 1000 {
		t.Errorf("only %d processes were ended: the world is too tame for this test to mean anything", ended)
	}
}
