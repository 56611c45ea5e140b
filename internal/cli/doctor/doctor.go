// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package doctor is kerf doctor: what a machine or a cluster can do, and what it lacks.
package doctor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"

	"github.com/kerf-gpu/kerf/internal/cli/command"
	"github.com/kerf-gpu/kerf/internal/kube/access"
	"github.com/kerf-gpu/kerf/internal/present"
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

// finding is what kerf doctor says of one node of a cluster.
type finding struct {
	Node string `json:"node"`
	// Serves is true when pods' containers can get GPUs there; Why says what keeps them from it, and Notes what else is to
	// be known.
	Serves bool     `json:"serves"`
	Why    []string `json:"why"`
	Notes  []string `json:"notes"`
}

// foreignGPUs is what NVIDIA's device plugin hands GPUs out as.
const foreignGPUs = "nvidia.com/gpu"

func clusterDoctor(parent context.Context, a *command.App, output string) error {
	var found []finding
	err := a.WithCluster(parent, func(ctx context.Context, api *access.Client) error {
		p, err := command.Reported(ctx, api, time.Now())
		if err != nil {
			return err
		}
		var nodes []corev1.Node
		if err := api.List(ctx, "/api/v1/nodes", url.Values{"labelSelector": {sharing.LabelNode + "=true"}}, func(raw json.RawMessage) error {
			var n corev1.Node
			err := json.Unmarshal(raw, &n)
			nodes = append(nodes, n)
			return err
		}); err != nil {
			return err //nolint:wrapcheck // it says what it did
		}
		found = examine(nodes, p)
		return nil
	})
	if err != nil {
		return command.Fail(err)
	}
	if output == "" {
		_, err = a.Out.Write([]byte(findingsText(found, a.Colors())))
	} else {
		var text []byte
		if text, err = command.Encoded(output, append([]finding{}, found...)); err == nil {
			_, err = a.Out.Write(text)
		}
	}
	if err != nil {
		return command.Fail(err)
	}
	if len(found) == 0 {
		return command.Fail(fmt.Errorf("no node has the label %s=true: give it to those whose GPUs Kerf is to share: %w", sharing.LabelNode, sharing.ErrNotFound))
	}
	for _, f := range found {
		if !f.Serves {
			return command.Fail(errors.New("not every node serves pods"))
		}
	}
	return nil
}

// examine looks at each node that is meant to serve pods.
func examine(nodes []corev1.Node, p present.Cluster) []finding {
	reports := map[string]present.ClusterNode{}
	for _, n := range p.Nodes {
		reports[n.Name] = n
	}
	var out []finding
	for _, n := range nodes {
		f := finding{Node: n.Name, Why: []string{}, Notes: []string{}}
		r, ok := reports[n.Name]
		switch {
		case !ok:
			f.Why = append(f.Why, "no kerf-agent has reported: look at its pod on the node, kubectl -n "+command.SystemNamespace+" get pods -o wide")
		case r.Stale:
			f.Why = append(f.Why, fmt.Sprintf("its kerf-agent was heard from last at %s: look at its pod on the node", r.Heard.UTC().Format(time.RFC3339)))
		case !r.Ready:
			f.Why = append(f.Why, r.NotReady...)
		case len(r.GPUs) == 0:
			f.Why = append(f.Why, "it has no GPU: take the label "+sharing.LabelNode+" off, or see kerf doctor there")
		}
		if ok {
			f.Notes = append(f.Notes, notesOf(r)...)
		}
		if q := n.Status.Allocatable[foreignGPUs]; q.Value() > 0 {
			f.Notes = append(f.Notes, fmt.Sprintf("another device plugin hands out %d %s here: where these are the same GPUs, two pods get one that each has for itself; see docs/operate/migrate.md", q.Value(), foreignGPUs))
		}
		f.Serves = len(f.Why) == 0
		out = append(out, f)
	}
	return out
}

func notesOf(r present.ClusterNode) (notes []string) {
	for _, g := range r.GPUs {
		name := present.GPUName(r.Name, g)
		switch {
		case g.Health != sharing.HealthOK.String():
			notes = append(notes, fmt.Sprintf("GPU %s is %s: %s", name, g.Health, g.HealthReason))
		case g.Cordoned != "":
			notes = append(notes, fmt.Sprintf("GPU %s is cordoned: %s; to clear the mark: kerf uncordon %s", name, g.Cordoned, name))
		case len(g.Levels) == 0 && !g.MIG:
			notes = append(notes, fmt.Sprintf("GPU %s holds no share to its size: see kerf doctor on the node", name))
		}
	}
	return notes
}

func findingsText(found []finding, color bool) string {
	var b strings.Builder
	for _, f := range found {
		word, code := "serves pods", "32"
		if !f.Serves {
			word, code = "does not serve pods", "31"
		}
		if color {
			word = "\x1b[" + code + "m" + word + "\x1b[0m"
		}
		fmt.Fprintf(&b, "%s %s\n", f.Node, word)
		for _, w := range f.Why {
			fmt.Fprintf(&b, "  why:  %s\n", w)
		}
		for _, n := range f.Notes {
			fmt.Fprintf(&b, "  note: %s\n", n)
		}
	}
	return b.String()
}
