// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sim/control"
	"github.com/kerf-gpu/kerf/sim/machine"
)

func showCommands() []*cobra.Command {
	return []*cobra.Command{
		show("gpus", "Show the GPUs and their state", control.CmdStatus,
			func(s control.Status) []control.GPU { return s.GPUs }, gpuTable),
		show("processes", "Show who holds what: the driver's own truth", control.CmdProcesses, same[[]control.Process],
			processTable),
		show("limits", "Show the memory limits on cgroups", control.CmdLimits, same[[]control.Limit], limitTable),
	}
}

func same[T any](v T) T { return v }

// show makes a command that prints a part of what the daemon answers.
func show[A, R any](name, short string, ask1 control.Command, part func(A) []R,
	table func([]R) [][]string) *cobra.Command {
	var dir, output string
	cmd := &cobra.Command{
		Use:   name + " --dir DIR",
		Short: short,
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkOutput(output); err != nil {
				return err
			}
			var a A
			if err := ask(cmd.Context(), dir, control.Request{Command: ask1}, &a); err != nil {
				return err
			}
			rows := part(a)
			return write(cmd.OutOrStdout(), output, rows, table(rows))
		},
	}
	dirFlag(cmd, &dir)
	outputFlag(cmd, &output)
	return cmd
}

// write prints a value as JSON or a table.
func write(w io.Writer, output string, v any, table [][]string) error {
	if output == "json" {
		enc := json.NewEncoder(w)
		enc.SetIndent("", "  ")
		return enc.Encode(v)
	}
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, row := range table {
		if _, err := fmt.Fprintln(tw, strings.Join(row, "\t")); err != nil {
			return err
		}
	}
	return tw.Flush()
}

func mib(b sharing.Bytes) string { return strconv.FormatUint(uint64(b/sharing.MiB), 10) }

func gpuTable(gpus []control.GPU) [][]string {
	rows := [][]string{{"GPU", "MODEL", "UUID", "USED MIB", "TOTAL MIB", "UTIL", "STATE"}}
	for _, g := range gpus {
		state := "ok"
		switch {
		case g.Lost:
			state = "lost"
		case g.RecoveryAction != "None":
			state = "needs " + strings.ToLower(g.RecoveryAction)
		case g.MIG:
			state = fmt.Sprintf("MIG, %d instances", len(g.Instances))
		}
		if g.LatencyMS > 0 {
			state += fmt.Sprintf(", %gms late", g.LatencyMS)
		}
		rows = append(rows, []string{strconv.Itoa(g.Index), g.Model, g.UUID, mib(g.UsedBytes), mib(g.MemoryBytes),
			strconv.Itoa(g.Utilization) + "%", state})
	}
	return rows
}

func processTable(list []control.Process) [][]string {
	rows := [][]string{{"PID", "STATE", "GPU", "MIB", "CGROUP"}}
	for _, p := range list {
		state := "runs"
		if p.Ended {
			state = "ended"
		}
		rows = append(rows, []string{strconv.Itoa(p.PID), state, strconv.Itoa(p.GPUIndex), mib(p.Bytes),
			strconv.QuoteToGraphic(p.Cgroup)})
	}
	return rows
}

func limitTable(list []control.Limit) [][]string {
	rows := [][]string{{"GPU", "USED MIB", "SOFT MIB", "HARD MIB", "CGROUP"}}
	for _, l := range list {
		hard := "none"
		if l.HardBytes != nil {
			hard = mib(*l.HardBytes)
		}
		rows = append(rows, []string{strconv.Itoa(l.GPUIndex), mib(l.UsedBytes), mib(l.SoftBytes), hard,
			strconv.QuoteToGraphic(l.Cgroup)})
	}
	return rows
}

// machineRow is a built-in machine as JSON shows it.
type machineRow struct {
	Name        string `json:"name"`
	Description string `json:"description"`
	GPUs        int    `json:"gpus"`
}

type driverRow struct {
	Name         string `json:"name"`
	Version      string `json:"version"`
	CUDA         string `json:"cuda"`
	MemoryLimits bool   `json:"memory_limits"`
}

func machinesCommand() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "machines",
		Short: "List the machines and drivers that can be simulated",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkOutput(output); err != nil {
				return err
			}
			var doc struct {
				Machines []machineRow `json:"machines"`
				Drivers  []driverRow  `json:"drivers"`
			}
			table := [][]string{{"MACHINE", "GPUS", "DESCRIPTION"}}
			for _, name := range machine.Names() {
				m, err := machine.Load(name)
				if err != nil {
					return err
				}
				doc.Machines = append(doc.Machines, machineRow{Name: m.Name, Description: m.Description,
					GPUs: len(m.GPUs)})
				table = append(table, []string{m.Name, strconv.Itoa(len(m.GPUs)), m.Description})
			}
			table = append(table, nil, []string{"DRIVER", "CUDA", "DESCRIPTION"})
			for _, d := range machine.Drivers() {
				row := driverRow{Name: d.Name, Version: d.Version,
					CUDA: fmt.Sprintf("%d.%d", d.CUDA/1000, d.CUDA%1000/10), MemoryLimits: d.MemoryLimits}
				what := "without memory limits on cgroups"
				if d.MemoryLimits {
					what = "with memory limits on cgroups"
				}
				doc.Drivers = append(doc.Drivers, row)
				table = append(table, []string{d.Name, row.CUDA, d.Version + ", " + what})
			}
			return write(cmd.OutOrStdout(), output, doc, table)
		},
	}
	outputFlag(cmd, &output)
	return cmd
}
