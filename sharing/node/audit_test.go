// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/audit"
	"github.com/kerf-gpu/kerf/sharing/node/lifecycle"
)

// The audit log has the events of a grant: type, owner, GPU and reason.
func TestWhatIsWrittenToTheAuditLog(t *testing.T) {
	b := newPodBench(t)
	var mu sync.Mutex
	var log []audit.Entry
	b.opt.Audit = func(e audit.Entry) { mu.Lock(); defer mu.Unlock(); log = append(log, e) }
	find := func(what string) (found audit.Entry, n int) {
		mu.Lock()
		defer mu.Unlock()
		for _, e := range log {
			if e.Type == what {
				found, n = e, n+1
			}
		}
		return found, n
	}
	b.start()
	c := b.run(b.app("p", "gpu-memory-gib:10"))
	id := b.grant(c.ask).ID
	gpu := b.grant(c.ask).Placement[0].GPU
	for _, what := range []string{audit.Reserve, audit.Activate} {
		e, n := find(what)
		switch {
		case n != 1 || e.Grant != string(id) || e.Error != "" || e.Time.IsZero():
			t.Errorf("%s: %d entries, %+v", what, n, e)
		case e.Subject == nil || e.Subject.Pod != "p" || e.Subject.Namespace != "ns" || e.Subject.Container != "main":
			t.Errorf("%s: whose: %+v", what, e.Subject)
		case len(e.Shares) != 1 || e.Shares[0].GPU != gpu.String() ||
			e.Shares[0].MemoryBytes != uint64(10*sharing.GiB):
			t.Errorf("%s: where: %+v", what, e.Shares)
		}
	}
	if err := b.Limit(t.Context(), lifecycle.Peer{UID: 0, PID: 1}, id, 12*sharing.GiB); err != nil {
		t.Fatal(err)
	}
	if e, n := find(audit.Resize); n != 1 || e.By != "uid 0" || !strings.Contains(e.Reason, "12GiB") || e.Error != "" {
		t.Errorf("limit: %d, %+v", n, e)
	}
	if err := b.Limit(t.Context(), lifecycle.Peer{UID: 9, PID: 1}, id, 5*sharing.GiB); err == nil {
		t.Error("another's grant was changed")
	}
	if e, n := find(audit.Resize); n != 2 || e.By != "uid 9" || e.Error == "" {
		t.Errorf("a limit that was refused: %d, %+v", n, e)
	}
	b.SetHealth(gpu.UUID, sharing.HealthLost, "XID 79")
	if e, n := find(audit.Health); n != 1 || e.Reason != "lost: XID 79" || e.Shares[0].GPU != gpu.String() {
		t.Errorf("health: %d, %+v", n, e)
	}
	b.Notify.Audit.Config("", "", "", []string{"spec is wrong"})
	if e, n := find(audit.Config); n != 1 || e.Error != "spec is wrong" || !strings.Contains(e.Reason, "rejected") {
		t.Errorf("a configuration that was refused: %d, %+v", n, e)
	}
	b.Notify.Audit.Config("default", "f", "s", nil)
	if e, n := find(audit.Config); n != 2 || e.Error != "" || !strings.Contains(e.Reason, " of f, sha256 s") {
		t.Errorf("config: %d, %+v", n, e)
	}
	c.remove()
	b.PodRemoved(c.ask.Ref.PodUID)
	b.eventually("the release is written", func() bool { _, n := find(audit.Release); return n == 1 })
	var order []string
	mu.Lock()
	defer mu.Unlock()
	for _, e := range log {
		if e.Grant == string(id) && e.Type != audit.Resize {
			order = append(order, e.Type)
		}
	}
	if want := []string{audit.Reserve, audit.Activate, audit.End, audit.Release}; !slices.Equal(order, want) {
		t.Errorf("the grant's life is %v, want %v", order, want)
	}
}

// Who holds more than was granted is in the log once for each time, with what was held and granted, and what was done.
func TestViolationsAreAudited(t *testing.T) {
	g := newGuarded(t, warning)
	var log []audit.Entry
	g.bench.opt.Audit = func(e audit.Entry) {
		if e.Type == audit.Violation {
			log = append(log, e)
		}
	}
	g.restartAgent()
	p, a := g.share(4)
	g.holds(gibs(p, 4))
	g.looks(4)
	if len(log) != 0 {
		t.Fatalf("within its cap: %+v", log)
	}
	g.holds(gibs(p, 5))
	g.looks(6)
	if len(log) != 1 {
		t.Fatalf("%d entries: %+v", len(log), log)
	}
	e := log[0]
	if e.Grant != string(a.ID) || e.Subject == nil || e.Subject.PID != p.PID || e.Time.IsZero() || len(e.Shares) != 1 ||
		e.Shares[0].GPU != g.gpus[0].Ref().String() {
		t.Errorf("whose, when and where: %+v, %+v", e, e.Subject)
	}
	if !strings.Contains(e.Reason, "over_cap: warn") ||
		!strings.Contains(e.Reason, fmt.Sprintf("it held %d bytes and may %d", 5*sharing.GiB, 4*sharing.GiB)) {
		t.Errorf("why: %q", e.Reason)
	}
}

// endsGrants is an observer that lets the grant of a killed process end before the guard continues.
type endsGrants struct {
	nopObserver
	end func()
}

func (o *endsGrants) Killed(_ string, err error) {
	if err == nil {
		o.end()
	}
}

// A kill ends the grant if the process was its last one. The log names the grant all the same.
func TestViolationOfAGrantThatEndedIsAudited(t *testing.T) {
	g := newGuarded(t, killing)
	var log []audit.Entry
	g.bench.opt.Audit = func(e audit.Entry) {
		if e.Type == audit.Violation {
			log = append(log, e)
		}
	}
	o := &endsGrants{}
	g.bench.opt.Observer = o
	g.restartAgent()
	p, a := g.share(4)
	o.end = func() {
		p.end()
		g.holds()
		g.eventually("the grant ends", func() bool {
			g.bench.Reconcile(t.Context())
			return len(g.State(t.Context()).Grants) == 0
		})
	}
	g.holds(gibs(p, 5))
	g.looks(6)
	if len(log) != 1 || log[0].Grant != string(a.ID) || log[0].Subject == nil || log[0].Subject.PID != p.PID {
		t.Errorf("entries: %+v", log)
	}
}
