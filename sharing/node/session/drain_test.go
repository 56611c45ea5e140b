// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package session

import (
	"context"
	"log/slog"
	"path/filepath"
	"testing"

	"github.com/kerf-gpu/kerf/internal/quiesce"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/config"
	"github.com/kerf-gpu/kerf/sharing/ledger"
	"github.com/kerf-gpu/kerf/sharing/node"
	"github.com/kerf-gpu/kerf/sharing/node/conditions"
	"github.com/kerf-gpu/kerf/sharing/node/options"
)

// withoutDriver is a session of a node on which no driver was found.
func withoutDriver(t *testing.T) *Session {
	t.Helper()
	dir, log := t.TempDir(), slog.New(slog.DiscardHandler)
	pool, err := config.Default().PoolFor(nil)
	if err != nil {
		t.Fatal(err)
	}
	r := node.New(node.Options{Host: node.Host{BootID: "boot"}, Log: log, Config: config.Default(), Pool: pool,
		RecordPath: filepath.Join(dir, "record.json"), NewID: func() string { return "id" }})
	return &Session{Deps: Deps{Log: log, Options: &options.Options{Dirs: options.Dirs{Dir: dir}}},
		Served: Served{Runtime: r}}
}

// until waits for a state of the runtime.
func (s *Session) until(t *testing.T, reached func() bool) {
	t.Helper()
	for {
		changed := s.Runtime.Changed()
		if reached() {
			return
		}
		select {
		case <-t.Context().Done():
			t.Fatal("the test ends first")
		case <-changed:
		}
	}
}

// A drain waits until no grant is in use. Its end and that of the agent end the wait for it.
func TestDrainWaitsForGrants(t *testing.T) {
	s := withoutDriver(t)
	note := func(change func(l *ledger.Ledger) error) {
		t.Helper()
		if err := s.Runtime.Store.UpdateLater(change); err != nil {
			t.Fatal(err)
		}
		s.Runtime.Announce()
	}
	note(func(l *ledger.Ledger) error {
		return l.Restore(ledger.Reservation{ID: "k-1", Owner: ledger.Owner{PodUID: "u", Namespace: "ns", PodName: "p",
			Container: "main"}, Placement: sharing.Placement{{GPU: sharing.GPURef{UUID: "GPU-1"},
			Memory: sharing.GiB}}},
			&ledger.Attachment{State: ledger.Active, ContainerID: "c", Cgroup: "/c", Inode: 7})
	})
	ended := make(chan error, 1)
	go func() { ended <- drainOf(s).await(t.Context()) }()
	s.Runtime.Conditions.Set(conditions.DriverDrain, "the NVIDIA driver is drained: ops")
	if drainOf(s).drained() {
		t.Error("the driver of an active grant is released")
	}
	if err := s.Runtime.Ready(); err == nil {
		t.Error("a drained node gives grants")
	}
	note(func(l *ledger.Ledger) error { return l.EndAttachment("k-1") })
	if err := <-ended; err != errDrained { //nolint:errorlint // this very one
		t.Errorf("the drain: %v", err)
	}
	s.Runtime.Conditions.Set(conditions.DriverDrain, "")
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if err := drainOf(s).await(ctx); err != nil {
		t.Errorf("the end of the agent: %v", err)
	}
}

// While the driver is drained, no other process of Kerf may open it. The drain counts as done once all have released
// it.
func TestDriverStaysReleased(t *testing.T) {
	s := withoutDriver(t)
	monitor := others(s.Options.Dirs.Dir)
	resume, err := monitor.Quiesce(t.Context(), quiesce.Library) // makes the folder
	if err != nil {
		t.Fatal(err)
	}
	resume()
	reader := monitor.Reader()
	defer reader.Close()
	done, err := reader.Read(quiesce.Library)
	if err != nil {
		t.Fatal(err)
	}
	s.Runtime.Conditions.Set(conditions.DriverDrain, "the NVIDIA driver is drained: ops")
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		drainOf(s).stayReleased(t.Context())
	}()
	s.until(t, func() bool { return s.Runtime.Conditions.Has(conditions.Driver) })
	if s.Runtime.LedgerState().DriverReleased {
		t.Error("the driver counts as released while kerf-monitor uses it")
	}
	done()
	s.until(t, func() bool { return s.Runtime.LedgerState().DriverReleased })
	if _, err := reader.Read(quiesce.Library); err == nil {
		t.Error("kerf-monitor can open a drained driver")
	}
	s.Runtime.Conditions.Set(conditions.DriverDrain, "")
	<-ended
	if s.Runtime.LedgerState().DriverReleased {
		t.Error("the driver counts as released after the drain")
	}
	done, err = reader.Read(quiesce.Library)
	if err != nil {
		t.Fatalf("kerf-monitor cannot open the driver after the drain: %v", err)
	}
	done()
}
