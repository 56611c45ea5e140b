// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package eventually waits in tests for what another goroutine or process does. A test that can wait in a synctest
// bubble does not need it.
package eventually

import (
	"testing"
	"time"
)

// patience is long after any sane delay, also on a busy machine. No test asserts on it.
const patience = 2 * time.Minute

// True fails the test unless ok returns true in time. what names the condition.
func True(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: not within %s", what, patience)
		}
	}
}

// Nil fails the test with the last error of f unless f returns nil in time. what names the condition.
func Nil(t testing.TB, what string, f func() error) {
	t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(2 * time.Millisecond) {
		err := f()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%s: not within %s: %v", what, patience, err)
		}
	}
}
