// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package mode

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/kerf-gpu/kerf/mig"
	"github.com/kerf-gpu/kerf/mig/modeswitch"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/backend/choice"
)

const (
	// every is the longest time between two decisions.
	every = time.Second
	// deadline bounds one switch.
	deadline = 90 * time.Second
	// firstPause is how long a GPU that could not be switched is left alone. It doubles up to lastPause.
	firstPause = 5 * time.Second
	lastPause  = 5 * time.Minute
	// patience is how long a process waits for a switch.
	patience = 30 * time.Second
	// mostNeeds bounds the needs, and mostTold the needs that a warning names.
	mostNeeds = 1000
	mostTold  = 8
)

// The reasons of events about a switch of MIG mode.
const (
	// reasonSwitched of the node: Kerf switched the MIG mode of a GPU because of demand.
	reasonSwitched = "MIGModeChanged"
	// reasonNotSwitched of the node: a mode switch of a GPU failed, with the reason.
	reasonNotSwitched = "MIGModeChangeFailed"
)

// Switcher switches the MIG mode of GPUs on demand. New makes it; it is safe for concurrent use.
type Switcher struct {
	log   *slog.Logger
	node  Node
	newID func() string
	kick  chan struct{}

	// mu is taken inside Node.View, and never held over a call to node or manager.
	mu sync.Mutex
	memory
	// ready is what the GPUs could become when that was announced last.
	ready map[sharing.GPUID]Kind
}

// New returns a Switcher that has no MIG manager yet. newID makes a random name.
func New(log *slog.Logger, node Node, newID func() string) *Switcher {
	return &Switcher{
		log: log, node: node, newID: newID, kick: make(chan struct{}, 1),
		memory: memory{
			needs: map[string]Need{}, switching: map[sharing.GPUID]change{},
			barred: map[sharing.GPUID]bar{}, before: map[sharing.GPUID]choice.Report{},
		},
	}
}

// Run switches GPUs until ctx ends.
func (s *Switcher) Run(ctx context.Context) error {
	t := time.NewTicker(every)
	defer t.Stop()
	for {
		s.Switch(ctx)
		s.grant(ctx)
		s.tell(time.Now())
		select {
		case <-ctx.Done():
			return nil
		case <-s.kick:
		case <-t.C:
		}
	}
}

// Switch switches the GPUs that are to switch now. They take no grant from the decision on.
func (s *Switcher) Switch(ctx context.Context) {
	var turns []modeswitch.Switch
	var m Manager
	s.look(func(now sight) {
		if now.manager == nil || len(now.needs) == 0 || !now.Ready {
			return
		}
		turns, m = now.plan(time.Now()).Switches, now.manager
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, t := range turns {
			s.switching[t.GPU] = change{on: t.On, index: indexOf(now.Snapshot, t.GPU), who: t.For}
		}
	})
	if len(turns) == 0 {
		return
	}
	s.node.Announce()
	var wg sync.WaitGroup
	for _, t := range turns {
		wg.Go(func() { s.switchOne(ctx, m, t) })
	}
	wg.Wait()
	s.node.Announce()
}

func indexOf(p Snapshot, gpu sharing.GPUID) int {
	for _, v := range p.GPUs {
		if v.GPU.Ref() == (sharing.GPURef{UUID: gpu}) {
			return v.GPU.Index
		}
	}
	return 0
}

func (s *Switcher) switchOne(ctx context.Context, m Manager, t modeswitch.Switch) {
	ctx, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	start := time.Now()
	err := m.SwitchMode(ctx, t.GPU, t.On)
	r := Result{On: t.On, Took: time.Since(start), Err: err, Reason: reasonSwitched}
	var c change
	s.node.View(func(p Snapshot) { c = s.ended(t, err, p) })
	took := r.Took.Round(time.Millisecond)
	if err != nil {
		s.log.Warn("failed to switch MIG mode on demand", "gpu", string(t.GPU), "on", t.On, "for", t.For, "error",
			err.Error())
		r.Reason = reasonNotSwitched
		r.Message = fmt.Sprintf("Kerf could not switch the MIG mode of GPU %d for %s and tries again: %v", c.index,
			t.For, err)
	} else {
		s.log.Info("switched MIG mode on demand", "gpu", string(t.GPU), "on", t.On, "for", t.For, "took", took.String())
		r.Message = fmt.Sprintf("GPU %d %s, which took %s.", c.index, c, took)
	}
	s.node.Switched(ctx, r)
}

