// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package entry

import (
	"errors"
	"strings"
	"testing"

	"github.com/kerf-gpu/kerf/sharing"
)

func TestJudge(t *testing.T) {
	for name, tc := range map[string]struct {
		found []Found
		says  []string // nil: accepted
	}{
		"no-one":  {nil, nil},
		"nothing": {[]Found{{PID: 7}, {PID: 8}}, nil},
		"a device file": {[]Found{{PID: 7, Files: []string{"/dev/nvidiactl"}}},
			[]string{"process 7 has /dev/nvidiactl open; close it first"}},
		"two device files": {[]Found{{PID: 7, Files: []string{"/dev/nvidia0", "/dev/nvidia-uvm"}}},
			[]string{"/dev/nvidia0 and /dev/nvidia-uvm open"}},
		"many device files": {[]Found{{PID: 7, Files: []string{"a", "b", "c", "d"}}},
			[]string{"has a, b and 2 more device files open"}},
		"a listed pid": {[]Found{{PID: 7, GPUs: []int{2}}},
			[]string{"process 7 uses GPU 2 already; activate the grant before"}},
		"listed and open": {[]Found{{PID: 7, GPUs: []int{0, 3}, Files: []string{"/dev/nvidia0"}}},
			[]string{"GPU 0, 3"}},
		"a second process": {[]Found{{PID: 7}, {PID: 8, GPUs: []int{1}}}, []string{"process 8 uses GPU 1"}},
		"memory shared": {[]Found{{PID: 7, Outside: []int{9, 10}}},
			[]string{"process 7 shares its memory or its open files with process 9, 10"}},
		"shared and open": {[]Found{{PID: 7, Outside: []int{9}, Files: []string{"/dev/nvidia0"}}},
			[]string{"has /dev/nvidia0 open", "shares"}},
		"each says what it is": {[]Found{{PID: 7, GPUs: []int{1}}, {PID: 8, Files: []string{"x"}}},
			[]string{"process 7 uses", "process 8 has x open"}},
	} {
		t.Run(name, func(t *testing.T) {
			err := Evaluate(tc.found)
			if (err != nil) != (tc.says != nil) || err != nil && !errors.Is(err, sharing.ErrConflict) {
				t.Fatalf("%v", err)
			}
			for _, says := range tc.says {
				if !strings.Contains(err.Error(), says) {
					t.Errorf("%v, want %q", err, says)
				}
			}
		})
	}
}
