// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package smi does what the simulated node's nvidia-smi (sim/cmd/nvidia-smi) cannot ask of NVML: the time slice. It
// takes
//
//	nvidia-smi compute-policy -i UUID[,UUID] --set-timeslice N
//	nvidia-smi compute-policy [-i UUID[,UUID]] --list
//
// and promises no more than the driver's program: its output is for people, and its exit status says whether all was
// done. Every other argument is refused. Only who may speak to the daemon's control socket gets an answer.
package smi

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sim/control"
	"github.com/kerf-gpu/kerf/sim/model"
)

// Name is that of the program that people call; PolicyName is that of this part, which Name runs for compute-policy.
const (
	Name       = "nvidia-smi"
	PolicyName = "nvidia-smi-compute-policy"
)

// call is what a command line asks for.
type call struct {
	ids []string // none: all GPUs
	set *model.TimeSlice
}

// Run does what the arguments, without the program's name, ask of the node in dir. Errors: a sharing.FieldError for
// wrong use, sharing.ErrNotFound for a GPU that is not there, else those of control.Call.
func Run(ctx context.Context, dir string, args []string, out io.Writer) error {
	c, err := parse(args)
	if err != nil {
		return err
	}
	var s control.Status
	if err := control.Call(ctx, dir, control.Request{Command: control.CmdStatus}, &s); err != nil {
		return err
	}
	gpus, err := choose(s.GPUs, c.ids)
	if err != nil {
		return err
	}
	if c.set == nil {
		return list(out, gpus)
	}
	change := control.Set{Change: model.Change{TimeSlice: c.set}}
	for _, g := range gpus {
		change.GPUs = append(change.GPUs, g.Index)
	}
	if err := control.Call(ctx, dir, control.Request{Command: control.CmdSet, Set: &change}, nil); err != nil {
		return err
	}
	for _, g := range gpus {
		if _, err := fmt.Fprintf(out, "Successfully set timeslice to %s for GPU %d\n", *c.set, g.Index); err != nil {
			return err
		}
	}
	return nil
}

// parse reads a command line.
func parse(args []string) (c call, err error) {
	if len(args) == 0 || args[0] != "compute-policy" {
		return c, sharing.Invalid("command", strings.Join(args, " "), "write compute-policy", "is not simulated")
	}
	listed := false
	for rest := args[1:]; len(rest) > 0; rest = rest[1:] {
		flag, value, inline := strings.Cut(rest[0], "=")
		if flag == "-l" || flag == "--list" {
			listed = true
			continue
		}
		if flag != "-i" && flag != "--id" && flag != "--set-timeslice" {
			return c, sharing.Invalid("option", rest[0], "write -i, --list or --set-timeslice", "is not simulated")
		}
		if !inline {
			if len(rest) < 2 {
				return c, sharing.Invalid("option", flag, "add it", "lacks its value")
			}
			rest = rest[1:]
			value = rest[0]
		}
		if flag != "--set-timeslice" {
			c.ids = strings.Split(value, ",")
			continue
		}
		n, err := strconv.ParseUint(value, 10, 8)
		if err != nil || n > uint64(model.TimeSliceLong) {
			return c, sharing.Invalid(flag, value, "write 0 to 3", "is not a time slice")
		}
		slice := model.TimeSlice(n)
		c.set = &slice
	}
	if listed == (c.set != nil) {
		return c, sharing.Invalid("option", "", "write --list or --set-timeslice", "is missing, or one too many")
	}
	return c, nil
}

// choose finds GPUs by UUID or index.
func choose(all []control.GPU, ids []string) ([]control.GPU, error) {
	if ids == nil {
		return all, nil
	}
	var out []control.GPU
	for _, id := range ids {
		i := slices.IndexFunc(all, func(g control.GPU) bool { return g.UUID == id || strconv.Itoa(g.Index) == id })
		switch {
		case i < 0:
			return nil, fmt.Errorf("gpu %q: %w", id, sharing.ErrNotFound)
		case all[i].Lost:
			return nil, fmt.Errorf("gpu %q is lost: %w", id, sharing.ErrUnavailable)
		}
		out = append(out, all[i])
	}
	return out, nil
}

// list shows the GPUs' time slices in a box, as that program does.
func list(out io.Writer, gpus []control.GPU) error {
	lines := []string{"GPU compute policies:", "GPU     Time Slice", strings.Repeat("=", 35)}
	for _, g := range gpus {
		lines = append(lines, fmt.Sprintf("%3d     %s", g.Index, g.TimeSlice))
	}
	edge := "+" + strings.Repeat("-", 37) + "+\n"
	var b strings.Builder
	b.WriteString(edge)
	for _, l := range lines {
		fmt.Fprintf(&b, "| %-35s |\n", l)
	}
	b.WriteString(edge)
	_, err := io.WriteString(out, b.String())
	return err
}
