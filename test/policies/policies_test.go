// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package policies

import (
	"errors"
	"testing"
)

func TestJudge(t *testing.T) {
	denied := errors.New(`pods "tried" is forbidden: ValidatingAdmissionPolicy 'kerf-amounts' with binding 'kerf-amounts' denied request: write 10`)
	for name, tc := range map[string]struct {
		refused string
		err     error
		wrong   bool
	}{
		"passes as it shall":            {"", nil, false},
		"is refused as it shall":        {"write 10", denied, false},
		"is refused and shall pass":     {"", denied, true},
		"passes and shall be refused":   {"write 10", nil, true},
		"is refused with other words":   {"write 20", denied, true},
		"is refused by somebody else":   {"write 10", errors.New("quota exceeded: write 10"), true},
		"is not answered, and may pass": {"", errors.New("connection refused"), true},
	} {
		if err := judge(trial{name: name, refused: tc.refused}, tc.err); (err != nil) != tc.wrong {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestTrialsAreToldApart(t *testing.T) {
	seen := map[string]bool{}
	passes, refused := 0, 0
	for _, trial := range trials() {
		if key := trial.name + " as " + trial.as; seen[key] {
			t.Errorf("two trials %q", key)
		} else {
			seen[key] = true
		}
		if trial.refused == "" {
			passes++
		} else {
			refused++
		}
	}
	if passes < 20 || refused < 40 {
		t.Errorf("%d trials pass and %d are refused: both kinds are needed", passes, refused)
	}
}
