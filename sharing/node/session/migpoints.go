// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package session

import (
	"time"

	"github.com/kerf-gpu/kerf/internal/failpoint"
	"github.com/kerf-gpu/kerf/mig/exec"
	"github.com/kerf-gpu/kerf/sharing"
)

// A crash test may stop the agent at these points of a change of MIG instances. They are before and after each call
// that changes the driver's state, and before and after each write of a journal.
const (
	pointDriver  = "mig-driver"
	pointJournal = "mig-journal"
)

// Failpoints are the names of the failpoints in changes of MIG instances.
func Failpoints() []string { return []string{pointDriver, pointJournal} }

// aroundDriver has a point before and after a call to the driver, and counts the call. A point must be a crash, not an
// error: the call was already made.
func aroundDriver(points *failpoint.Set, count func(step string, took time.Duration, err error)) func(step string) func(
	error) {
	return func(step string) func(error) {
		_ = points.Eval(pointDriver)
		start := time.Now()
		return func(err error) {
			_ = points.Eval(pointDriver)
			count(step, time.Since(start), err)
		}
	}
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
