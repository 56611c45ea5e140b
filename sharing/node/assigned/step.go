// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package assigned

import "time"

const (
	// patience is how long the node tries to create the instances of an allocation. Then it reports the failure.
	patience = 15 * time.Second
	// firstPause is the time between two attempts. It doubles up to lastPause.
	firstPause = time.Second
	lastPause  = 15 * time.Second
)

// step is what comes next for an allocation.
type step uint8

const (
	// stepNone: nothing, for a time or for ever.
	stepNone step = iota
	// stepRead reads whether the status of the claim has an outcome already.
	stepRead
	// stepCreate creates the instances.
	stepCreate
	// stepTaint taints the GPU of the instance that could not be created, until the API server has the taint.
	stepTaint
	// stepReady and stepFailed write the outcome to the status of the claim.
	stepReady
	stepFailed
)

// progress is how far an allocation is. The zero value is that of a new one.
type progress struct {
	// read is true once the status of the claim was read. ready is true if it says that the instances exist: a failure
	// can follow no more. done is true once nothing is left to do.
	read, ready, done bool
	// created is true once all instances exist.
	created bool
	// failure is the error of the last attempt to create an instance, of device. began is the time of the first
	// attempt.
	failure error
	device  string
	began   time.Time
	// givenUp is true once no further attempt follows. tainted is true once the API server has the taint.
	givenUp, tainted bool
	// again is when the next step is due, after a failure. pause is the time between two attempts.
	again time.Time
	pause time.Duration
}

// next is the next step. If it is stepNone, wait is the time until there may be another one; 0 means never. A failure
// is written only after the taint, so that the scheduler tries other devices.
func (p progress) next(now time.Time) (s step, wait time.Duration) {
	switch {
	case p.done:
		return stepNone, 0
	case now.Before(p.again):
		return stepNone, p.again.Sub(now)
	case !p.read:
		return stepRead, 0
	case p.ready && (p.created || p.givenUp):
		return stepNone, 0
	case p.created:
		return stepReady, 0
	case !p.givenUp:
		return stepCreate, 0
	case !p.tainted:
		return stepTaint, 0
	}
	return stepFailed, 0
}

// later is the progress with a pause before the next step.
func (p progress) later(now time.Time) progress {
	p.pause = min(max(2*p.pause, firstPause), lastPause)
	p.again = now.Add(p.pause)
	return p
}

// forward is the progress without a pause.
func (p progress) forward() progress {
	p.pause, p.again = 0, time.Time{}
	return p
}

// attempted is the progress after an attempt to create the instances that began at a time. device is the one that
// failed.
func (p progress) attempted(device string, err error, began, now time.Time) progress {
	if p.began.IsZero() {
		p.began = began
	}
	p.device, p.failure = device, err
	switch {
	case err == nil:
		p.created = true
		return p.forward()
	case now.Sub(p.began) >= patience:
		p.givenUp = true
		return p.forward()
	}
	return p.later(now)
}
