// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"log/slog"
	"testing"

	"github.com/kerf-gpu/kerf/internal/quiet"
	"github.com/kerf-gpu/kerf/sharing"
)

// What makes something holds this process's calls alone; what ends something has everybody let go, and goes on without
// those who do not.
func TestQuiesce(t *testing.T) {
	held, refuse := 0, error(nil)
	q := &quiesce{gate: newGate(), others: quiet.Dir(t.TempDir()), log: slog.New(slog.DiscardHandler), events: func(context.Context) (func(), error) {
		held++
		return func() { held-- }, refuse
	}}
	const gpu = sharing.GPUID("GPU-1")
	other := q.others.Reader()
	defer other.Close()
	reads := func() bool {
		done, err := other.Read(gpu)
		if err == nil {
			done()
		}
		return err == nil
	}
	calls := func() bool {
		leave, err := q.gate.enter(gpu)
		if err == nil {
			leave()
		}
		return err == nil
	}
	for name, tt := range map[string]struct {
		ends   bool
		refuse error
		held   int
	}{"makes": {}, "ends": {ends: true, held: 1}, "ends, and one does not let go": {ends: true, refuse: errors.New("no"), held: 1}} {
		refuse = tt.refuse
		resume, err := q.letGo(t.Context(), gpu, tt.ends)
		if err != nil {
			t.Fatal(err)
		}
		if held != tt.held || reads() == tt.ends || calls() {
			t.Errorf("%s: events held %d, others read %t, this process calls %t", name, held, reads(), calls())
		}
		resume()
		if !reads() || !calls() || tt.refuse == nil && held != 0 {
			t.Errorf("%s: afterwards events held %d, others read %t, this process calls %t", name, held, reads(), calls())
		}
		held = 0
	}
}
