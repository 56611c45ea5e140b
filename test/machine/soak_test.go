// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package machine_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

// soak is a machine under random use, and what is known of it.
type soak struct {
	*machine
	rnd  *rand.Rand
	runs []*run
	// bad are the GPUs with a fault on them, never more than two of the four.
	bad []int
	log []string
}

// TestSoak does random things to a machine and looks after each whether everything still holds. What it did
// is logged with the seed when it fails.
func TestSoak(t *testing.T) {
	t.Parallel()
	seed := *soakSeed
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("-soak %s -seed %d", time.Duration(soakFor), seed)
	s := &soak{machine: newMachine(t, setup{hardware: "t4x4"}), rnd: rand.New(rand.NewPCG(seed, 0))}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("steps with -seed %d:\n  %s", seed, strings.Join(s.log, "\n  "))
		}
	})
	deadline := time.Now().Add(time.Duration(soakFor))
	steps := 0
	for ; time.Now().Before(deadline) || steps < 10; steps++ {
		s.step()
		s.rest()
	}
	t.Logf("%d steps", steps)
	for _, g := range slices.Clone(s.bad) {
		s.reset(g)
	}
	for _, r := range s.runs {
		r.end()
	}
	s.noGrants()
	checkInvariants(t, s.machine)
	s.run(flags("--gpus 4"), hold()).granted() // all of the machine is there
	checkInvariants(t, s.machine)
}

func (s *soak) did(format string, args ...any) {
	s.log = append(s.log, fmt.Sprintf(format, args...))
}

// step does one random thing.
func (s *soak) step() {
	s.t.Helper()
	steps := []struct {
		weight int
		do     func()
	}{
		{30, func() { s.begin(1) }},
		{6, func() { s.begin(6) }},
		{20, s.endOne},
		{8, func() { s.did("kill agent"); s.restartAgent() }},
		{6, s.endWhileDown},
		{3, s.killOnStart},
		{5, s.fault},
		{8, func() {
			if len(s.bad) > 0 {
				s.reset(s.bad[s.rnd.IntN(len(s.bad))])
			}
		}},
		{3, s.reloadDriver},
	}
	all := 0
	for _, st := range steps {
		all += st.weight
	}
	n := s.rnd.IntN(all)
	for _, st := range steps {
		if n -= st.weight; n < 0 {
			st.do()
			return
		}
	}
}

// rest forgets the runs that ended, and looks at everything.
func (s *soak) rest() {
	s.t.Helper()
	s.runs = slices.DeleteFunc(s.runs, func(r *run) bool { return !r.running() })
	checkInvariants(s.t, s.machine)
	granted := s.state()
	for _, r := range s.runs {
		id := r.readStatus().ID
		// Who has ended may not be reaped yet here, when the agent has given its grant back.
		if _, ok := granted.grant(id); !ok && !dead(r.pid()) {
			s.t.Fatalf("run %q lives, and its grant %q is gone", r.cmd.Args, id)
		}
	}
}

// begin starts n runs at once; each is granted, or refused for want of room.
func (s *soak) begin(n int) {
	s.t.Helper()
	var fresh []*run
	for range n {
		ask := s.ask()
		s.did("run %s", ask)
		fresh = append(fresh, s.run(flags(ask), s.tenant()))
	}
	for _, r := range fresh {
		eventually(s.t, "outcome of a run", func() error {
			if r.running() && r.read(r.status) == "" {
				return fmt.Errorf("neither granted nor refused")
			}
			return nil
		})
		if st := r.read(r.status); strings.Contains(st, `"refused"`) {
			if got := r.wait(); got.code != 125 || !strings.Contains(got.err, "not enough free") &&
				!strings.Contains(got.err, "name") {
				s.t.Errorf("refused run: %v", got)
			}
			continue
		}
		s.runs = append(s.runs, r)
	}
}

