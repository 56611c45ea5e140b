// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package machine_test

import (
	"os"
	"strings"
	"testing"
)

// TestClientInATimeNamespace runs programs whose boot clock is ahead of the agent's, so that they name themselves by
// another start time. They count like others, and what a killed one held is free within a second.
func TestClientInATimeNamespace(t *testing.T) {
	t.Parallel()
	m := newPreloading(t, "")
	in, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	defer out.Close()
	script := "for i in 1 2 3; do " + program("gpuload") +
		" --json --alloc 3GiB --hold 1h & read wait; kill -9 $!; wait $!; sleep 1; done"
	r := m.run(flags("--memory 4GiB --name ahead"), []string{"unshare", "-T", "--boottime", "5000", "--fork", "bash",
		"-c", script}, withInput(in))
	for i := range 3 {
		wantLoad(t, decode[loaded](t, r.lines(i + 1)[i]), "", 3*gib, 3*gib)
		if i == 1 {
			m.restartAgent()
			m.ready()
		}
		m.looks(6)
		if g := m.grant("ahead"); g.Level != "userspace" || g.Used == nil || *g.Used != 3*gib+contextT4 {
			t.Errorf("program %d: %+v", i, g)
		}
		if _, err := out.WriteString("\n"); err != nil {
			t.Fatal(err)
		}
	}
	if !strings.Contains(m.metrics(), "kerf_libkerf_bypasses_total 0") {
		t.Error("a process is said not to count")
	}
}
