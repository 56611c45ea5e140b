// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package mode

import (
	"slices"
	"strings"
	"time"

	"github.com/kerf-gpu/kerf/mig"
	"github.com/kerf-gpu/kerf/mig/modeswitch"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/backend/choice"
	"github.com/kerf-gpu/kerf/sharing/ledger"
)

// memory is what a Switcher knows in addition to the node.
type memory struct {
	// manager is nil while there is none.
	manager   Manager
	needs     map[string]Need
	switching map[sharing.GPUID]change
	barred    map[sharing.GPUID]bar
	// before has what backends gave on each GPU when it was out of MIG mode last.
	before map[sharing.GPUID]choice.Report
}

// change is a GPU that switches its mode.
type change struct {
	on    bool
	index int
	who   string
	// made is true once the GPU has switched. It takes grants again after the next inventory.
	made bool
}

func (c change) String() string {
	if c.on {
		return "changes to MIG mode for " + c.who
	}
	return "leaves MIG mode for " + c.who
}

// bar keeps a GPU that could not be switched from another attempt until a time.
type bar struct {
	until time.Time
	pause time.Duration
	why   string
}

// again is the bar after one more failure.
func (b bar) again(now time.Time, err error) bar {
	pause := min(max(2*b.pause, firstPause), lastPause)
	return bar{until: now.Add(pause), pause: pause, why: err.Error()}
}

// sight is all that a decision depends on. It changes nothing.
type sight struct {
	Snapshot
	memory
}

// plan decides which GPUs switch now, and says what the other needs wait for.
func (s sight) plan(now time.Time) modeswitch.Plan {
	if s.manager == nil {
		return modeswitch.Plan{}
	}
	var gpus []modeswitch.GPU
	for _, st := range s.manager.States() {
		if g, ok := s.candidate(st, now); ok {
			gpus = append(gpus, g)
		}
	}
	var needs []modeswitch.Need
	for _, n := range s.needs {
		needs = append(needs, modeswitch.Need{
			Who: n.Who, Since: n.Since, On: n.on(), Prefer: n.Prefer,
			Fits: func(switched []sharing.GPUID) bool { return s.fits(n, switched) },
		})
	}
	return modeswitch.Decide(gpus, needs, s.MinModeTime, now)
}

// candidate is false for a GPU that demand must not switch, or that switches already.
func (s sight) candidate(st mig.State, now time.Time) (modeswitch.GPU, bool) {
	i := slices.IndexFunc(s.GPUs, func(v ledger.View) bool { return v.GPU.Ref() == (sharing.GPURef{UUID: st.GPU}) })
	if _, switching := s.switching[st.GPU]; i < 0 || !st.ModeSwitchable || switching {
		return modeswitch.GPU{}, false
	}
	v := s.GPUs[i]
	return modeswitch.GPU{ID: st.GPU, Index: v.GPU.Index, On: v.GPU.MIG, Busy: s.busy(v, st, now),
		SwitchedAt: st.ModeSwitchedAt}, true
}

// busy is what keeps a GPU's mode, apart from the time since its last switch; empty if nothing does.
func (s sight) busy(v ledger.View, st mig.State, now time.Time) string {
	switch {
	case v.Grants > 0:
		var who []string
		for _, g := range s.Granted(st.GPU) {
			who = append(who, g.Who)
		}
		return "is held by " + strings.Join(slices.Compact(who), ", ")
	case v.GPU.Health != sharing.HealthOK:
		return "is " + v.GPU.Health.String()
	case v.GPU.Cordoned != "":
		return "is cordoned: " + v.GPU.Cordoned
	case len(s.Faults(st.GPU)) > 0:
		return "has an instance with a fault"
	case st.Busy != "":
		return st.Busy
	case v.GPU.MIG != st.On:
		return "is being looked at"
	}
	if b, is := s.barred[st.GPU]; is && now.Before(b.until) {
		return "could not be changed, and is tried again: " + b.why
	}
	return ""
}

func (s sight) outlook(st mig.State, now time.Time) Outlook {
	if c, is := s.switching[st.GPU]; is {
		return Outlook{To: kindOf(c.on), For: c.who}
	}
	g, ok := s.candidate(st, now)
	if !ok {
		return Outlook{}
	}
	return Outlook{To: kindOf(!g.On), Stays: modeswitch.BlockedReason(g, s.MinModeTime, now)}
}

// hope reports whether a GPU switches for a need, or is about to. why says what keeps the GPUs that could.
func (s sight) hope(key string, now time.Time) (hope bool, why string) {
	n, waits := s.needs[key]
	switch {
	case !waits:
		return false, ""
	case s.manager == nil || !s.Ready:
		return true, "" // the agent takes a new inventory, for example: that ends, or patience does
	}
	for _, c := range s.switching {
		if c.on == n.on() {
			return true, ""
		}
	}
	plan := s.plan(now)
	for _, t := range plan.Switches {
		if t.On == n.on() {
			return true, ""
		}
	}
	return false, waitsFor(plan, n.Who)
}

// waitsFor is what keeps the GPUs that could switch for a request; empty if none could, or some are about to.
func waitsFor(p modeswitch.Plan, who string) string {
	for _, w := range p.Pending {
		if w.Who == who {
			return w.Reason
		}
	}
	return ""
}

// claimable are the pods for which a GPU has switched and that have room now.
func (s sight) reservable(keys []string) [][]sharing.ContainerRequest {
	if len(s.switching) > 0 || !s.PodsReady {
		return nil
	}
	var pods [][]sharing.ContainerRequest
	for _, key := range keys {
		if n := s.needs[key]; n.switched && len(n.Containers) > 0 && s.fits(n, nil) {
			pods = append(pods, n.Containers)
		}
	}
	return pods
}
