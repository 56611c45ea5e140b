// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kerf-gpu/kerf/internal/libkerf"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/backend/libkerf/compute"
	"github.com/kerf-gpu/kerf/sharing/backend/libkerf/throttle"
	"github.com/kerf-gpu/kerf/sharing/config"
	"github.com/kerf-gpu/kerf/sharing/node/lifecycle"
	"github.com/kerf-gpu/kerf/sharing/node/status"
)

// part is an attachment with a percent of the first GPU.
func (g *guarded) part(percent sharing.Percent) (*tenant, lifecycle.Activated) {
	g.t.Helper()
	req := gib(4)
	req.UUIDs, req.Percent = []sharing.GPUID{g.gpus[0].UUID}, percent
	p := g.tenant()
	return p, g.bench.activate(p, "", req)
}

// counted is what the region says of the percent, and its budget.
func (g *guarded) counted(a lifecycle.Activated) libkerf.TokenBucket {
	g.t.Helper()
	open, err := libkerf.Open(g.bench.regionOf(string(a.ID)))
	if err != nil {
		g.t.Fatal(err)
	}
	defer open.Close()
	all, err := open.Budgets()
	if err != nil {
		g.t.Fatal(err)
	}
	return all[0]
}

// percents are the grants' percents as the pacer receives them.
func percents(attachments []throttle.Attachment) map[compute.ID]sharing.Percent {
	out := map[compute.ID]sharing.Percent{}
	for _, l := range attachments {
		out[l.Grant.ID] = l.Grant.Percent
	}
	return out
}

// A grant with a percent is limited to it from the first launch on. On its GPU, grants without a percent count, too. If
// a grant is alone on a GPU, none counts. The pool's rule applies at once.
func TestWhoseTimeIsCounted(t *testing.T) {
	g := newPreloaded(t, preloading)
	shares := g.bench.pacing()
	_, idle := g.part(0)
	if mode, attachments := shares.Attachments(); mode != compute.Fair || len(attachments) != 0 {
		t.Errorf("no grant has a percent: %v, %v", mode, attachments)
	}
	if s := g.shown().Compute; s.By != status.ComputeNone || !strings.Contains(s.Reason, "no grant") {
		t.Errorf("shown as %+v", s)
	}
	p, a := g.part(30)
	if b := g.counted(a); b.Percent != 30 {
		t.Errorf("before the first look: %+v", b)
	}
	pool := preloading
	pool.ComputePolicy = config.ComputeStrict
	g.bench.apply(g.bench.opt.Config, pool)
	mode, attachments := shares.Attachments()
	want := map[compute.ID]sharing.Percent{compute.ID(idle.ID): 0, compute.ID(a.ID): 30}
	if d := cmp.Diff(want, percents(attachments)); d != "" || mode != compute.Strict {
		t.Errorf("%v (-want +got):\n%s", mode, d)
	}
	if x, y := g.counted(idle).Percent, g.counted(a).Percent; x != sharing.FullGPU || y != 30 {
		t.Errorf("counted as %d and %d", x, y)
	}
	for _, s := range g.bench.State(t.Context()).Grants {
		if c := s.Compute; c.By != "libkerf" || c.Reason != "strict" || len(c.Times) != 1 || c.Times[0].Percent != -1 {
			t.Errorf("shown as %+v", c)
		}
	}
	p.end()
	g.bench.Reconcile(t.Context())
	if _, attachments = shares.Attachments(); len(attachments) != 0 || g.counted(idle).Percent != 0 {
		t.Errorf("after the other's end: %v, %+v", attachments, g.counted(idle))
	}
}

// Budgets are refilled after a restart. A budget that its programs damage is an error, and affects no other grant.
func TestRefillsBudgets(t *testing.T) {
	g := newPreloaded(t, preloading)
	_, a := g.part(30)
	g.restartPreloading()
	_, attachments := g.bench.pacing().Attachments()
	if len(attachments) != 1 {
		t.Fatalf("%v", attachments)
	}
	account := attachments[0].Account
	if err := account.AddTokens(5*time.Millisecond, compute.Open); err != nil {
		t.Fatal(err)
	}
	if b := g.counted(a); b.Balance != 5*time.Millisecond || b.Percent != 30 {
		t.Errorf("%+v", b)
	}
	if err := account.Settle(3*time.Millisecond, compute.Share{}, false); err != nil {
		t.Fatal(err)
	}
	if s := g.shown().Compute; len(s.Times) != 1 || s.Times[0].Charged != 3*time.Millisecond {
		t.Errorf("shown as %+v", s)
	}
	if err := account.AddTokens(math.MaxInt64-time.Hour, compute.Open); err != nil {
		t.Fatal(err)
	}
	if got, err := account.Read(); got.Balance != time.Hour || got.Charged != 0 || err != nil {
		t.Errorf("what a program wrote is read as %+v, %v", got, err)
	}
	if err := os.Truncate(filepath.Join(g.bench.regionOf(string(a.ID)), libkerf.UsageFileName), 0); err != nil {
		t.Fatal(err)
	}
	if _, err := account.Read(); !errors.Is(err, sharing.ErrStale) {
		t.Errorf("a file that was cut: %v", err)
	}
}

