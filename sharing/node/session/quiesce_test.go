// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package session

import (
	"context"
	"errors"
	"log/slog"
	"testing"

	"github.com/kerf-gpu/kerf/internal/quiesce"
	"github.com/kerf-gpu/kerf/mig/exec"
	"github.com/kerf-gpu/kerf/sharing"
)

// What makes something holds this process's calls alone; what ends something has everybody let go, and goes on without
// those who do not.
func TestQuiesce(t *testing.T) {
	held, refuse := 0, error(nil)
	q := &quiescer{gate: newGate(), others: quiesce.Dir(t.TempDir()), log: slog.New(slog.DiscardHandler),
		events: func(context.Context) (func(), error) {
			held++
			return func() { held-- }, refuse
		}}
	const gpu = sharing.GPUID("GPU-1")
	other := q.others.Reader()
	defer other.Close()
	free := func(what sharing.GPUID) bool {
		done, err := other.Read(what)
		if err == nil {
			done()
		}
		return err == nil
	}
	reads := func() bool { return free(gpu) }
	opens := func() bool { return free(quiesce.Library) }
	calls := func() bool {
		leave, err := q.gate.enter(gpu)
		if err == nil {
			leave()
		}
		return err == nil
	}
	for name, tt := range map[string]struct {
		what   exec.Touch
		refuse error
		held   int
	}{
		"makes": {}, "ends": {what: exec.Ends, held: 1}, "ends, and one does not let go": {what: exec.Ends,
			refuse: errors.New("no"), held: 1},
		"resets": {what: exec.Resets, held: 1}, "resets, and one does not let go": {what: exec.Resets,
			refuse: errors.New("no"), held: 1},
	} {
		refuse = tt.refuse
		resume, err := q.letGo(t.Context(), gpu, tt.what)
		if err != nil {
			t.Fatal(err)
		}
		if held != tt.held || reads() != (tt.what == exec.Makes) || opens() != (tt.what != exec.Resets) || calls() {
			t.Errorf("%s: events held %d, others read %t and open %t, this process calls %t", name, held, reads(),
				opens(), calls())
		}
		resume()
		if !reads() || !opens() || !calls() || tt.refuse == nil && held != 0 {
			t.Errorf("%s: afterwards events held %d, others read %t, this process calls %t", name, held, reads(),
				calls())
		}
		held = 0
	}
}
