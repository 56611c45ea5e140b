// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package session

import (
	"context"
	"errors"
	"log/slog"

	"github.com/kerf-gpu/kerf/internal/nvml"
	"github.com/kerf-gpu/kerf/internal/quiesce"
	"github.com/kerf-gpu/kerf/internal/sleep"
	"github.com/kerf-gpu/kerf/sharing/ledger"
	"github.com/kerf-gpu/kerf/sharing/node"
	"github.com/kerf-gpu/kerf/sharing/node/conditions"
	"github.com/kerf-gpu/kerf/sharing/node/store"
)

// errDrained ends the use of a driver that an administrator drains.
var errDrained = errors.New("the NVIDIA driver is drained")

// released is the sentence while no process of Kerf uses the driver.
const released = "kerf-agent and kerf-monitor have released the NVIDIA driver; kerf uncordon --driver ends it"

// drain releases the driver for an administrator.
type drain struct {
	runtime *node.Runtime
	log     *slog.Logger
	// dir is the agent's run directory, in which the other processes of Kerf listen.
	dir string
}

func drainOf(s *Session) drain { return drain{s.Runtime, s.Log, s.Options.Dirs.Dir} }

// drained reports whether the driver is to be released now: an administrator drains it, and no grant is in use. A grant
// that is in use needs the driver for its cap, and for the proof of its end.
func (d drain) drained() bool {
	if !d.runtime.Conditions.Has(conditions.DriverDrain) {
		return false
	}
	idle := true
	d.runtime.Store.Read(func(l store.Reader) {
		for _, g := range l.Grants() {
			activating := g.Next != nil && g.Next.State == ledger.Activating
			idle = idle && g.State() == ledger.Reserved && !activating
		}
	})
	return idle
}

// await returns errDrained once the driver is to be released.
func (d drain) await(ctx context.Context) error {
	for {
		changed := d.runtime.Changed()
		if d.drained() {
			return errDrained
		}
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		}
	}
}

// stayReleased has the other processes of Kerf release the driver too, and returns once the drain ends. The driver's
// modules can be unloaded meanwhile.
func (d drain) stayReleased(ctx context.Context) {
	d.runtime.Detach("the NVIDIA driver is drained")
	d.log.Info("released the driver, because it is drained")
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	done := make(chan struct{})
	go func() {
		defer close(done)
		d.keepOthersOff(ctx)
	}()
	for ctx.Err() == nil {
		changed := d.runtime.Changed()
		if !d.runtime.Conditions.Has(conditions.DriverDrain) {
			break
		}
		select {
		case <-ctx.Done():
		case <-changed:
		}
	}
	stop()
	<-done
}

// keepOthersOff asks the other processes of Kerf for the driver's library until ctx ends, and says while all have
// released it.
func (d drain) keepOthersOff(ctx context.Context) {
	for said := ""; ctx.Err() == nil; {
		err := d.keepOff(ctx)
		if ctx.Err() == nil && err != nil && err.Error() != said {
			said = err.Error()
			d.log.Warn("failed to release the driver, will retry", "error", said)
		}
		sleep.For(ctx, driverRetry)
	}
}

func (d drain) keepOff(ctx context.Context) error {
	soon, cancel := context.WithTimeout(ctx, quietPatience)
	defer cancel()
	if err := nvml.Closed(soon); err != nil {
		return err
	}
	resume, err := others(d.dir).Quiesce(soon, quiesce.Library)
	if err != nil {
		return err
	}
	defer resume()
	d.runtime.Conditions.Set(conditions.DriverReleased, released)
	defer d.runtime.Conditions.Set(conditions.DriverReleased, "")
	<-ctx.Done()
	return nil
}