// ended notes the end of a switch, and returns what it was. It is called inside Node.View.
func (s *Switcher) ended(t modeswitch.Switch, err error, p Snapshot) change {
	s.mu.Lock()
	defer s.mu.Unlock()
	c, there := s.switching[t.GPU]
	if err != nil {
		delete(s.switching, t.GPU)
		s.barred[t.GPU] = s.barred[t.GPU].again(time.Now(), err)
		return c
	}
	delete(s.barred, t.GPU)
	for key, n := range s.needs {
		if n.on() == t.On {
			n.switched = true
			s.needs[key] = n
		}
	}
	stale := false // the inventory is of before the switch
	for _, v := range p.GPUs {
		stale = stale || v.GPU.Ref() == (sharing.GPURef{UUID: t.GPU}) && v.GPU.MIG != t.On
	}
	switch {
	case !stale:
		delete(s.switching, t.GPU)
	case there:
		c.made = true
		s.switching[t.GPU] = c
	}
	return c
}

// TookInventory takes in the GPUs as they are now: those that have switched take grants again. report is what the
// backends give on each GPU. The caller may hold what Node.View holds.
func (s *Switcher) TookInventory(gpus []sharing.GPU, report map[sharing.GPURef]choice.Report) {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.switching, func(_ sharing.GPUID, c change) bool { return c.made })
	for _, g := range gpus {
		if rep, ok := report[g.Ref()]; ok && !g.MIG && !g.Ref().IsInstance() {
			s.before[g.UUID] = rep
		}
	}
	s.soon()
}

// grant grants for the pods that a GPU has switched for, so that Kerf creates their instances before their containers
// wait.
func (s *Switcher) grant(ctx context.Context) {
	var pods [][]sharing.ContainerRequest
	s.look(func(now sight) { pods = now.reservable(slices.Sorted(maps.Keys(now.needs))) })
	for _, asks := range pods {
		if err := s.node.ReservePod(ctx, asks); err != nil {
			s.log.Info("failed to place pod, will retry", "pod", asks[0].Ref.Namespace+"/"+asks[0].Ref.Pod,
				"reason", err.Error())
		}
	}
}

// tell warns of needs that wait, and announces what GPUs could become: nothing else does when a time is over.
func (s *Switcher) tell(at time.Time) {
	ready := map[sharing.GPUID]Kind{}
	var waits []string
	news := false
	s.look(func(now sight) {
		if now.manager == nil {
			return
		}
		for _, st := range now.manager.States() {
			if to := now.outlook(st, at).Ready(); to != None {
				ready[st.GPU] = to
			}
		}
		for _, w := range now.plan(at).Pending {
			waits = append(waits, fmt.Sprintf("%s waits for a GPU to change its MIG mode: %s", w.Who, w.Reason))
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if news = !maps.Equal(ready, s.ready); news {
			s.ready = ready
		}
	})
	s.node.Warn(strings.Join(waits[:min(len(waits), mostTold)], "; "))
	if news {
		s.node.Announce()
	}
}

// look calls f with all that a decision depends on, while no grant changes. f may take mu.
func (s *Switcher) look(f func(sight)) {
	s.node.View(func(p Snapshot) { f(s.at(p)) })
}

func (s *Switcher) at(p Snapshot) sight {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.memory
	m.needs, m.switching, m.barred, m.before = maps.Clone(m.needs), maps.Clone(m.switching), maps.Clone(m.barred),
		maps.Clone(m.before)
	return sight{p, m}
}

func (s *Switcher) soon() {
	select {
	case s.kick <- struct{}{}:
	default:
	}
}

// SetManager sets the MIG manager, nil for none.
func (s *Switcher) SetManager(m Manager) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.manager = m
}

// ModeSwitchable reports whether demand may switch the GPU's MIG mode.
func (s *Switcher) ModeSwitchable(gpu sharing.GPUID) bool {
	s.mu.Lock()
	m := s.manager
	s.mu.Unlock()
	return m != nil && m.ModeSwitchable(gpu)
}

// Switching is a clause that says what a GPU switches to, and for whom; empty if it does not.
func (s *Switcher) Switching(gpu sharing.GPUID) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c, is := s.switching[gpu]; is {
		return c.String()
	}
	return ""
}

// Pending are sentences about the GPUs that switch now.
func (s *Switcher) Pending() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []string
	for _, c := range s.switching {
		out = append(out, fmt.Sprintf("GPU %d %s", c.index, c))
	}
	slices.Sort(out)
	return out
}

// Before is what backends gave on a GPU in MIG mode when it was out of that mode last; false if that is not known.
func (s *Switcher) Before(gpu sharing.GPUID) (choice.Report, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	rep, known := s.before[gpu]
	return rep, known
}

// Outlooks are those of these GPUs. It is called inside Node.View.
func (s *Switcher) Outlooks(p Snapshot, states map[sharing.GPUID]mig.State, now time.Time) map[sharing.GPUID]Outlook {
	out := map[sharing.GPUID]Outlook{}
	at := s.at(p)
	for id, st := range states {
		out[id] = at.outlook(st, now)
	}
	return out
}
