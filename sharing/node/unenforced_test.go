// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"slices"
	"strings"
	"testing"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/backend/choice"
	"github.com/kerf-gpu/kerf/sharing/config"
)

// reports of what the backends of a node answer.
func reports() map[string]choice.Report {
	no := func(why string) choice.Support { return choice.Support{Answer: choice.NotSupported, Reason: why} }
	yes := choice.Support{Answer: choice.Supported}
	return map[string]choice.Report{
		"nothing": {sharing.BackendDriver: no("old driver"), sharing.BackendLibkerf: no("no library"),
			sharing.BackendReactive: no("no lists")},
		"unknown": {sharing.BackendDriver: no("old driver"), sharing.BackendLibkerf: no("no library"),
			sharing.BackendReactive: {Reason: "no answer"}},
		"reactive": {sharing.BackendDriver: no("old driver"), sharing.BackendLibkerf: no("no library"),
			sharing.BackendReactive: yes},
		"libkerf": {sharing.BackendDriver: no("old driver"), sharing.BackendLibkerf: yes, sharing.BackendReactive: yes},
		"driver":  {sharing.BackendDriver: yes, sharing.BackendLibkerf: yes, sharing.BackendReactive: yes},
	}
}

// The strongest backend that works enforces a share. A share that none is known to enforce needs the config, and for a
// process its own consent, too.
func TestSharesAreEnforcedByDefault(t *testing.T) {
	const allow, consent = "set minEnforcement: none on the pool", "add --min-enforcement none"
	profiles := []config.Profile{{Name: "lax", Memory: sharing.GiB, MinLevel: sharing.LevelNone},
		{Name: "watched", Memory: sharing.GiB, MinLevel: sharing.LevelReactive}}
	none := config.Pool{Name: "a", MinLevel: sharing.LevelNone}
	level := func(l sharing.Level) sharing.Request { r := gib(1); r.MinLevel = l; return r }
	for name, tt := range map[string]struct {
		pool   config.Pool
		report string
		req    sharing.Request
		want   sharing.Level // LevelUnknown without says: granted at that
		says   []string
	}{
		"driver": {config.Pool{Name: "a"}, "driver", gib(1), sharing.LevelDriver, nil},
		"driver, level none asked": {config.Pool{Name: "a"}, "driver", level(sharing.LevelNone),
			sharing.LevelDriver, nil},
		"libkerf":  {config.Pool{Name: "a"}, "libkerf", gib(1), sharing.LevelUserspace, nil},
		"reactive": {config.Pool{Name: "a"}, "reactive", gib(1), sharing.LevelReactive, nil},
		"nothing": {config.Pool{Name: "a"}, "nothing", gib(1), 0,
			[]string{"driver: old driver", "libkerf: no library", "reactive: no lists", allow}},
		"nothing, level none asked": {config.Pool{Name: "a"}, "nothing", level(sharing.LevelNone), 0,
			[]string{"no backend enforces shares", allow}},
		"nothing, allowed": {none, "nothing", gib(1), 0, []string{"level none", "driver: old driver",
			"reactive: no lists", consent}},
		"nothing, allowed and asked": {none, "nothing", level(sharing.LevelNone), sharing.LevelNone, nil},
		"nothing, by profile": {config.Pool{Name: "a"}, "nothing", sharing.Request{Profile: "lax"}, 0,
			[]string{consent}},
		"nothing, by profile and asked": {config.Pool{Name: "a"}, "nothing",
			sharing.Request{Profile: "lax", MinLevel: sharing.LevelNone}, sharing.LevelNone, nil},
		"nothing, stricter profile": {none, "nothing", sharing.Request{Profile: "watched", MinLevel: sharing.LevelNone},
			0, []string{"level none at most, reactive required"}},
		"nothing, stricter pool": {config.Pool{Name: "a", MinLevel: sharing.LevelReactive}, "nothing",
			sharing.Request{Profile: "lax", MinLevel: sharing.LevelNone}, 0, []string{"reactive required"}},
		"nothing, by a rule and asked": {
			config.Pool{Name: "a",
				GPURules: []config.GPURule{{Settings: config.GPUSettings{MinLevel: sharing.LevelNone}}}},
			"nothing", level(sharing.LevelNone), sharing.LevelNone, nil,
		},
		"unknown": {config.Pool{Name: "a"}, "unknown", gib(1), 0,
			[]string{"level of its shares is unknown", "reactive: no answer", allow}},
		"unknown, allowed":           {none, "unknown", gib(1), 0, []string{"level unknown", consent}},
		"unknown, allowed and asked": {none, "unknown", level(sharing.LevelNone), sharing.LevelUnknown, nil},
		"whole": {config.Pool{Name: "a"}, "nothing", sharing.Request{Kind: sharing.KindWhole,
			GPUs: 1}, sharing.LevelExclusive, nil},
	} {
		t.Run(name, func(t *testing.T) {
			conf, err := config.New(config.Spec{Pools: []config.Pool{tt.pool}, Profiles: profiles})
			if err != nil {
				t.Fatal(err)
			}
			g := newPreloaded(t, tt.pool)
			g.bench.apply(conf, tt.pool)
			for _, gpu := range g.gpus {
				g.bench.SetLevel(gpu.Ref(), reports()[tt.report])
			}
			p := g.tenant()
			id, err := g.bench.Reserve(t.Context(), p.Peer, "", tt.req)
			if len(tt.says) > 0 {
				refused(t, err, map[bool]error{true: sharing.ErrExhausted,
					false: sharing.ErrUnsupported}[tt.says[0] == "level of its shares is unknown"], tt.says...)
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if s, ok := g.bench.Grant(id); !ok || s.Level != tt.want {
				t.Errorf("level %v (%s), want %v", s.Level, s.LevelReason, tt.want)
			}
		})
	}
}

// If one GPU enforces shares and another does not, a share goes to the first. That applies even if level none is
// allowed and requested on both. A process must consent only if the first has no free capacity.
func TestAnEnforcedGPUGoesFirst(t *testing.T) {
	g := newPreloaded(t, config.Pool{Name: "a", MinLevel: sharing.LevelNone})
	for i, gpu := range g.gpus {
		g.bench.SetLevel(gpu.Ref(), reports()[map[bool]string{true: "reactive", false: "nothing"}[i == 1]])
	}
	id, err := g.bench.Reserve(t.Context(), g.tenant().Peer, "", gib(60))
	if err != nil {
		t.Fatal(err)
	}
	if s, _ := g.bench.Grant(id); s.Placement[0].GPU != g.gpus[1].Ref() {
		t.Errorf("placed on %v", s.Placement)
	}
	_, err = g.bench.Reserve(t.Context(), g.tenant().Peer, "", gib(60))
	refused(t, err, sharing.ErrUnsupported, "add --min-enforcement none")
	_, err = g.bench.Reserve(t.Context(), g.tenant().Peer, "", gib(200))
	if err == nil || strings.Contains(err.Error(), "--min-enforcement none") {
		t.Errorf("what no GPU has: %v", err)
	}
}

// Status and ledger state explain why shares are rejected, and that they only have the reactive backend because libkerf
// is missing.
func TestWeakSharesAreShown(t *testing.T) {
	for name, tt := range map[string]struct {
		pool           config.Pool
		report         string
		warning        string // empty: none about levels
		level, reasons string // of the ledger state
	}{
		"nothing": {config.Pool{Name: "a"}, "nothing",
			"shares are rejected, because no backend is known to enforce them: driver: old driver; libkerf: no " +
				"library; reactive: no lists; mps: not listed", "", "driver: old driver; libkerf: no library"},
		"unknown": {config.Pool{Name: "a"}, "unknown", "shares are rejected", "", "reactive: no answer"},
		"nothing, allowed": {config.Pool{Name: "a", MinLevel: sharing.LevelNone}, "nothing", "", "none",
			"driver: old driver"},
		"reactive": {config.Pool{Name: "a"}, "reactive",
			"shares have level reactive only: driver: old driver; libkerf: no library", "", ""},
		"libkerf":          {config.Pool{Name: "a", MinLevel: sharing.LevelUserspace}, "libkerf", "", "userspace", ""},
		"whole GPUs alone": {config.Pool{Name: "a", Mode: config.ModeWhole}, "nothing", "", "", "driver: old driver"},
	} {
		t.Run(name, func(t *testing.T) {
			g := newPreloaded(t, tt.pool)
			for _, gpu := range g.gpus {
				g.bench.SetLevel(gpu.Ref(), reports()[tt.report])
			}
			all := g.bench.State(t.Context()).Warnings
			about := slices.DeleteFunc(slices.Clone(all),
				func(w string) bool { return !strings.Contains(w, "shares ") })
			if tt.warning == "" && len(about) > 0 || tt.warning != "" &&
				(len(about) != 1 || !strings.Contains(about[0], "GPU 0, 1, 2: "+tt.warning)) {
				t.Errorf("warnings %q", all)
			}
			b := g.bench.LedgerState().GPUs[0]
			if b.MinLevel.String() != map[bool]string{true: "unknown", false: tt.level}[tt.level == ""] {
				t.Errorf("the ledger demands %v", b.MinLevel)
			}
			if tt.reasons == "" && b.LevelReason != "" || !strings.Contains(b.LevelReason, tt.reasons) {
				t.Errorf("the ledger says why: %q", b.LevelReason)
			}
		})
	}
}
