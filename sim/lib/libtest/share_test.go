// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package libtest_test

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/kerf-gpu/kerf/test/eventually"
)

// After the exporter frees memory, each importer still uses it, and the lists show it there. A file that stands for
// memory keeps it, too, and no process is shown. The memory is free when the last user lets go.
func TestMemoryOfOthersLivesOn(t *testing.T) {
	for api, lists := range map[string]bool{"ipc": true, "import": true, "pool-import": true, "file": false} {
		for _, driver := range []string{"r550", "r615"} {
			t.Run(api+" on "+driver, func(t *testing.T) {
				dir := node(t, "h100x8", driver)
				cmd, _, _ := command(t, dir, nil, "gpuload", "--json", "--api", api, "--alloc", "3GiB", "--step",
					"512MiB", "--hold", "10m")
				cmd.WaitDelay = 10 * time.Second
				line := startAndRead(t, cmd)
				t.Cleanup(func() { _ = cmd.Process.Kill() })
				if got := parse(t, line)[0]; got.Allocated != 3*gib || got.Error != nil {
					t.Fatalf("printed %s", line)
				}
				held := 3 * gib
				if !lists {
					held = 0
				}
				by := holders(t, dir)
				if by[cmd.Process.Pid] != held+h100Context {
					t.Errorf("process %d is shown to hold %d of %v, want %d", cmd.Process.Pid, by[cmd.Process.Pid], by,
						held+h100Context)
				}
				if got, want := nvml(t, dir, "init", "memory,0")[1], fmt.Sprintf(" used=%d",
					3*gib+uint64(len(by))*h100Context); !strings.Contains(got, want) {
					t.Errorf("the GPU says %q, want%s", got, want)
				}
				if err := cmd.Process.Kill(); err != nil {
					t.Fatal(err)
				}
				_ = cmd.Wait() // it was killed
				eventually.True(t, "memory back", func() bool {
					return len(holders(t, dir)) == 0 && strings.Contains(nvml(t, dir, "init", "memory,0")[1], " used=0")
				})
			})
		}
	}
}

// startAndRead starts a program that goes on, and returns its first line.
func startAndRead(t *testing.T, cmd *exec.Cmd) string {
	t.Helper()
	out, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = out.Close() })
	cmd.Stdout = in
	err = errors.Join(cmd.Start(), in.Close(), out.SetReadDeadline(time.Now().Add(time.Minute)))
	if err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("%q, then %v", line, err)
	}
	return line
}

// The importers get an error if the memory does not fit, and end well.
func TestMemoryOfOthersRunsOut(t *testing.T) {
	dir := node(t, "h100x8", "r615")
	for api, contexts := range map[string]uint64{"ipc": 2, "import": 2, "pool-import": 2, "file": 1} {
		r := program(t, dir, nil, "gpuload", "--json", "--api", api, "--alloc", "90GiB", "--step", "1GiB")
		fits := (h100Total - h100Reserved - contexts*h100Context) / gib * gib
		if got := parse(t, r.out); r.code != 9 || got[0].Allocated != fits || got[0].Error == nil ||
			*got[0].Error != oom {
			t.Errorf("%s: exit %d, printed %s%s, want %d bytes", api, r.code, r.out, r.errout, fits)
		}
		eventually.True(t, "memory back", func() bool { return len(holders(t, dir)) == 0 })
	}
}

// The stacks of all threads that can run at once grow together.
func TestStacksTakeMemory(t *testing.T) {
	dir := node(t, "h100x8", "r615")
	r := program(t, dir, nil, "gpuload", "--json", "--api", "stack", "--alloc", "2GiB", "--step", "512MiB")
	got := parse(t, r.out)
	if free := h100Total - h100Reserved - h100Context; r.code != 0 || got[0].Allocated < 2*gib ||
		*got[0].Free > free-got[0].Allocated {
		t.Errorf("exit %d, printed %s%s, want 2 GiB less than %d free", r.code, r.out, r.errout, free)
	}
}
