// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package sharing_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/kerf-gpu/kerf/sharing"
)

func TestPlain(t *testing.T) {
	full := fmt.Errorf("full: 4g takes 4 of 7 slices: %w", sharing.ErrUnavailable)
	for want, err := range map[string]error{
		"full: 4g takes 4 of 7 slices":               full,
		"set the mode: full: 4g takes 4 of 7 slices": fmt.Errorf("set the mode: %w", full),
		"no answer": fmt.Errorf("no answer: %w: %w", sharing.ErrLost, sharing.ErrUnavailable),
		"full: 4g takes 4 of 7 slices; denied by no one": errors.Join(full, errors.New("denied by no one")),
		"unavailable":                                sharing.ErrUnavailable,
		"gpus \"9g\" is no profile; write 1g":        sharing.Invalid("gpus", "9g", "write 1g", "is no profile"),
		"the lost GPU: not supported by this driver": errors.New("the lost GPU: not supported by this driver"),
	} {
		if got := sharing.Plain(err); got != want {
			t.Errorf("%q: %q, want %q", err, got, want)
		}
	}
}
