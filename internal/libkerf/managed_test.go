// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package libkerf

import (
	"os"
	"path/filepath"
	"testing"
	"unsafe"
)

func TestRejectManaged(t *testing.T) {
	r, files := region(t, 100)
	if r.RejectsManaged() {
		t.Error("a new region rejects managed memory")
	}
	r.RejectManaged(true)
	again, err := Open(filepath.Dir(files[0]))
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if !again.RejectsManaged() {
		t.Error("the next agent does not know that managed memory is rejected")
	}
	if again.RejectManaged(false); r.RejectsManaged() {
		t.Error("managed memory is still rejected")
	}
}

// A region of an agent that did not know of managed memory serves on, and allows it until an agent decides otherwise.
func TestOpenGrowsAnOlderRegion(t *testing.T) {
	r, files := region(t, 100)
	r.RejectManaged(true)
	old := map[string]uintptr{files[0]: unsafe.Offsetof(limitsPage{}.rejectsManaged), files[1]: unsafe.Offsetof(usagePage{}.managed)}
	for file, size := range old {
		if err := os.Truncate(file, int64(size)); err != nil {
			t.Fatal(err)
		}
	}
	again, err := Open(filepath.Dir(files[0]))
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if again.RejectsManaged() || again.Usage()[0].Limit != 100 || len(again.Counts()) != 0 {
		t.Errorf("rejects %v, %+v", again.RejectsManaged(), again.Usage()[0])
	}
	again.RejectManaged(true)
	if text, err := os.ReadFile(files[0]); err != nil || len(text) != int(unsafe.Sizeof(limitsPage{})) || text[len(text)-8] != 1 {
		t.Errorf("%d bytes, %v", len(text), err)
	}
	if info, err := os.Stat(files[1]); err != nil || info.Size() != int64(unsafe.Sizeof(usagePage{})) {
		t.Errorf("%v, %v", info, err)
	}
	if err := again.Check(filepath.Dir(files[0])); err != nil {
		t.Error(err)
	}
}
