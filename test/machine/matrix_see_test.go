// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package machine_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/kerf-gpu/kerf/sim/control"
)

// account is what is allocated on all GPUs by the driver's account: now, and at most since its counter was reset.
type account struct{ used, peak uint64 }

func (m *machine) memory() (all account) {
	m.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), *patience)
	defer cancel()
	var s control.Status
	// As gpusim gpus does it, which would be a program for each of many looks.
	if err := control.Call(ctx, m.sim, control.Request{Command: control.CmdStatus}, &s); err != nil {
		m.t.Fatal(err)
	}
	for _, g := range s.GPUs {
		all.used += uint64(g.UsedBytes)
		all.peak += uint64(g.PeakBytes)
	}
	return all
}

// watchCounts are what the agent's watch has counted so far.
type watchCounts struct {
	kills        map[string]int // by reason
	found        int            // attachments over their cap
	foundSeconds float64        // the sum of how long each may have been so
}

var metricLine = regexp.MustCompile(`^(kerf_reactive_[a-z_]+)(?:\{reason="([a-z_]+)"\})? (\S+)$`)

func (m *machine) watched() watchCounts {
	m.t.Helper()
	c := watchCounts{kills: map[string]int{}}
	for line := range strings.Lines(m.metrics()) {
		f := metricLine.FindStringSubmatch(strings.TrimSpace(line))
		if f == nil {
			continue
		}
		v, err := strconv.ParseFloat(f[3], 64)
		if err != nil {
			m.t.Fatalf("metric %q: %v", line, err)
		}
		switch f[1] {
		case "kerf_reactive_kills_total":
			c.kills[f[2]] += int(v)
		case "kerf_reactive_detection_seconds_count":
			c.found = int(v)
		case "kerf_reactive_detection_seconds_sum":
			c.foundSeconds = v
		}
	}
	return c
}

// since says for which reasons processes were killed since then, and how long the one attachment that was found over
// its cap may have been so; 0 where none was.
func (c watchCounts) since(then watchCounts) (reasons string, delay time.Duration) {
	var all []string
	for reason, n := range c.kills {
		if n > then.kills[reason] {
			all = append(all, reason)
		}
	}
	slices.Sort(all)
	if n := c.found - then.found; n > 0 {
		delay = time.Duration((c.foundSeconds - then.foundSeconds) / float64(n) * float64(time.Second))
	}
	return strings.Join(all, ", "), delay
}

// killed is how many processes the agent has ended so far.
func (m *machine) killed() (n int) {
	m.t.Helper()
	for _, one := range m.watched().kills {
		n += one
	}
	return n
}

// endsWith ends what a run has left in its cgroup, and waits for the end of its grant, and of what it held.
func (m *machine) endsWith(cgroup string) {
	m.t.Helper()
	eventually(m.t, "end of "+cgroup, func() error {
		for _, g := range m.state().Grants {
			if g.Cgroup != cgroup {
				continue
			}
			// All that is in the cgroup was started by this run. A PID of the list may be another process's by now.
			if err := os.WriteFile(filepath.Join(cgroup, "cgroup.kill"), []byte("1"), 0); err != nil &&
				!errors.Is(err, os.ErrNotExist) && !errors.Is(err, syscall.ENODEV) {
				m.t.Fatal(err)
			}
			return fmt.Errorf("grant %s is still there", g.ID)
		}
		return nil
	})
	mounts, err := os.ReadFile("/proc/mounts")
	if err != nil {
		m.t.Fatal(err)
	}
	for line := range strings.Lines(string(mounts)) {
		if f := strings.Fields(line); len(f) > 2 && f[2] == "cgroup2" {
			beside, _ := filepath.Glob(f[1] + "/" + aside + "-" + filepath.Base(cgroup)) // the pattern is well formed
			for _, dir := range beside {
				_ = os.Remove(dir) // another's may be in use
			}
		}
	}
}
