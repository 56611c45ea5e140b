// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"errors"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/dynamic-resource-allocation/resourceslice"
)

// retryTime is how long after a failure the devices are published again, and how long no failure may follow until the
// plugin counts as serving. The library reports failures, but no success.
const retryTime = 30 * time.Second

// failures are those that the library reports from its goroutines. They set the condition of the node until a later
// publication brings none.
type failures struct {
	report func(error)
	// noted gets a value after each failure.
	noted chan struct{}

	mu sync.Mutex
	// at is the time of the last failure, and tried that of the last publication; at is zero without a failure.
	at, tried time.Time
	// lasting is true for what the same devices fail with again.
	lasting bool
	ended   error
}

// begin forgets the failures of an earlier Run.
func (f *failures) begin() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.at, f.tried, f.lasting, f.ended = time.Time{}, time.Time{}, false, nil
}

// serving reports that the plugin serves kubelet, unless it has failed already.
func (f *failures) serving() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.at.IsZero() {
		f.report(nil)
	}
}

// note reports a failure.
func (f *failures) note(err error, now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var dropped *resourceslice.DroppedFieldsError
	f.at, f.lasting = now, errors.As(err, &dropped) || apierrors.IsInvalid(err)
	if !errors.Is(err, kubeletplugin.ErrRecoverable) {
		f.ended = err
	}
	f.report(err)
	select {
	case f.noted <- struct{}{}:
	default:
	}
}

// published notes a publication, of which the library will report a failure.
func (f *failures) published(now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.tried = now
}

// fatal is the failure that ended the library's work, if one did.
func (f *failures) fatal() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.ended
}

// next says whether the devices are to be published again because of a failure, and when to ask next; 0 means at the
// next failure. It reports the end of a failure.
func (f *failures) next(now time.Time) (again bool, wait time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	since := f.at
	if f.tried.After(f.at) {
		since = f.tried
	}
	switch wait = retryTime - now.Sub(since); {
	case f.at.IsZero() || f.ended != nil:
		return false, 0
	case f.tried.After(f.at) && wait <= 0:
		f.at = time.Time{}
		f.report(nil)
		return false, 0
	case f.lasting && !f.tried.After(f.at):
		return false, 0
	case wait > 0:
		return false, wait
	}
	return true, 0
}
