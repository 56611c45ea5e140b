// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package process

import (
	"errors"
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/kerf-gpu/kerf/sharing"
)

// TestDeaths has more processes than one call tells of, of which every other ends.
func TestDeaths(t *testing.T) {
	d, err := NewDeaths()
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}()
	var all []*exec.Cmd
	for range 150 {
		c := exec.CommandContext(t.Context(), "sleep", "1000")
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		all = append(all, c)
		if err := errors.Join(d.Watch(c.Process.Pid), d.Watch(c.Process.Pid)); err != nil {
			t.Fatal(err)
		}
	}
	if got := d.Ended(); got != nil {
		t.Errorf("ended: %v", got)
	}
	var want, got []int
	for i, c := range all {
		if err := c.Process.Kill(); err != nil {
			t.Error(err)
		}
		if i%2 == 0 {
			want = append(want, c.Process.Pid)
			continue
		}
		d.Forget(c.Process.Pid)
	}
	for end := time.Now().Add(time.Minute); len(got) < len(want) &&
		time.Now().Before(end); time.Sleep(time.Millisecond) {
		got = append(got, d.Ended()...) // also those without a wait
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) || d.Len() != 0 {
		t.Errorf("%v ended, want %v; %d are left", got, want, d.Len())
	}
	for _, c := range all {
		_ = c.Wait() // killed
	}
	// the pid of one that has ended may be another's by now
	if err := d.Watch(1 << 30); !errors.Is(err, sharing.ErrNotFound) {
		t.Errorf("one that is not there: %v", err)
	}
	if err := errors.Join(d.Watch(0)); !errors.Is(err, sharing.ErrInvalid) {
		t.Errorf("none: %v", err)
	}
	if err := d.Watch(os.Getpid()); err != nil || len(d.Ended()) != 0 {
		t.Error(err)
	}
}
