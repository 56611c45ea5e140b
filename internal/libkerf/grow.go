// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package libkerf

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"unsafe"

	"github.com/kerf-gpu/kerf/sharing"
)

// olderSizes are the sizes that older agents gave the files of a region. Each is the offset of the first word that came
// later.
func olderSizes() map[string][]int64 {
	return map[string][]int64{
		LimitsFile: {int64(unsafe.Offsetof(limitsPage{}.rejectsManaged)), int64(unsafe.Offsetof(limitsPage{}.bound))},
		UsageFile:  {int64(unsafe.Offsetof(usagePage{}.managed))},
	}
}

// grow gives the files of an older agent the words that came later, all zero. A library that has a shorter file mapped
// never touches them. A file that is missing or of any other size is left for the caller to report.
func grow(dir string) error {
	now := map[string]int64{LimitsFile: int64(unsafe.Sizeof(limitsPage{})), UsageFile: int64(unsafe.Sizeof(usagePage{}))}
	for name, sizes := range olderSizes() {
		path := filepath.Join(dir, name)
		if info, err := os.Stat(path); err == nil && slices.Contains(sizes, info.Size()) {
			if err := os.Truncate(path, now[name]); err != nil {
				return fmt.Errorf("grow region file %q: %w: %w", path, err, sharing.ErrUnavailable)
			}
		}
	}
	return nil
}
