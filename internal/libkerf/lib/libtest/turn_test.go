// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package libtest_test

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kerf-gpu/kerf/internal/libkerf"
	"github.com/kerf-gpu/kerf/test/eventually"
)

// launching starts a program that launches kernels of 2 ms for the time of its GPU that it gets.
func (b box) launching(t *testing.T, hold string) *exec.Cmd {
	t.Helper()
	cmd, _, _ := b.command(t, nil, "gpuload", "--json", "--launch", "plain", "--kernel", "2ms", "--hold", hold)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd
}

// refilled adds to the budget, as an agent does at each step.
func (b box) refilled(t *testing.T, add time.Duration, turn libkerf.LaunchState) {
	t.Helper()
	if err := b.region.AddTokens(b.gpu(0), add, turn); err != nil {
		t.Fatal(err)
	}
}

// waitsForFutex reports whether the first thread of a process sleeps at a futex.
func waitsForFutex(t *testing.T, pid int) bool {
	t.Helper()
	call, err := os.ReadFile(fmt.Sprintf("/proc/%d/syscall", pid))
	if err != nil {
		t.Fatal(err)
	}
	number, _, _ := strings.Cut(string(call), " ")
	return number == strconv.Itoa(unix.SYS_FUTEX)
}

// While another container's launches are measured, nothing launches, whatever the budget is.
func TestHoldsInAnothersTurn(t *testing.T) {
	t.Parallel()
	b := start(t, "a30x2", "r580").throttled(t, 50)
	b.refilled(t, time.Hour, libkerf.LaunchPaused)
	cmd := b.launching(t, "100ms")
	eventually.True(t, "the program waits for its turn", func() bool {
		b.refilled(t, 0, libkerf.LaunchPaused)
		return waitsForFutex(t, cmd.Process.Pid)
	})
	for range 10 {
		b.refilled(t, 0, libkerf.LaunchPaused)
		time.Sleep(10 * time.Millisecond)
	}
	if got := b.budget(t); got.Launches != 0 || got.Charged != 0 {
		t.Errorf("it launched: %+v", got)
	}
	b.refilled(t, 0, libkerf.LaunchOpen)
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	if got := b.budget(t); got.Launches == 0 || got.Past != 0 || got.Waited == 0 || got.Occupied < got.Charged/2 {
		t.Errorf("after the turn: %+v", got)
	}
}

// In a turn alone the first launches of a kind need no budget, and the others do.
func TestFirstLaunchesAlone(t *testing.T) {
	t.Parallel()
	b := start(t, "a30x2", "r580").throttled(t, 50)
	b.refilled(t, -time.Hour, libkerf.LaunchAlone)
	cmd := b.launching(t, "1h")
	const first = 3
	for _, want := range []uint64{first, 2 * first} {
		eventually.True(t, "the first launches", func() bool {
			b.refilled(t, 0, libkerf.LaunchAlone)
			return b.budget(t).Launches >= want
		})
		for range 5 {
			b.refilled(t, 0, libkerf.LaunchAlone)
			time.Sleep(10 * time.Millisecond)
		}
		if got := b.budget(t); got.Launches != want || got.Past != 0 {
			t.Errorf("launches without a budget: %+v, want %d", got, want)
		}
		b.refilled(t, 0, libkerf.LaunchOpen) // the next turn alone is another one
	}
	b.refilled(t, 2*time.Hour, libkerf.LaunchOpen)
	eventually.True(t, "launches by the budget", func() bool { return b.budget(t).Launches > 2*first })
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // it was killed
}
