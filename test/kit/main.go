// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Command kit measures Kerf on a machine with an NVIDIA GPU, in less than ten minutes, and writes a report.
//
//	kit [--out DIR] [--minutes 9] [--only STEPS]
//
// It changes no setting of a GPU. Each step is a separate process, so a crash or a hang ends that step alone. Exit
// status: 0 nothing was disproven, 1 something was, 2 wrong usage or no report, 3 a GPU setting differs afterwards.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/kerf-gpu/kerf/test/kit/bench"
	"github.com/kerf-gpu/kerf/test/kit/core"
	"github.com/kerf-gpu/kerf/test/kit/steps"
)

// version is set by the linker.
var version = "devel"

func main() {
	out := flag.String("out", "kit-report", "folder for report.md, report.json and raw.tar.gz")
	minutes := flag.Float64("minutes", core.FullMinutes, "length of the run in minutes")
	only := flag.String("only", "", "steps to run, such as caps,shares or 4,7; empty for all")
	task := flag.String("task", "", "file of a step's task; the kit starts itself with it")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if *task != "" {
		os.Exit(child(ctx, *task))
	}
	selected, err := core.Select(*only)
	if err == nil && (*minutes <= 0 || flag.NArg() > 0) {
		err = fmt.Errorf("minutes %g: want more than 0, and no further arguments", *minutes)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "kit:", err)
		os.Exit(2)
	}
	if status, done := inOwnMounts(ctx); done {
		os.Exit(status)
	}
	r := &runner{out: *out, minutes: *minutes, began: time.Now()}
	report, err := r.run(ctx, selected)
	if err != nil {
		fmt.Fprintln(os.Stderr, "kit:", err)
		os.Exit(2)
	}
	os.Exit(report.Exit())
}

// child does one step. Its verdicts are in its folder.
func child(ctx context.Context, file string) int {
	var t task
	data, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(data, &t)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "kit:", err)
		return 2
	}
	ctx, cancel := context.WithTimeout(ctx, t.Limit)
	defer cancel()
	if err := fault(t.Step, os.Getenv("KERF_KIT_FAULTS")); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	b := bench.New(t.Task, os.Environ())
	defer b.Close()
	if err := steps.Run(ctx, b); err != nil {
		fmt.Fprintln(os.Stderr, strings.Join(strings.Fields(err.Error()), " "))
		return 1
	}
	return 0
}

// fault makes steps fail for tests: "abi=crash,caps=hang".
func fault(step, faults string) error {
	for f := range strings.SplitSeq(faults, ",") {
		switch f {
		case step + "=crash":
			return syscall.Kill(os.Getpid(), syscall.SIGKILL)
		case step + "=panic":
			panic("a fault was requested")
		case step + "=hang":
			select {}
		}
	}
	return nil
}

// task is the input of a step's process, with the time that it has.
type task struct {
	bench.Task
	Limit time.Duration
}

// programs is the folder of the kit's programs, next to this one.
func programs() (string, error) {
	self, err := os.Executable()
	return filepath.Join(filepath.Dir(self), "bin"), err
}
