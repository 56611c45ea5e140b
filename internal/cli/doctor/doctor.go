// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package doctor is kerf doctor: what a machine or a cluster can do, and what it lacks.
package doctor

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kerf-gpu/kerf/internal/cli/command"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/doctor"
)

// Commands are the commands of this package.
func Commands(a *command.App) []*cobra.Command {
	return []*cobra.Command{doctorCommand(a)}
}

func doctorCommand(a *command.App) *cobra.Command {
	var output, socket string
	c := &cobra.Command{
		Use:   "doctor",
		Short: "Tell what this machine can do, and how to mend what it lacks",
		Long: `Tell what this machine can do, and how to mend what it lacks. Works without an agent and without a driver.
It makes a cgroup and removes it, and changes nothing else.

Of a cluster (kubectl kerf doctor, or with --context) it tells which nodes serve pods, and what keeps the others from it.

Exit status: 0 when a grant at level driver, exclusive or hardware is possible here, 1 otherwise; of a cluster 1 when a
node that is meant to serve pods does not.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if output != "" && output != "json" && output != "yaml" {
				return command.Misused(sharing.Invalid("--output", output, "write json or yaml, or leave it out", "is not a form of output"))
			}
			if a.Meant(c) && !command.Changed(c, "dir") {
				return clusterDoctor(c.Context(), a, output)
			}
			r := doctor.Examine(doctor.Gather(c.Context(), doctor.Where{
				Dir: a.Dir, Path: a.Getenv("PATH"), LibraryPath: a.Getenv("LD_LIBRARY_PATH"), DeviceRoot: a.Getenv("NVIDIA_DEV_ROOT"),
				RuntimeSocket: socket,
			}))
			if err := showReport(a, r, output); err != nil {
				return command.Fail(err)
			}
			if !r.Enforced {
				return command.Fail(errors.New("no grant at an enforced level (driver, exclusive or hardware) is possible on this machine: see what is missing above"))
			}
			return nil
		},
	}
	c.Flags().StringVarP(&output, "output", "o", "", "json or yaml")
	c.Flags().StringVar(&socket, "runtime-socket", "", "socket of the container runtime, where it is not in its usual place")
	command.Complete(c, "output", "json", "yaml")
	return c
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

// writeReport is a report for people: a line per check, what it means below when it is not ok.
func writeReport(w io.Writer, r doctor.Report, color bool) error {
	var b strings.Builder
	for _, c := range r.Checks {
		mark := fmt.Sprintf("%-8s", c.Status)
		if color {
			mark = "\x1b[" + markColor(c.Status) + "m" + mark + "\x1b[0m"
		}
		fmt.Fprintf(&b, "%s%-16s %s\n", mark, c.Name, c.Seen)
		if c.Status == doctor.OK {
			continue
		}
		fmt.Fprintf(&b, "%24s means: %s\n", "", c.Means)
		if c.Mend != "" {
			fmt.Fprintf(&b, "%24s mend:  %s\n", "", c.Mend)
		}
	}
	levels, source := "none", "forecast"
	if len(r.Levels) > 0 {
		levels = strings.Join(r.Levels, ", ")
	}
	if r.FromAgent {
		source = "told by the agent"
	}
	fmt.Fprintf(&b, "\nenforcement levels here (%s): %s\n", source, levels)
	_, err := io.WriteString(w, b.String())
	return err
}

func markColor(s doctor.Status) string {
	switch s {
	case doctor.OK:
		return "32"
	case doctor.Missing:
		return "31"
	case doctor.Warn, doctor.Unknown:
	}
	return "33"
}
