// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

var (
	soakTime = flag.Duration("soak", 0, "how long the soak runs; 0: a few steps only, always the same")
	soakSeed = flag.Uint64("seed", 1, "seed of the soak; 0 takes one from the clock and logs it")
)

const (
	// fewSteps are those of a run without -soak.
	fewSteps = 8
	// crowded is from how many pods on the next are only deleted.
	crowded = 18
	// mostMemory is what the agent may have resident, whatever it has gone through. It begins with about 60 MiB.
	mostMemory = 160 * mib
)

// soak is a node under random use, and what is known of it.
type soak struct {
	*testCase
	rnd  *rand.Rand
	made int // pods, ever
	live []*soakPod
	// lost is the GPU that is off the bus, or -1.
	lost int
	// lostOnce are the GPUs that ever were.
	lostOnce []string
	// killed is how often containerd was killed.
	killed int
	// rules are the agent's as they were.
	rules string
	// warnings are those that the agent always has here.
	warnings []string
	tally    map[string]int
}

// soakPod is a pod, what its containers are to have, and what may become of it.
type soakPod struct {
	*pod
	kind string
	asks map[string]soakAsk // by container; none for those without a request
	// ends says that its programs end by themselves, tooBig that it never runs.
	ends, tooBig bool
	// killed says that we have killed a program of it, deleted that we have deleted it.
	killed, deleted bool
	// stable are the instances of its containers that were seen to run as they should: nothing but us may end
	// them.
	stable map[string]string
}

// soakAsk is what a container asked for: of each of its GPUs so many bytes, or so many whole ones.
type soakAsk struct {
	memory uint64
	whole  int
}

// TestSoak does random things to a node for as long as -soak says, and looks after each whether everything that is
// promised still holds. Each step is logged; -seed repeats their order. How far the node has come with the one
// when the next begins is the node's own matter.
func TestSoak(t *testing.T) {
	seed := *soakSeed
	switch {
	case seed == 0 && *soakTime == 0:
		seed = 1
	case seed == 0:
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("-soak %s -seed %d", *soakTime, seed)
	s := &soak{testCase: beginWithAgent(t), rnd: rand.New(rand.NewPCG(seed, 0)), lost: -1, tally: map[string]int{}}
	t.Cleanup(s.mendAll)
	s.rules, s.warnings = s.currentRules(), s.picture().Warnings
	before := s.atRest()
	deadline := time.Now().Add(*soakTime)
	steps, most := 0, uint64(0)
	for ; time.Now().Before(deadline) || *soakTime == 0 && steps < fewSteps; steps++ {
		s.step(steps)
		s.settle()
		most = max(most, s.agentMemory())
	}
	s.Logf("%d steps: %v; the agent had at most %d MiB resident", steps, s.tally, most/mib)
	if most > mostMemory {
		t.Errorf("the agent had %d MiB resident", most/mib)
	}
	s.mendAll()
	s.remove(s.live, 1)
	s.settle()
	s.leavesNothing(before)
	all := s.create(one("all-of-it", wholeGPUs(len(s.node.gpus(t))), hold))
	all.running()
	s.wantHeld(all, "main", want{gpus: 8, memory: s.node.gpus(t)[0].shareOf(100), percent: 100, level: "exclusive"})
}

// did logs a step.
func (s *soak) did(format string, args ...any) {
	s.Helper()
	text := fmt.Sprintf(format, args...)
	s.tally[strings.Fields(text)[0]]++
	s.Logf("%s %s", time.Now().Format("15:04:05"), text)
}

// step does one random thing. All is drawn at its beginning, so that what the node does in between changes nothing
// of what is drawn next.
func (s *soak) step(n int) {
	s.Helper()
	steps := []struct {
		weight int
		name   string
		do     func(*rand.Rand)
	}{
		{30, "create", func(r *rand.Rand) { s.begin(r, 1+r.IntN(4)) }},
		{20, "delete", func(r *rand.Rand) { s.remove(s.some(r, 3), -1) }},
		{6, "force", func(r *rand.Rand) { s.remove(s.some(r, 3), 0) }},
		{7, "kill-program", s.killProgram},
		{4, "kill-agent", func(*rand.Rand) { s.endAgent() }},
		{4, "replace-agent", func(*rand.Rand) { s.replaceAgent() }},
		{5, "create-without-agent", func(r *rand.Rand) { s.endAgent(); s.begin(r, 1+r.IntN(3)) }},
		{5, "create-then-kill-agent", func(r *rand.Rand) { s.begin(r, 3); s.pause(r); s.endAgent() }},
		{4, "delete-without-agent", func(r *rand.Rand) { s.endAgent(); s.remove(s.some(r, 4), 0) }},
		{4, "restart-kubelet", func(*rand.Rand) { s.node.restart(s.T, "kubelet") }},
		{3, "kill-kubelet", func(r *rand.Rand) { s.killDaemon("kubelet"); s.begin(r, 1); s.node.do(s.T, "up") }},
		{4, "restart-containerd", func(*rand.Rand) { s.node.restart(s.T, "containerd") }},
		{3, "kill-containerd", func(r *rand.Rand) {
			s.begin(r, 1)
			s.pause(r)
			s.killDaemon("containerd")
			s.node.do(
				s.T, "up")
		}},
		{4, "lose-gpu", s.loseGPU},
		{4, "change-rules", s.changeRules},
	}
	all := 0
	for _, st := range steps {
		all += st.weight
	}
	r := rand.New(rand.NewPCG(s.rnd.Uint64(), 0))
	at := r.IntN(all)
	for _, st := range steps {
		if at -= st.weight; at >= 0 {
			continue
		}
		if strings.HasPrefix(st.name, "create") && len(s.live) >= crowded {
			s.did("delete (it is crowded), step %d", n)
			s.remove(s.some(r, crowded/2), -1)
			return
		}
		s.did("%s, step %d", st.name, n)
		st.do(r)
		return
	}
}

// pause lets the node come to some point of what it does.
func (s *soak) pause(r *rand.Rand) { time.Sleep(time.Duration(r.IntN(1500)) * time.Millisecond) }

// some are up to n of the pods.
func (s *soak) some(r *rand.Rand, n int) []*soakPod {
	all := slices.Clone(s.live)
	at, n := r.IntN(1<<20), 1+r.IntN(n)
	var out []*soakPod
	for ; n > 0 && len(all) > 0; n-- {
		i := at % len(all)
		out = append(out, all[i])
		all = slices.Delete(all, i, i+1)
	}
	return out
}

// forget takes the pods that are gone off the list; they have been looked at.
func (s *soak) forget() {
	gone := func(p *soakPod) bool { return p.deleted && p.goneError() == nil }
	for _, p := range s.live {
		if gone(p) {
			s.pods = slices.DeleteFunc(s.pods, func(q *pod) bool { return q == p.pod })
		}
	}
	s.live = slices.DeleteFunc(s.live, gone)
}

// named is the pod of that name, or nil.
func (s *soak) named(o *corev1.Pod) *soakPod {
	for _, p := range s.live {
		if p.name == o.Name {
			return p
		}
	}
	return nil
}
