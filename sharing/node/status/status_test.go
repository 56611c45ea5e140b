// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package status

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/backend/choice"
	"github.com/kerf-gpu/kerf/sharing/ledger"
	"github.com/kerf-gpu/kerf/sharing/node/guard"
	"github.com/kerf-gpu/kerf/sharing/node/observe"
)

var gpu = sharing.GPURef{UUID: "a"}

// grant is an active grant of libkerf on one GPU.
func grant(backend sharing.Backend) ledger.Grant {
	g := ledger.Grant{Reservation: ledger.Reservation{ID: "k-1",
		Placement: sharing.Placement{{GPU: gpu, Memory: sharing.GiB}}},
		Active: &ledger.Attachment{}}
	g.Terms = ledger.Terms{Level: sharing.LevelUserspace, LevelReason: "no driver limit", Backend: backend}
	return g
}

// The level is the one that was given, until a fact says otherwise. What cannot be read makes it unknown.
func TestLevel(t *testing.T) {
	weaker := &Weaker{Level: sharing.LevelReactive, Reason: "it exceeds its cap"}
	for name, c := range map[string]struct {
		facts   Facts
		pending bool
		level   sharing.Level
		reason  string
	}{
		"as given": {Facts{}, false, sharing.LevelUserspace, "no driver limit"},
		"shared":   {Facts{Shared: "one cap"}, false, sharing.LevelUserspace, "one cap; no driver limit"},
		"started with less": {Facts{Started: "PID 7 has less"}, false, sharing.LevelUserspace,
			"no driver limit; PID 7 has less"},
		"lost": {Facts{Lost: "no answer"}, false, sharing.LevelUnknown, "no answer"},
		"weaker": {Facts{Weaker: weaker, Shared: "one cap"}, false, sharing.LevelReactive,
			"it exceeds its cap"},
		"fault": {Facts{Fault: "no daemon", Weaker: weaker}, false, sharing.LevelUnknown, "no daemon"},
		"no driver": {Facts{Fault: "no daemon", NoDriver: true}, false, sharing.LevelUnknown,
			"no driver answers"},
		"no instance": {Facts{NoDriver: true, Instance: "it is gone"}, false, sharing.LevelUnknown,
			"it is gone"},
		"no driver, not active": {Facts{NoDriver: true, Instance: "it is gone", Fault: "no daemon"}, true,
			sharing.LevelUserspace, "no driver limit"},
	} {
		g := grant(sharing.BackendNone)
		if c.pending {
			g.Active = nil
		}
		c.facts.Health = []sharing.Health{sharing.HealthOK}
		if got := GrantOf(g, c.facts, observe.Sample{}); got.Level != c.level ||
			!strings.HasPrefix(got.LevelReason, c.reason) || c.facts.Weaker == nil && got.LevelReason != c.reason {
			t.Errorf("%s: %s, %q", name, got.Level, got.LevelReason)
		}
	}
	g := grant(sharing.BackendNone)
	g.Placement[0].Whole = true
	got := GrantOf(g, Facts{Health: []sharing.Health{sharing.HealthSuspect}},
		observe.Sample{Unmanaged: map[sharing.GPURef][]int{gpu: {7, 8}}})
	if got.Level != sharing.LevelNone || !strings.HasSuffix(got.LevelReason, "pid 7, 8") ||
		got.Health != sharing.HealthSuspect {
		t.Errorf("a whole GPU with other processes: %+v", got)
	}
}

func TestCompute(t *testing.T) {
	times := []Time{{}}
	for name, c := range map[string]struct {
		change func(*ledger.Grant, *Facts)
		by     string
		why    string
		times  bool
	}{
		"libkerf": {func(*ledger.Grant, *Facts) {}, "libkerf", "strict", true},
		"speaker": {func(_ *ledger.Grant, f *Facts) { f.Speaker = "k-0" }, "libkerf",
			"strict, counted together with grant k-0", false},
		"not limited": {func(_ *ledger.Grant, f *Facts) { f.Time.Unlimited = "too old" }, ComputeNone, "too old",
			true},
		"not counted": {func(_ *ledger.Grant, f *Facts) { f.Time.Times, f.Time.Unlimited = nil, "lost" }, ComputeNone,
			"lost", false},
		"whole": {func(g *ledger.Grant, _ *Facts) { g.Request.Kind = sharing.KindWhole }, ComputeExclusive,
			"", false},
		"not active": {func(g *ledger.Grant, _ *Facts) { g.Active = nil }, ComputeNone,
			"no program uses the grant yet", false},
		"memory alone": {func(g *ledger.Grant, _ *Facts) { g.Backend = sharing.BackendMPS }, ComputeNone,
			"it has no percent of a GPU", false},
		"other backend": {func(g *ledger.Grant, _ *Facts) {
			g.Backend, g.Placement[0].Percent = sharing.BackendDriver, 1
		}, ComputeNone, "backend driver shares", false},
		"mps": {func(g *ledger.Grant, _ *Facts) {
			g.Backend, g.Placement[0].Percent = sharing.BackendMPS,
				1
		}, "mps", "MPS limits the threads", false},
	} {
		g, f := grant(sharing.BackendLibkerf), Facts{Speaker: "k-1", Time: TimeFacts{Times: times, Rule: "strict"}}
		c.change(&g, &f)
		if got := computeOf(g, f); got.By != c.by || !strings.HasPrefix(got.Reason, c.why) ||
			(got.Times != nil) != c.times {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

func TestEvents(t *testing.T) {
	g := grant(sharing.BackendLibkerf)
	f := Facts{Speaker: "k-1", Refused: map[sharing.GPURef]uint64{gpu: 3}, Found: guard.Finding{Watched: true}}
	if diff := cmp.Diff([]CapEvents{{Refused: 3, Counted: true, Watched: true}}, eventsOf(g, f)); diff != "" {
		t.Error(diff)
	}
	f.Refused = nil
	if diff := cmp.Diff([]CapEvents{{Watched: true}}, eventsOf(g, f)); diff != "" {
		t.Error(diff)
	}
	f.Speaker = "k-0"
	if got := eventsOf(g, f); got != nil {
		t.Errorf("another grant stands for it: %+v", got)
	}
}

func TestWorse(t *testing.T) {
	order := []sharing.Health{sharing.HealthOK, sharing.HealthUnknown, sharing.HealthSuspect, sharing.HealthUnhealthy,
		sharing.HealthLost}
	for i, a := range order {
		for j, b := range order {
			if got := Worse(a, b); got != order[max(i, j)] {
				t.Errorf("%s and %s: %s", a, b, got)
			}
		}
	}
}

// GPUs with the same problem are in one warning.
func TestWeakShares(t *testing.T) {
	rejected := GPU{Levels: []sharing.Level{sharing.LevelExclusive}, LevelReason: "old driver", Backends: []Backend{{}}}
	watched := GPU{Levels: []sharing.Level{sharing.LevelReactive}, LevelReason: "no library",
		Backends: []Backend{{Backend: sharing.BackendLibkerf, Listed: true, Support: choice.Support{}}}}
	fine, other := watched, rejected
	fine.Backends = []Backend{{Backend: sharing.BackendReactive, Listed: true}}
	other.Index = 2
	got := WeakShares([]GPU{rejected, watched, fine, other, {}})
	if len(got) != 2 || !strings.HasPrefix(got[0], "GPU 0, 2: shares are rejected") ||
		!strings.HasPrefix(got[1], "GPU 0: shares have level reactive only") {
		t.Errorf("%q", got)
	}
}
