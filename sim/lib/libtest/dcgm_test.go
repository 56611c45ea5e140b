// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package libtest_test

import (
	"fmt"
	"strings"
	"testing"
)

// A program that makes the library calls of NVIDIA's dcgm-exporter finds each GPU, with values.
func TestDCGM(t *testing.T) {
	dir := node(t, "t4x4", "r580")
	set(t, dir, "gpu=1", "util=100")
	r := program(t, dir, nil, "check/dcgmcheck")
	if r.code != 0 {
		t.Fatalf("dcgmcheck: exit %d\n%s%s", r.code, r.out, r.errout)
	}
	lines := strings.Split(r.out, "\n")
	if len(lines) != 4 {
		t.Fatalf("the GPUs are %q", lines)
	}
	identities := nvml(t, dir, "init", "identity,0", "identity,1", "identity,2", "identity,3")[1:]
	for i, line := range lines {
		uuid := strings.Fields(identities[i])[1]
		want := fmt.Sprintf("%d %s ", i, uuid)
		if !strings.HasPrefix(line, want) || !strings.Contains(line, " Tesla T4 total=15360 limit=70 used=0 power=") {
			t.Errorf("GPU %d: %q, want %q and the values of a T4", i, line, want)
		}
	}
	if lines[0] == lines[1] || !strings.Contains(lines[1], " power=70 ") {
		t.Errorf("a busy GPU has %q", lines[1])
	}
}
