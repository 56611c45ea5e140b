// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package backend

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/kerf-gpu/kerf/internal/nvml"
	"github.com/kerf-gpu/kerf/sharing"
)

type lister struct{ err error }

func (l lister) Processes(context.Context, sharing.GPUID) ([]nvml.Process, error) { return nil, l.err }

func TestProbeWatch(t *testing.T) {
	const machine, other = 4026531836, 4026532000
	unread := fmt.Errorf("x: %w", sharing.ErrUnavailable)
	tests := map[string]struct {
		err   error
		space PIDSpace
		mig   bool
		want  Answer
		text  string
	}{
		"another pid namespace": {space: PIDSpace{Own: other, Initial: machine}, want: NotSupported,
			text: "pid:[4026532000]"},
		"it cannot be read": {space: PIDSpace{Initial: machine, Err: unread}, want: NoAnswer,
			text: "could not be read"},
		"a MIG GPU there": {space: PIDSpace{Own: other, Initial: machine}, mig: true, want: NotSupported,
			text: "MIG mode"},
		"lists": {want: Supported},
		"does not": {err: fmt.Errorf("x: %w", sharing.ErrUnsupported), want: NotSupported,
			text: "does not list"},
		"lost": {err: fmt.Errorf("x: %w", sharing.ErrLost), want: NoAnswer, text: "could not be listed"},
		"does not answer": {err: fmt.Errorf("x: %w", sharing.ErrUnavailable), want: NoAnswer,
			text: "could not be listed"},
		"MIG mode": {mig: true, want: NotSupported, text: "MIG mode"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got := ProbeWatch(t.Context(), lister{tt.err}, tt.space, sharing.GPU{UUID: "GPU-a", MIG: tt.mig})
			if got.Answer != tt.want || !strings.Contains(got.Reason, tt.text) ||
				(got.Reason == "") != (got.Remedy == "") {
				t.Errorf("%+v, want %v with %q", got, tt.want, tt.text)
			}
		})
	}
}
