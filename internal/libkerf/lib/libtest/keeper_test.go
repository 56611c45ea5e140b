// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package libtest_test

import (
	"fmt"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kerf-gpu/kerf/internal/libkerf"
	"github.com/kerf-gpu/kerf/internal/process"
	"github.com/kerf-gpu/kerf/sharing"
)

// orphan has a program take memory, fork a child that lives on, and end. It returns how to end the child.
func (b box) orphan(t *testing.T, bytes sharing.Bytes) (end func()) {
	t.Helper()
	cmd, out, errout := b.command(t, nil, "check/kerfcheck", "gpu:0", fmt.Sprintf("take:linear:%d", bytes), "leave")
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v %s", err, errout)
	}
	refused, pid, found := strings.Cut(strings.TrimSpace(out.String()), "\n")
	child, err := strconv.Atoi(pid)
	if refused != "0" || !found || err != nil {
		t.Fatalf("%q %v", out, err)
	}
	ended := false
	end = func() {
		if ended {
			return
		}
		ended = true
		if err := syscall.Kill(child, syscall.SIGKILL); err != nil {
			t.Errorf("end the child, which was to live on: %v", err)
		}
		for err := error(nil); err == nil; _, err = process.StartOf(child) {
			time.Sleep(time.Millisecond)
		}
	}
	t.Cleanup(end)
	return end
}

// ended are the processes of slots that have ended.
func ended(slots []libkerf.Process) (map[libkerf.Process]bool, error) {
	out := map[libkerf.Process]bool{}
	for _, p := range slots {
		start, err := process.StartOf(p.PID)
		out[p] = err != nil || start != p.Start
	}
	return out, nil
}

// upkeep runs the agent's part for the region until the test ends: it calls f once for each check that finds dead
// processes.
func (b box) upkeep(t *testing.T, f func([]libkerf.Grave) error) {
	t.Helper()
	stop, done := make(chan struct{}), make(chan error, 1)
	go func() {
		for {
			select {
			case <-stop:
				done <- nil
				return
			case <-time.After(time.Millisecond):
			}
			graves, err := b.region.Dead(ended)
			if err == nil && len(graves) > 0 {
				err = f(graves)
			}
			if err != nil {
				done <- err
				return
			}
		}
	}()
	t.Cleanup(func() {
		close(stop)
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// TestAnOrphanKeepsItsMemory has a second program want what a child of the first still keeps, with agents that find out
// different things and without one.
func TestAnOrphanKeepsItsMemory(t *testing.T) {
	const all, want = gib, gib / 2
	take := fmt.Sprintf("take:linear:%d", want)
	refused, taken := oom, "0"
	for name, c := range map[string]struct {
		agent func(b box) func([]libkerf.Grave) error
		end   bool // of the child, first
		want  string
	}{
		"without an agent":                       {nil, false, refused},
		"without an agent, when no one keeps it": {nil, true, taken},
		"the driver lists it": {func(b box) func([]libkerf.Grave) error {
			return func(g []libkerf.Grave) error {
				return b.region.Moving(func() error {
					if err := b.region.Correct(b.gpu(0), all*3/4, nil); err != nil {
						return err
					}
					_, err := b.region.Bury(g)
					return err
				})
			}
		}, false, refused},
		"the driver does not list it": {func(b box) func([]libkerf.Grave) error {
			return func(g []libkerf.Grave) error { _, err := b.region.Bury(g); return err }
		}, false, taken},
	} {
		t.Run(name, func(t *testing.T) {
			b := start(t, "a30x2", "r580").cap(t, all)
			end := b.orphan(t, all*3/4)
			if b.used() != all*3/4 {
				t.Errorf("%d bytes are counted after its end", b.used())
			}
			if c.end {
				end()
			}
			if c.agent != nil {
				b.upkeep(t, c.agent(b))
			}
			if got := b.check(t, "gpu:0", take); got != c.want {
				t.Errorf("a second program: %q, want %q", got, c.want)
			}
		})
	}
}
