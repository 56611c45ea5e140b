// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package session

import (
	"context"

	"github.com/kerf-gpu/kerf/internal/failpoint"
	"github.com/kerf-gpu/kerf/mig"
	"github.com/kerf-gpu/kerf/mig/exec"
	"github.com/kerf-gpu/kerf/sharing"
)

// The points at which a crash test may stop the agent while a GPU is cut: before and after each call to the driver that
// changes something, and before and after each write of a journal.
const (
	pointDriver  = "mig-driver"
	pointJournal = "mig-journal"
)

// Failpoints are the names of the failpoints in changes of MIG instances.
func Failpoints() []string { return []string{pointDriver, pointJournal} }

// crashDriver is a driver with points. At them only a crash makes sense: an error would be told after the call was made.
type crashDriver struct {
	exec.Driver
	points *failpoint.Set
}

func (d crashDriver) point() { _ = d.points.Eval(pointDriver) }

// SetMode implements exec.Driver, as do the others.
func (d crashDriver) SetMode(ctx context.Context, gpu sharing.GPUID, on bool) (bool, error) {
	d.point()
	defer d.point()
	return d.Driver.SetMode(ctx, gpu, on)
}

// CreateGI makes a GPU instance.
func (d crashDriver) CreateGI(ctx context.Context, gpu sharing.GPUID, at mig.Place) (int, error) {
	d.point()
	defer d.point()
	return d.Driver.CreateGI(ctx, gpu, at)
}

// DestroyGI ends one.
func (d crashDriver) DestroyGI(ctx context.Context, gpu sharing.GPUID, gi int) error {
	d.point()
	defer d.point()
	return d.Driver.DestroyGI(ctx, gpu, gi)
}

// CreateCI makes a compute instance.
func (d crashDriver) CreateCI(ctx context.Context, gpu sharing.GPUID, gi int) (exec.Compute, error) {
	d.point()
	defer d.point()
	return d.Driver.CreateCI(ctx, gpu, gi)
}

// DestroyCI ends one.
func (d crashDriver) DestroyCI(ctx context.Context, gpu sharing.GPUID, gi, ci int) error {
	d.point()
	defer d.point()
	return d.Driver.DestroyCI(ctx, gpu, gi, ci)
}

// crashStore is a store of journals with points.
type crashStore struct {
	exec.Store
	points *failpoint.Set
}

// Save writes a journal.
func (s crashStore) Save(gpu sharing.GPUID, data []byte) error {
	_ = s.points.Eval(pointJournal)
	err := s.Store.Save(gpu, data)
	_ = s.points.Eval(pointJournal)
	return err
}