// The times that the driver reports of processes count for their grants. The time of an unknown process could belong to
// any grant.
func TestUseOfTime(t *testing.T) {
	g := newPreloaded(t, preloading)
	p, a := g.part(30)
	shares := g.bench.pacing()
	shares.Attachments()
	gpu, id := g.gpus[0].Ref(), compute.ID(a.ID)
	used := func(times map[int]int) (throttle.Use, error) {
		g.driver.times = times
		return shares.Used(t.Context(), gpu, time.Now().Add(-time.Second))
	}
	if got, err := used(map[int]int{p.PID: 40, os.Getpid(): 50}); err != nil || got.Percent[id] != 40 ||
		len(got.Percent) != 1 || got.Busy != 90 || time.Since(got.To) > time.Minute {
		t.Errorf("a grant and an unmanaged process: %v, %v", got, err)
	}
	if got, err := used(map[int]int{p.PID: 101, os.Getpid(): 50}); err != nil || len(got.Percent) != 0 ||
		!got.Doubt[id] || got.Busy != 50 {
		t.Errorf("an unknown grant, and an unmanaged process: %v, %v", got, err)
	}
	if got, err := used(map[int]int{}); err != nil || !got.To.IsZero() {
		t.Errorf("no row: %v, %v", got, err)
	}
	const nobody = 1 << 22 // above every pid
	if _, err := used(map[int]int{p.PID: 40, nobody: 1}); !errors.Is(err, sharing.ErrUnavailable) {
		t.Errorf("an unknown process: %v", err)
	}
	if got, err := used(map[int]int{p.PID: 40, nobody: 101}); err != nil || got.Percent[id] != 40 {
		t.Errorf("a row of no one that says nothing: %v, %v", got, err)
	}
	p.end()
	for range 3 { // for as long as samples go back
		if got, err := used(map[int]int{p.PID: 40}); err != nil || got.Percent[id] != 40 {
			t.Errorf("one that has just ended: %v, %v", got, err)
		}
	}
	if _, err := used(nil); !errors.Is(err, sharing.ErrUnsupported) {
		t.Errorf("a driver that does not tell: %v", err)
	}
}

// What an attachment used is shown as far as it is known.
func TestShownUseOfTime(t *testing.T) {
	g := newPreloaded(t, preloading)
	g.part(30)
	_, attachments := g.bench.pacing().Attachments()
	for _, tt := range []struct {
		used  compute.Share
		known bool
		want  int
	}{{compute.Share{Percent: 39.7}, true, 40}, {compute.Share{Percent: 39.7}, false, -1}, {compute.Share{}, true, 0}} {
		if err := attachments[0].Account.Settle(0, tt.used, tt.known); err != nil {
			t.Fatal(err)
		}
		if s := g.shown().Compute; s.Times[0].Percent != tt.want {
			t.Errorf("%+v, %v is shown as %+v", tt.used, tt.known, s)
		}
	}
}

// What holds a grant to its percent is said, and where nothing does, why.
func TestWhatSharesTime(t *testing.T) {
	g := newPreloaded(t, config.Pool{Name: "a", Backends: []sharing.Backend{sharing.BackendReactive}})
	g.part(30)
	if s := g.shown().Compute; s.By != status.ComputeNone ||
		!strings.Contains(s.Reason, "backend reactive shares no GPU time") || s.Times != nil {
		t.Errorf("shown as %+v", s)
	}
	p, _ := g.part(0)
	p.end()
	g.bench.Reconcile(t.Context())
	p = g.tenant()
	if _, err := g.bench.Reserve(t.Context(), p.Peer, "", sharing.Request{Kind: sharing.KindWhole,
		GPUs: 1}); err != nil {
		t.Fatal(err)
	}
	var by []string
	for _, s := range g.bench.State(t.Context()).Grants {
		by = append(by, s.Compute.By)
	}
	if len(by) != 2 || by[0] == by[1] || by[0] != status.ComputeExclusive && by[1] != status.ComputeExclusive {
		t.Errorf("%q", by)
	}
}

// With the strict rule, a grant that is above its share for long loses its enforcement level, whatever its programs
// count. Idle time that it received does not count as above.
func TestPastItsShare(t *testing.T) {
	for rule, want := range map[config.ComputePolicy]string{config.ComputeStrict: status.ComputeNone,
		config.ComputeFair: "libkerf"} {
		t.Run(rule.String(), func(t *testing.T) {
			pool := preloading
			pool.ComputePolicy = rule
			g := newPreloaded(t, pool)
			g.part(30)
			shares := g.bench.pacing()
			const pastAfter = 5 // seconds
			looks := func(used compute.Share, known bool, times int, want string) {
				t.Helper()
				_, attachments := shares.Attachments()
				for range times {
					if err := attachments[0].Account.Settle(0, used, known); err != nil {
						t.Fatal(err)
					}
				}
				if got := g.shown().Compute.By; got != want {
					t.Errorf("after %d more seconds of %+v: by %s, want %s", times, used, got, want)
				}
			}
			past := compute.Share{Percent: 60, Error: 4, Least: 40}
			looks(past, true, pastAfter-1, "libkerf")
			looks(past, true, 1, want)
			looks(compute.Share{Percent: 60, Error: 6, Least: 29}, true, 2*pastAfter, "libkerf") // by chance, perhaps
			looks(compute.Share{Percent: 45, Error: 2, Least: 38}, true, 2*pastAfter, "libkerf") // the throttle strays
			looks(past, false, 2*pastAfter, "libkerf")
			looks(past, true, pastAfter, want)
		})
	}
}
