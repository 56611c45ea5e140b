// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package nvidiasmi

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"syscall"
	"testing"
	"time"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sim/control"
	"github.com/kerf-gpu/kerf/sim/daemon"
	"github.com/kerf-gpu/kerf/sim/machine"
	"github.com/kerf-gpu/kerf/sim/smi"
)

// TestMain makes the test program the simulated nvidia-smi where it is called by that name.
func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == smi.Name {
		status := uintptr(0)
		if err := smi.Run(context.Background(), filepath.Dir(filepath.Dir(os.Args[0])), os.Args[1:],
			os.Stdout); err != nil {
			status = 1
		}
		// The race detector would have each process wait a second at an ordinary end.
		_, _, _ = syscall.RawSyscall(syscall.SYS_EXIT_GROUP, status, 0, 0)
	}
	os.Exit(m.Run())
}

// script makes a program of a shell's lines.
func script(t *testing.T, lines string) *Program {
	t.Helper()
	path := filepath.Join(t.TempDir(), "nvidia-smi")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+lines+"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	return New(Options{Path: path, Libraries: []string{"/opt/driver"}})
}

const gpu sharing.GPUID = "GPU-1"

func TestParseList(t *testing.T) {
	for out, want := range map[string]sharing.TimeSlice{
		"| GPU     Time Slice |\n|===|\n|   0     Default     |\n+---+\n": sharing.TimeSliceDefault,
		"GPU 00000000:1B:00.0\n  Timeslice: SHORT\n":                      sharing.TimeSliceShort,
		"0, Medium\r\n":        sharing.TimeSliceMedium,
		"long":                 sharing.TimeSliceLong,
		"":                     sharing.TimeSliceAsIs,
		"default settings\n":   sharing.TimeSliceAsIs,
		"0 Short\n1 Default\n": sharing.TimeSliceAsIs,
		"GPU 0: 2 ms\n":        sharing.TimeSliceAsIs,
	} {
		got, err := parseList(out)
		if got != want || (want == sharing.TimeSliceAsIs) != errors.Is(err, sharing.ErrUnsupported) {
			t.Errorf("%q: %v, %v; want %v", out, got, err, want)
		}
	}
}

func FuzzParseList(f *testing.F) {
	f.Add("|   0     Default     |\n")
	f.Fuzz(func(t *testing.T, out string) {
		if slice, err := parseList(out); (err == nil) != (slice != sharing.TimeSliceAsIs) {
			t.Errorf("%v, %v", slice, err)
		}
	})
}

func TestFailures(t *testing.T) {
	for name, tt := range map[string]struct {
		lines string
		want  error
	}{
		"refused":         {"echo no permission >&2; exit 4", sharing.ErrUnavailable},
		"reads otherwise": {`test "$4" = --list && echo Long; exit 0`, sharing.ErrConflict},
		"reads as noise":  {"echo done", sharing.ErrUnsupported},
		"environment":     {`test "$LD_LIBRARY_PATH $HOME" = "/opt/driver " || exit 1; echo Short`, nil},
		"much to say":     {"head -c 10000000 /dev/zero; echo Short", sharing.ErrUnsupported},
	} {
		if err := script(t, tt.lines).SetTimeSlice(t.Context(), gpu, sharing.TimeSliceShort); !errors.Is(err, tt.want) {
			t.Errorf("%s: %v, want %v", name, err, tt.want)
		}
	}
	absent := New(Options{Path: "/nonexistent/nvidia-smi"})
	if _, err := absent.TimeSlice(t.Context(), gpu); !errors.Is(err, sharing.ErrUnsupported) {
		t.Errorf("no program: %v", err)
	}
	if err := absent.SetTimeSlice(t.Context(), gpu, sharing.TimeSliceAsIs); !errors.Is(err, sharing.ErrInvalid) {
		t.Errorf("no slice: %v", err)
	}
}

// A program that hangs costs its caller the deadline and no more, and leaves its turn to the next.
func TestHangs(t *testing.T) {
	p := script(t, `test "$4" = --list && exec sleep 600; exit 0`)
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	start := time.Now()
	if _, err := p.TimeSlice(ctx, gpu); !errors.Is(err, sharing.ErrUnavailable) ||
		!errors.Is(err, context.DeadlineExceeded) || time.Since(start) > time.Minute {
		t.Errorf("%v after %v", err, time.Since(start))
	}
	if _, err := p.run(t.Context(), "compute-policy", "-i", "x", "--set"); err != nil {
		t.Errorf("the next call: %v", err)
	}
}

func TestOnASimulatedNode(t *testing.T) {
	dir, err := os.MkdirTemp("", "smi") // a short path: sockets' addresses are
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	m, err1 := machine.Load("t4x4")
	drv, err2 := machine.FindDriver("r580")
	d, err3 := daemon.New(daemon.Options{Dir: dir, Machine: m, Driver: drv, Log: slog.New(slog.DiscardHandler)})
	self, err4 := os.Executable()
	path := filepath.Join(dir, "bin", smi.Name)
	if err := errors.Join(err1, err2, err3, err4, os.Mkdir(filepath.Dir(path), 0o700),
		os.Symlink(self, path)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- d.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	var s control.Status
	if err := control.Call(t.Context(), dir, control.Request{Command: control.CmdStatus}, &s); err != nil {
		t.Fatal(err)
	}
	p := New(Options{Path: path})
	for _, want := range sharing.TimeSlices() {
		if err := p.SetTimeSlice(t.Context(), sharing.GPUID(s.GPUs[1].UUID), want); err != nil {
			t.Error(err)
		}
		if got, err := p.TimeSlice(t.Context(), sharing.GPUID(s.GPUs[0].UUID)); err != nil ||
			got != sharing.TimeSliceDefault {
			t.Errorf("the other GPU: %v, %v", got, err)
		}
	}
	if err := p.SetTimeSlice(t.Context(), gpu, sharing.TimeSliceLong); !errors.Is(err, sharing.ErrUnavailable) {
		t.Errorf("no such GPU: %v", err)
	}
}

// A read-only program changes nothing, whatever it is asked: a new method needs its line here.
func TestReadOnlyRejectsEveryChange(t *testing.T) {
	ran := filepath.Join(t.TempDir(), "ran")
	p := script(t, "touch "+ran)
	p.readOnly = true
	methods := map[string]func() error{
		"SetTimeSlice": func() error { return p.SetTimeSlice(t.Context(), gpu, sharing.TimeSliceLong) },
		"TimeSlice":    nil, // reads
	}
	all := reflect.TypeFor[*Program]()
	for method := range all.Methods() {
		name := method.Name
		change, known := methods[name]
		if !known {
			t.Errorf("Program.%s is not in the table: does it change a GPU?", name)
		}
		if change == nil {
			continue
		}
		var rejected *sharing.ReadOnlyError
		if err := change(); !errors.As(err, &rejected) || !errors.Is(err, sharing.ErrDenied) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := os.Stat(ran); err == nil {
		t.Error("the program was run")
	}
}
