// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package stream

import (
	"strings"
	"testing"
	"time"

	"github.com/kerf-gpu/kerf/internal/console/advise"
	"github.com/kerf-gpu/kerf/internal/console/consoletest"
	"github.com/kerf-gpu/kerf/internal/console/model"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/simulate"
)

// advised is a hub with a pod that needs 40 GiB, and a clock that tests move.
type advised struct {
	*testing.T
	*Broadcaster

	at    time.Time
	asked func()
}

func newAdvised(t *testing.T) *advised {
	t.Helper()
	a := &advised{T: t, at: consoletest.Noon(), asked: func() {}}
	a.Broadcaster = NewBroadcaster(func() time.Time { a.asked(); return a.at })
	a.Pod(consoletest.Pod("a", "new", "", map[string]string{sharing.ResourceMemory: "40"}))
	return a
}

// node gives the hub node n with a GPU of which so much is granted.
func (a *advised) node(granted int, silent bool) {
	var holds []consoletest.Grant
	if granted > 0 {
		holds = []consoletest.Grant{{Pod: consoletest.Pod("b", "old", "n", nil), GiB: granted}}
	}
	s := consoletest.Node("n", 1, holds...)
	a.Node(Node{Silent: silent, Live: simulate.LiveNode{Name: "n", Report: &s, CPU: 8000,
		Memory: 64 * sharing.GiB, Allocatable: map[string]int64{sharing.ResourceMemory: 79}}})
}

func (a *advised) advice() advise.Advice {
	a.Helper()
	out, ok, err := a.Advice("a-new", model.Scope{Namespaces: map[string]bool{"a": true}})
	if err != nil || !ok {
		a.Fatal(ok, err)
	}
	return out
}

// Advice takes seconds in a large cluster. The stream goes on during it.
func TestAdviceDelaysNoStream(t *testing.T) {
	a := newAdvised(t)
	a.node(0, false)
	asked := 0
	a.asked = func() {
		asked++
		if !a.mu.TryLock() {
			t.Fatal("the advice has the lock of the stream")
		}
		a.mu.Unlock()
	}
	if got := a.advice(); len(got.Fits) != 1 || asked == 0 {
		t.Errorf("advice %+v after %d looks at the clock", got, asked)
	}
	a.asked = func() {}
	a.advisor.mu.Lock() // as during a long advice
	a.Flush()
	if changed, _, _, woken := a.Since(model.Cursor{}, nil); len(changed) != 2 || woken == nil {
		t.Errorf("changed %v", changed)
	}
	a.advisor.mu.Unlock()
}

// A cluster state counts for some time, and then its memory is free.
func TestAdviceIsRenewed(t *testing.T) {
	a := newAdvised(t)
	a.node(60, false)
	if got := a.advice(); len(got.Fits) > 0 {
		t.Errorf("a full node fits: %+v", got)
	}
	a.node(0, false)
	if a.at = a.at.Add(adviceTime - 1); len(a.advice().Fits) > 0 {
		t.Error("the cluster state is made too often")
	}
	if a.at = a.at.Add(1); len(a.advice().Fits) != 1 {
		t.Error("the cluster state is not made again")
	}
	if a.Flush(); a.advisor.cluster == nil {
		t.Error("the new cluster state is forgotten")
	}
	a.at = a.at.Add(adviceTime)
	if a.Flush(); a.advisor.cluster != nil {
		t.Error("the old cluster state stays in memory")
	}
}

// A report that did not change for long counts while the agent renews its heartbeat, and no longer.
func TestAdviceOnQuietAndSilentNodes(t *testing.T) {
	a := newAdvised(t)
	a.node(0, false)
	if a.at = a.at.Add(3 * heardFor); len(a.advice().Fits) != 1 {
		t.Errorf("a quiet node counts for nothing: %+v", a.advice())
	}
	a.node(0, true)
	a.at = a.at.Add(adviceTime)
	if got := a.advice(); len(got.Fits) > 0 || !strings.Contains(got.Reason, "not heard from") {
		t.Errorf("a node whose agent is away: %+v", got)
	}
	a.node(0, false)
	if a.at = a.at.Add(adviceTime); len(a.advice().Fits) != 1 {
		t.Errorf("a node whose agent is there again: %+v", a.advice())
	}
}
