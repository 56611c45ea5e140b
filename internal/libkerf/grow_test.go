// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package libkerf

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"unsafe"

	"github.com/kerf-gpu/kerf/sharing"
)

// A region of an older agent serves on. What that agent did not know of is zero, until this agent sets it.
func TestOpenGrowsAnOlderRegion(t *testing.T) {
	for _, size := range olderSizes()[LimitsFile] {
		t.Run(strconv.FormatInt(size, 10), func(t *testing.T) {
			_, files := region(t, 100)
			for file, size := range map[string]int64{files[0]: size, files[1]: olderSizes()[UsageFileName][0]} {
				if err := os.Truncate(file, size); err != nil {
					t.Fatal(err)
				}
			}
			again, err := Open(filepath.Dir(files[0]))
			if err != nil {
				t.Fatal(err)
			}
			defer again.Close()
			if u := again.Usage()[0]; again.RejectsManaged() || u.Limit != 100 || u.Bound != 0 || u.Least != 0 ||
				len(again.Counts()) != 0 {
				t.Errorf("rejects %v, %+v", again.RejectsManaged(), u)
			}
			again.RejectManaged(true)
			if err := again.SetBound(again.Usage()[0].GPU, 7*sharing.MiB); err != nil {
				t.Fatal(err)
			}
			text, err := os.ReadFile(files[0])
			var l limitsPage
			if err != nil || len(text) != int(unsafe.Sizeof(l)) ||
				binary.NativeEndian.Uint64(text[unsafe.Offsetof(l.rejectsManaged):]) != 1 ||
				binary.NativeEndian.Uint64(text[unsafe.Offsetof(l.bound):]) != uint64(7*sharing.MiB) {
				t.Errorf("%d bytes, %v", len(text), err)
			}
			if info, err := os.Stat(files[1]); err != nil || info.Size() != int64(unsafe.Sizeof(usagePage{})) {
				t.Errorf("%v, %v", info, err)
			}
			if err := again.Check(filepath.Dir(files[0])); err != nil {
				t.Error(err)
			}
		})
	}
}