// ask is a random request.
func (s *soak) ask() string {
	var f []string
	add := func(format string, args ...any) { f = append(f, fmt.Sprintf(format, args...)) }
	switch n := s.rnd.IntN(10); {
	case n < 6:
		add("--memory %dMiB", 128*(1+s.rnd.IntN(60)))
		if s.rnd.IntN(3) == 0 {
			add("--percent %d", 1+s.rnd.IntN(60))
		}
	case n < 7:
		add("--percent %d", 5+s.rnd.IntN(95))
	case n < 9:
		add("--memory %dMiB --gpus 2", 256*(1+s.rnd.IntN(40)))
	default:
		add("--gpus %d", 1+s.rnd.IntN(2))
	}
	if s.rnd.IntN(4) == 0 {
		add("--name n%d", s.rnd.IntN(5))
	}
	if s.rnd.IntN(3) == 0 {
		add("--placement-policy %s", []string{"pack", "spread"}[s.rnd.IntN(2)])
	}
	return strings.Join(f, " ")
}

// tenant is a random program: greedy or modest, for long or short, in one process or several.
func (s *soak) tenant() []string {
	api := []string{"linear", "async", "vmm"}[s.rnd.IntN(3)]
	switch s.rnd.IntN(4) {
	case 0:
		return hold()
	case 1:
		return load(fmt.Sprintf("--alloc %dMiB --api %s", 64*(1+s.rnd.IntN(64)), api))
	case 2:
		return load(fmt.Sprintf("--alloc 4GiB --step 128MiB --fork %d --hold 1h --api %s", 1+s.rnd.IntN(4), api))
	}
	return load(fmt.Sprintf("--alloc %dGiB --step 256MiB --hold 1h --api %s", 1+s.rnd.IntN(20), api))
}

func (s *soak) endOne() {
	if len(s.runs) == 0 {
		return
	}
	i := s.rnd.IntN(len(s.runs))
	s.did("end run %d of %d", i, len(s.runs))
	s.runs[i].end()
}

// endWhileDown ends some runs while no agent is there.
func (s *soak) endWhileDown() {
	s.t.Helper()
	s.did("kill agent, and meanwhile")
	s.killAgent()
	for range s.rnd.IntN(3) {
		s.endOne()
	}
	s.startAgent()
	s.ready()
}

// killOnStart kills the agent again and again while it starts.
func (s *soak) killOnStart() {
	s.t.Helper()
	for range 1 + s.rnd.IntN(3) {
		pause := time.Duration(s.rnd.IntN(150)) * time.Millisecond
		s.did("kill agent, start it, and after %s", pause)
		s.killAgent()
		s.startAgent()
		time.Sleep(pause)
	}
	s.restartAgent()
}

func (s *soak) fault() {
	s.t.Helper()
	i := s.rnd.IntN(4)
	if s.rnd.IntN(3) == 0 {
		s.did("GPU %d: XID 31", i)
		s.set(fmt.Sprintf("gpu=%d", i), "xid=31")
		return
	}
	if len(s.bad) == 2 || slices.Contains(s.bad, i) {
		return
	}
	fault := []string{"lost=true", "xid=79", "xid=48"}[s.rnd.IntN(3)]
	s.did("GPU %d: %s", i, fault)
	s.set(fmt.Sprintf("gpu=%d", i), fault)
	s.bad = append(s.bad, i)
	s.settle(i, false)
}

// reset takes a GPU through a reset: its memory is lost, and it is healthy again.
func (s *soak) reset(i int) {
	s.t.Helper()
	s.did("GPU %d: reset", i)
	s.set(fmt.Sprintf("gpu=%d", i), "lost=true")
	s.set(fmt.Sprintf("gpu=%d", i), "lost=false")
	s.bad = slices.DeleteFunc(s.bad, func(b int) bool { return b == i })
	s.settle(i, true)
}

func (s *soak) settle(i int, well bool) {
	s.t.Helper()
	eventually(s.t, fmt.Sprintf("GPU %d well: %v", i, well), func() error {
		health := "not in the inventory" // an agent that started while it was lost
		for _, g := range s.state().GPUs {
			if g.Index == i {
				health = g.Health
			}
		}
		if (health == "healthy") != well {
			return fmt.Errorf("it is %s", health)
		}
		return nil
	})
}

// reloadDriver kills the driver: all memory in use is gone, all limits too, and all GPUs are well after it.
func (s *soak) reloadDriver() {
	s.t.Helper()
	s.did("kill driver")
	s.killDriver()
	s.notReady()
	s.startDriver()
	s.ready()
	s.bad = nil
	for i := range 4 {
		s.settle(i, true)
	}
}
