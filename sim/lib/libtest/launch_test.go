// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package libtest_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
)

// busyLine is what gpuload --json prints of a process that launched.
type busyLine struct {
	PID      int           `json:"pid"`
	Launches int64         `json:"launches"`
	GPU      time.Duration `json:"gpu_ns"`
	Wall     time.Duration `json:"wall_ns"`
	Error    *string       `json:"error"`
}

func busyLines(t *testing.T, r result) []busyLine {
	t.Helper()
	if r.code != 0 {
		t.Fatalf("exit %d: %s%s", r.code, r.out, r.errout)
	}
	var all []busyLine
	for s := range strings.SplitSeq(r.out, "\n") {
		if !strings.Contains(s, "launches") {
			continue
		}
		var l busyLine
		d := json.NewDecoder(strings.NewReader(s))
		d.DisallowUnknownFields()
		if err := d.Decode(&l); err != nil {
			t.Fatalf("line %q: %v", s, err)
		}
		all = append(all, l)
	}
	return all
}

// Each way to launch takes the GPU's time, a graph that of all its kernels.
func TestGpuloadLaunches(t *testing.T) {
	dir := node(t, "t4x4", "r615")
	for way, kernels := range map[string]int64{"plain": 1, "ex": 1, "cooperative": 1, "graph": 4, "multi": 1, "fill": 1,
		"copy": 1, "word": 0} {
		r := program(t, dir, nil, "gpuload", "--json", "--launch", way, "--kernel", "5ms", "--queue", "3", "--hold",
			"200ms")
		all := busyLines(t, r)
		if len(all) != 1 {
			t.Fatalf("%s: printed %s", way, r.out)
		}
		b := all[0]
		if b.Launches == 0 || b.GPU != time.Duration(b.Launches*kernels)*5*time.Millisecond || b.GPU > b.Wall ||
			b.Wall < 200*time.Millisecond {
			t.Errorf("%s: %+v", way, b)
		}
	}
}

// Processes share one GPU's time and never get more than there is of it.
func TestGpuloadsShareTheGPU(t *testing.T) {
	dir := node(t, "t4x4", "r615")
	began := time.Now()
	all := busyLines(t, program(t, dir, nil, "gpuload", "--json", "--launch", "plain", "--kernel", "2ms", "--hold",
		"1s", "--fork", "3"))
	took := time.Since(began) // they do not begin at one moment, but none before the program
	if len(all) != 3 {
		t.Fatalf("%+v", all)
	}
	var sum time.Duration
	for _, b := range all {
		sum += b.GPU
		if b.GPU < 20*time.Millisecond {
			t.Errorf("process %d got %v", b.PID, b.GPU)
		}
	}
	if sum > took {
		t.Errorf("%v of GPU time in %v", sum, took)
	}
}
