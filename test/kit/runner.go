// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kerf-gpu/kerf/test/kit/bench"
	"github.com/kerf-gpu/kerf/test/kit/core"
)

// runner does the steps of a run, one after the other.
type runner struct {
	out, home, work, raw string
	minutes              float64
	began                time.Time
	scale                float64
	machine              bench.Machine
}

// grace is how long a step may take to clean up when its time is over.
const grace = 4 * time.Second

func (r *runner) run(ctx context.Context, selected []core.Step) (*core.Report, error) {
	if err := r.prepare(); err != nil {
		return nil, err
	}
	defer os.RemoveAll(r.work)
	before := r.settings(ctx, "before")
	report := &core.Report{Kit: version}
	r.scale = core.Scale(selected, r.minutes)
	for i, s := range selected {
		fmt.Printf("%5.0f s  %s\n", time.Since(r.began).Seconds(), s.Title)
		o := r.step(ctx, selected[i:])
		for _, x := range o.Results {
			fmt.Printf("         %-16s  %s: %s\n", x.Verdict, x.Claim, x.Detail)
		}
		report.Steps = append(report.Steps, o)
	}
	report.Simulated, report.Machine = r.machine.Simulated, r.machine.Facts
	report.Settle(before, r.settings(context.WithoutCancel(ctx), "after"))
	for _, c := range report.Changed {
		fmt.Println("         changed setting:", c)
	}
	return report, r.write(report)
}

// prepare makes the folders. Sockets need a short path, so the steps work below the folder for temporary files.
func (r *runner) prepare() (err error) {
	if r.home, err = programs(); err != nil {
		return err
	}
	if r.out, err = filepath.Abs(r.out); err != nil {
		return err
	}
	r.raw = filepath.Join(r.out, "raw")
	if err := os.MkdirAll(r.raw, 0o755); err != nil {
		return err
	}
	if r.work, err = os.MkdirTemp("", "kit"); err != nil {
		if r.work, err = os.MkdirTemp(r.out, "w"); err != nil {
			return err
		}
	}
	// What a step leaves when it is killed becomes a child of this process, which ends it.
	return unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
}

// left is the rest of the run.
func (r *runner) left() time.Duration {
	return time.Duration(r.minutes*float64(time.Minute)) - time.Since(r.began)
}

// step runs the first of the steps that remain, unless the machine lacks something or the time is over.
func (r *runner) step(ctx context.Context, rest []core.Step) core.Outcome {
	s := rest[0]
	if reason := core.Unmet(s, r.machine.Lacks); reason != "" {
		return core.Without(s, reason)
	}
	limit, ok := core.Limit(rest, r.left())
	if ctx.Err() != nil || !ok {
		return core.Complete(s, core.Outcome{Ended: "the time of the run was over"})
	}
	began := time.Now()
	dir, ended := r.process(ctx, s.ID, s.ID, limit)
	o, err := bench.Outcome(dir)
	if err != nil && !os.IsNotExist(err) {
		ended = cmp.Or(ended, err.Error())
	}
	o.Ended, o.Seconds = ended, time.Since(began).Seconds()
	if s.ID == "identity" {
		r.found(dir, ended)
	}
	return core.Complete(s, o)
}

// found takes what the first step found. Without it, no step that needs a GPU can run.
func (r *runner) found(dir, ended string) {
	m, err := bench.FoundIn(dir)
	if err != nil {
		m.Facts, m.Lacks = bench.Host(), map[core.Need]string{core.NeedGPU: "the GPU could not be identified: " +
			cmp.Or(ended, err.Error())}
	}
	r.machine = m
}

// process runs a step in a separate process, and ends all that it leaves. ended is why it did not finish.
func (r *runner) process(ctx context.Context, name, step string, limit time.Duration) (dir, ended string) {
	dir = filepath.Join(r.work, name)
	t := task{bench.Task{Step: step, Home: r.home, Work: dir, Raw: r.raw, Scale: r.scale, Machine: r.machine}, limit}
	data, err := json.Marshal(t)
	file := filepath.Join(dir, "task.json")
	if err == nil {
		err = os.MkdirAll(dir, 0o755)
	}
	if err == nil {
		err = os.WriteFile(file, data, 0o644)
	}
	if err != nil {
		return dir, err.Error()
	}
	ctx, cancel := context.WithTimeout(ctx, limit+grace)
	defer cancel()
	var said bytes.Buffer
	cmd := exec.CommandContext(ctx, "/proc/self/exe", "--task", file)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGKILL) }
	cmd.Env = append(os.Environ(), "PATH="+os.Getenv("PATH"), "TMPDIR="+dir)
	cmd.Stderr, cmd.WaitDelay = &said, time.Second
	err = cmd.Run()
	endOrphans()
	unmountBelow(dir)
	_ = os.WriteFile(filepath.Join(r.raw, name+"-stderr.txt"), said.Bytes(), 0o644)
	return dir, why(err, ctx.Err() != nil, said.String())
}

// why says in words how a step's process ended; "" if it did all.
func why(err error, late bool, said string) string {
	if err == nil {
		return ""
	}
	last := lastWords(said)
	switch state := err.Error(); {
	case late:
		return "the step hung and was killed"
	case state == "exit status 1":
		return last
	default:
		return "the step crashed (" + state + "): " + last
	}
}

// lastWords is what a process said of its end: of a stack trace its first line, else the last line.
func lastWords(said string) string {
	lines := strings.Split(strings.TrimSpace(said), "\n")
	for _, l := range lines {
		if strings.HasPrefix(l, "panic: ") || strings.HasPrefix(l, "fatal error: ") || strings.HasPrefix(l, "SIG") {
			return l
		}
	}
	return lines[len(lines)-1]
}

// settings reads the settings of all GPUs.
func (r *runner) settings(ctx context.Context, when string) core.Settings {
	dir, ended := r.process(ctx, "settings-"+when, "settings", 10*time.Second)
	s, err := bench.SetIn(dir)
	if err != nil && ended != "" {
		fmt.Println("         settings "+when+":", ended)
	}
	if data, err := json.MarshalIndent(s, "", " "); err == nil {
		_ = os.WriteFile(filepath.Join(r.raw, "settings-"+when+".json"), data, 0o644)
	}
	return s
}
