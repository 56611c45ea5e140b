// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package smi

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"strings"
	"testing"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sim/control"
	"github.com/kerf-gpu/kerf/sim/daemon"
	"github.com/kerf-gpu/kerf/sim/machine"
	"github.com/kerf-gpu/kerf/sim/model"
)

func node(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "smi") // a short path: sockets' addresses are
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	m, err1 := machine.Load("t4x4")
	drv, err2 := machine.FindDriver("r580")
	d, err3 := daemon.New(daemon.Options{Dir: dir, Machine: m, Driver: drv, Log: slog.New(slog.DiscardHandler)})
	if err := errors.Join(err1, err2, err3); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- d.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return dir
}

func TestSetAndList(t *testing.T) {
	dir := node(t)
	var s control.Status
	if err := control.Call(t.Context(), dir, control.Request{Command: control.CmdStatus}, &s); err != nil {
		t.Fatal(err)
	}
	run := func(args ...string) string {
		t.Helper()
		var out bytes.Buffer
		if err := Run(t.Context(), dir, args, &out); err != nil {
			t.Fatalf("%q: %v", args, err)
		}
		return out.String()
	}
	if out := run("compute-policy", "-l"); strings.Count(out, "Default") != 4 {
		t.Errorf("at first:\n%s", out)
	}
	run("compute-policy", "-i", s.GPUs[1].UUID, "--set-timeslice", "1")
	run("compute-policy", "--id="+s.GPUs[2].UUID+",3", "--set-timeslice=3")
	if out := run("compute-policy", "--list"); strings.Count(out, "Default") != 1 || strings.Count(out, "Short") != 1 ||
		strings.Count(out, "Long") != 2 {
		t.Errorf("then:\n%s", out)
	}
	if out := run("compute-policy", "-i", s.GPUs[1].UUID, "--list"); strings.Contains(out, "Default") ||
		!strings.Contains(out, "Short") {
		t.Errorf("one GPU:\n%s", out)
	}
}

func TestRefuses(t *testing.T) {
	dir := node(t)
	lost := true
	set := control.Set{GPUs: []int{3}, Change: model.Change{Lost: &lost}}
	if err := control.Call(t.Context(), dir, control.Request{Command: control.CmdSet, Set: &set}, nil); err != nil {
		t.Fatal(err)
	}
	for line, want := range map[string]error{
		"":                                     sharing.ErrInvalid,
		"-q":                                   sharing.ErrInvalid,
		"compute-policy":                       sharing.ErrInvalid,
		"compute-policy -i":                    sharing.ErrInvalid,
		"compute-policy --set-timeslice 4":     sharing.ErrInvalid,
		"compute-policy --set-timeslice short": sharing.ErrInvalid,
		"compute-policy --set-timeslice 1 -l":  sharing.ErrInvalid,
		"compute-policy -l --fast":             sharing.ErrInvalid,
		"compute-policy -i GPU-1 -l":           sharing.ErrNotFound,
		"compute-policy -i 3 -l":               sharing.ErrUnavailable,
	} {
		if err := Run(t.Context(), dir, strings.Fields(line), &bytes.Buffer{}); !errors.Is(err, want) {
			t.Errorf("%q: %v, want %v", line, err, want)
		}
	}
}
