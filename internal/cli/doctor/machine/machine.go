// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package machine is kerf doctor on a machine: it reads the facts, and writes the report. It needs Linux.
package machine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/kerf-gpu/kerf/internal/cli/command"
	clidoctor "github.com/kerf-gpu/kerf/internal/cli/doctor"
	"github.com/kerf-gpu/kerf/sharing/doctor"
)

// Doctor is the doctor of this machine.
func Doctor() clidoctor.Machine { return clidoctor.Machine{Check: check, Bundle: addTo} }

// examine checks this machine.
func examine(ctx context.Context, a *command.App, socket string) doctor.Report {
	return doctor.Examine(doctor.Gather(ctx, doctor.Where{
		Dir: a.Dir, Path: a.Getenv("PATH"), LibraryPath: a.Getenv("LD_LIBRARY_PATH"),
		DeviceRoot:    a.Getenv("NVIDIA_DEV_ROOT"),
		RuntimeSocket: socket,
	}))
}

func check(ctx context.Context, a *command.App, output, socket string) error {
	r := examine(ctx, a, socket)
	if err := showReport(a, r, output); err != nil {
		return command.Fail(err)
	}
	if !r.Enforced {
		return command.Fail(errors.New(
			"no grant at level driver, exclusive or hardware is possible on this machine; " +
				"solve the problems above"))
	}
	return nil
}

func showReport(a *command.App, r doctor.Report, output string) error {
	if output != "" {
		text, err := command.Encoded(output, r)
		if err != nil {
			return err
		}
		_, err = a.Out.Write(text)
		return err
	}
	return writeReport(a.Out, r, a.Colors())
}

// writeReport writes a report for people: the verdict, the problems with what they explain, and what is in order.
func writeReport(w io.Writer, r doctor.Report, color bool) error {
	var b strings.Builder
	b.WriteString(verdict(r) + "\n")
	for _, part := range []struct {
		title    string
		statuses []doctor.Status
	}{
		{"Problems", []doctor.Status{doctor.Missing}},
		{"Warnings", []doctor.Status{doctor.Warn, doctor.Unknown}},
		{"Other checks", []doctor.Status{doctor.OK, doctor.Info}},
	} {
		first := true
		for _, c := range r.Checks {
			if c.Cause != "" || !slices.Contains(part.statuses, c.Status) {
				continue
			}
			if first {
				b.WriteString("\n" + part.title + "\n")
				first = false
			}
			writeCheck(&b, r, c, color)
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// verdict is the first line of a report.
func verdict(r doctor.Report) string {
	levels := strings.Join(r.Levels, ", ")
	switch {
	case !r.Enforced && len(r.Levels) > 0:
		return "This machine enforces no grant at level driver or above. Levels: " + levels + "."
	case !r.Enforced:
		return "This machine cannot enforce GPU grants."
	case r.FromAgent:
		return "This machine enforces GPU grants. Levels: " + levels + "."
	}
	return "This machine can enforce GPU grants. Levels without an agent to ask, as a forecast: " + levels + "."
}

// writeCheck writes one check, and the names of the checks that it explains.
func writeCheck(b *strings.Builder, r doctor.Report, c doctor.Check, color bool) {
	mark := fmt.Sprintf("%-8s", c.Status)
	if color {
		mark = "\x1b[" + markColor(c.Status) + "m" + mark + "\x1b[0m"
	}
	fmt.Fprintf(b, "  %s%-18s %s\n", mark, c.Name, c.Found)
	if c.Status == doctor.OK || c.Status == doctor.Info {
		return
	}
	fmt.Fprintf(b, "%29seffect: %s\n", "", c.Effect)
	if c.Fix != "" {
		fmt.Fprintf(b, "%29sfix:    %s\n", "", c.Fix)
	}
	var also []string
	for _, other := range r.Checks {
		if other.Cause == c.Name {
			also = append(also, other.Name)
		}
	}
	if len(also) > 0 {
		fmt.Fprintf(b, "%29salso:   %s\n", "", strings.Join(also, ", "))
	}
}

func markColor(s doctor.Status) string {
	switch s {
	case doctor.OK:
		return "32"
	case doctor.Missing:
		return "31"
	case doctor.Info:
		return "0"
	case doctor.Warn, doctor.Unknown:
	}
	return "33"
}
