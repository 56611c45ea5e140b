// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package policies

import (
	"errors"
	"testing"
)

func TestJudge(t *testing.T) {
	denied := errors.New(
		`pods "tried" is forbidden: ValidatingAdmissionPolicy 'kerf-amounts' with binding 'kerf-amounts' denied request: write 10`)
	const said = "Validation failed for ValidatingAdmissionPolicy 'kerf-x' with binding 'kerf-x': careful"
	for name, tc := range map[string]struct {
		refused string
		err     error
		warned  string
		came    []string
		wrong   bool
	}{
		"passes as it shall":          {},
		"is refused as it shall":      {refused: "write 10", err: denied},
		"is refused and shall pass":   {err: denied, wrong: true},
		"passes and shall be refused": {refused: "write 10", wrong: true},
		"is refused with other words": {refused: "write 20", err: denied, wrong: true},
		"is refused by someone else": {refused: "write 10", err: errors.New("quota exceeded: write 10"),
			wrong: true},
		"is not answered, and may pass": {err: errors.New("connection refused"), wrong: true},
		"is warned as it shall":         {warned: "careful", came: []string{"another", said}},
		"is warned and shall not":       {came: []string{said}, wrong: true},
		"is warned by someone else":     {came: []string{"would violate PodSecurity: careful"}},
		"is warned by someone else too": {warned: "careful", came: []string{"would violate PodSecurity: careful"},
			wrong: true},
		"is not warned and shall be": {warned: "careful", wrong: true},
		"is warned and refused":      {warned: "careful", err: denied, came: []string{said}, wrong: true},
	} {
		if err := judge(trial{name: name, refused: tc.refused, warned: tc.warned}, tc.err,
			tc.came); (err != nil) != tc.wrong {
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
