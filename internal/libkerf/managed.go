// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package libkerf

import (
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"unsafe"

	"github.com/kerf-gpu/kerf/sharing"
)

// RejectManaged decides whether programs may allocate managed memory from now on. What they have allocated stays.
func (r *Region) RejectManaged(reject bool) {
	word := uint64(0)
	if reject {
		word = 1
	}
	atomic.StoreUint64(&r.limits.rejectsManaged, word)
}

// RejectsManaged reports what RejectManaged decided.
func (r *Region) RejectsManaged() bool { return atomic.LoadUint64(&r.limits.rejectsManaged) != 0 }

// growLimits gives the limits page of an older agent the words that came later, all zero. A library that has the shorter
// page mapped never reads them. A file that is missing or of any other size is left for the caller to report.
func growLimits(dir string) error {
	path, whole := filepath.Join(dir, LimitsFile), int64(unsafe.Sizeof(limitsPage{}))
	if info, err := os.Stat(path); err == nil && info.Size() == int64(unsafe.Offsetof(limitsPage{}.rejectsManaged)) {
		if err := os.Truncate(path, whole); err != nil {
			return fmt.Errorf("grow region file %q: %w: %w", path, err, sharing.ErrUnavailable)
		}
	}
	return nil
}
