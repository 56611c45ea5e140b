// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package session

import (
	"context"
	"errors"
	"testing"

	"github.com/kerf-gpu/kerf/sharing"
)

// A GPU is closed once the last call is out, lets none in, and opens again; another GPU does not notice.
func TestGate(t *testing.T) {
	g := newGate()
	leave, err := g.enter("a")
	if err != nil {
		t.Fatal(err)
	}
	short, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := g.close(short, "a"); !errors.Is(err, sharing.ErrUnavailable) {
		t.Fatalf("closed with a call inside: %v", err)
	}
	closed := make(chan func())
	go func() {
		resume, err := g.close(t.Context(), "a")
		if err != nil {
			t.Error(err)
		}
		closed <- resume
	}()
	for { // until the other goroutine has shut it
		if out, err := g.enter("a"); err == nil {
			out()
			continue
		}
		break
	}
	if out, err := g.enter("b"); err != nil {
		t.Error(err)
	} else {
		out()
	}
	if _, err := g.close(t.Context(), "a"); !errors.Is(err, sharing.ErrUnavailable) {
		t.Errorf("closed twice: %v", err)
	}
	leave()
	resume := <-closed
	if _, err := g.enter("a"); !errors.Is(err, sharing.ErrUnavailable) {
		t.Errorf("let in: %v", err)
	}
	resume()
	if _, err := g.enter("a"); err != nil {
		t.Error(err)
	}
}
