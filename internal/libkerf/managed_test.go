// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package libkerf

import (
	"path/filepath"
	"testing"
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
