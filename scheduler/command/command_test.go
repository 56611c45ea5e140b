// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package command

import (
	"strings"
	"testing"
)

// TestVersion reads what --version prints in addition to kube-scheduler's line.
func TestVersion(t *testing.T) {
	cmd := New("v1.2.3")
	t.Cleanup(func() { _ = cmd.Flags().Set("version", "false") }) // the flag is one variable of the process
	for value, want := range map[string]string{"false": "", "raw": "", "true": "kerf-scheduler v1.2.3\n"} {
		if err := cmd.Flags().Set("version", value); err != nil {
			t.Fatal(err)
		}
		var out strings.Builder
		cmd.SetOut(&out)
		if err := printVersion(cmd, "v1.2.3"); err != nil || out.String() != want {
			t.Errorf("--version=%s prints %q, error %v, want %q", value, out.String(), err, want)
		}
	}
}
