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

// grow gives the files of an older agent the words that came later, all zero. A library that has a shorter file mapped
// never touches them. A file that is missing or of any other size is left for the caller to report.
func grow(dir string) error {
	for name, size := range map[string]struct{ old, now int64 }{
		LimitsFile: {int64(unsafe.Offsetof(limitsPage{}.rejectsManaged)), int64(unsafe.Sizeof(limitsPage{}))},
		UsageFile:  {int64(unsafe.Offsetof(usagePage{}.managed)), int64(unsafe.Sizeof(usagePage{}))},
	} {
		path := filepath.Join(dir, name)
		if info, err := os.Stat(path); err == nil && info.Size() == size.old {
			if err := os.Truncate(path, size.now); err != nil {
				return fmt.Errorf("grow region file %q: %w: %w", path, err, sharing.ErrUnavailable)
			}
		}
	}
	return nil
}
