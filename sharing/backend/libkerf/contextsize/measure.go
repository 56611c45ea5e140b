// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package contextsize

import (
	"fmt"

	"github.com/kerf-gpu/kerf/sharing"
)

// most is more than any context takes. A driver that tells more is not believed.
const most = 8 * sharing.GiB

// Use is what the driver tells of one process on the GPU. Bytes counts only if it is Known.
type Use struct {
	PID   int
	Bytes sharing.Bytes
	Known bool
}

// Measurement judges what the driver lists while a helper has one context and nothing else. It is what the backends
// compare with caps, so no other way to measure is as right.
type Measurement struct {
	// PID is the helper.
	PID  int
	last sharing.Bytes
}

// Step judges one list. done is true if this list and the one before it agree about the helper. Errors:
// sharing.ErrConflict (another process uses the GPU), sharing.ErrUnsupported (the driver does not tell what the helper
// has), sharing.ErrInvalid (the answer cannot be right).
func (m *Measurement) Step(list []Use) (size sharing.Bytes, done bool, err error) {
	listed := false
	for _, u := range list {
		switch {
		case u.PID != m.PID:
			return 0, false, fmt.Errorf("measure context: process %d uses the GPU: %w", u.PID, sharing.ErrConflict)
		case !u.Known:
			return 0, false, fmt.Errorf("measure context: the driver does not tell what a process has: %w",
				sharing.ErrUnsupported)
		case u.Bytes > most:
			return 0, false, fmt.Errorf("measure context: the driver tells of %s: %w", u.Bytes, sharing.ErrInvalid)
		}
		size, listed = u.Bytes, true
	}
	done = listed && size > 0 && size == m.last
	m.last = size
	return size, done, nil
}
