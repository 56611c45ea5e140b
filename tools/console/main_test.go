// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"testing"
)

// The committed script is what its source gives, each time.
func TestBundle(t *testing.T) {
	if err := run("../..", true); err != nil {
		t.Error(err)
	}
	first, err := bundle("../..")
	if err != nil {
		t.Fatal(err)
	}
	second, err := bundle("../..")
	if err != nil || !bytes.Equal(first, second) {
		t.Errorf("two bundles differ: %v", err)
	}
	for _, word := range []string{"innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("} {
		if bytes.Contains(first, []byte(word)) {
			t.Errorf("the script has %q: use textContent", word)
		}
	}
}
