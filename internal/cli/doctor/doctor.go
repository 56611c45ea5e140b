// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package doctor is kerf doctor: it checks a machine or a cluster and suggests fixes.
package doctor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"

	"github.com/kerf-gpu/kerf/api/gpunode"
	"github.com/kerf-gpu/kerf/internal/cli/command"
	"github.com/kerf-gpu/kerf/internal/cli/doctor/bundle"
	"github.com/kerf-gpu/kerf/internal/kube/access"
	"github.com/kerf-gpu/kerf/internal/present"
	"github.com/kerf-gpu/kerf/sharing"
)

// Machine is the doctor of a machine. socket is that of the container runtime, if it is not at a default path.
type Machine struct {
	// Check checks this machine. output is the form, and empty for people.
	Check func(ctx context.Context, a *command.App, output, socket string) error
	// Bundle adds what this machine tells of Kerf.
	Bundle func(ctx context.Context, a *command.App, socket string, to *bundle.Archive)
}

// ClusterCommands is kerf doctor for a cluster only. The check of a machine needs Linux.
func ClusterCommands(a *command.App) []*cobra.Command {
	c := doctorCommand(a, Machine{
		Check: func(ctx context.Context, a *command.App, output, _ string) error {
			return clusterDoctor(ctx, a, output)
		},
		Bundle: func(ctx context.Context, a *command.App, _ string, to *bundle.Archive) { clusterBundle(ctx, a, to) },
	})
	c.Short = "Check the cluster and suggest fixes"
	c.Long = `Check a cluster: show which nodes serve pods, and what prevents the others. To
check a machine, use kerf doctor on it. --bundle writes a support archive.

Exit status: 1 if a node with the label kerf.dev/deploy-agent=true does not
serve pods.`
	return []*cobra.Command{c}
}

// Commands is kerf doctor with this check of the machine.
func Commands(machine Machine) command.Family {
	return func(a *command.App) []*cobra.Command {
		c := doctorCommand(a, machine)
		c.Flags().String("runtime-socket", "", "socket of the container runtime, if not at a default path")
		return []*cobra.Command{c}
	}
}

func doctorCommand(a *command.App, machine Machine) *cobra.Command {
	var output, node, file string
	c := &cobra.Command{
		Use:   "doctor",
		Short: "Check this machine or cluster and suggest fixes",
		Long: `Check this machine and suggest fixes. The command works without an agent and
without a driver. It creates and removes one cgroup, and changes nothing else.

For a cluster (kubectl kerf doctor, with --context, or in a pod without
/run/kerf), it shows which nodes serve pods, and what prevents the others. It
also names nodes and namespaces with labels or taints of an earlier version.
With --node, it prints the preset of the chart for that node. It reads the Node
and starts no Job, so that it works before the cluster can pull Kerf's images.

With --bundle, it writes a support archive: the result of the checks, config,
state, GPUNodes, versions, and recent events and logs. The archive has no
Secret, environment, annotation or token. Read it before you send it.

Exit status: 0 if a grant at level driver, exclusive or hardware is possible,
else 1. For a cluster: 1 if a node with the label kerf.dev/deploy-agent=true
does not serve pods.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if output != "" && output != "json" && output != "yaml" {
				return command.Misused(sharing.Invalid("--output", output, "write json or yaml, or leave it out",
					"is not a form of output"))
			}
			if err := checkCombination(c, ofCluster(c, a)); err != nil {
				return command.Misused(err)
			}
			if node != "" {
				return presetOfNode(c.Context(), a, node, output)
			}
			return diagnose(c, a, machine, output, file)
		},
	}
	c.Flags().StringVarP(&output, "output", "o", "", "json or yaml")
	c.Flags().StringVar(&file, "bundle", "", "new file for a support archive (tar.gz) without secrets")
	c.Flags().StringVar(&node, "node", "", "node of the cluster whose preset the command prints")
	command.Complete(c, "output", "json", "yaml")
	return c
}

// checkCombination rejects flags that have no effect next to others or in a cluster.
func checkCombination(c *cobra.Command, cluster bool) error {
	var errs []error
	for _, pair := range [][2]string{{"bundle", "node"}, {"runtime-socket", "node"}, {"output", "bundle"}} {
		if command.Changed(c, pair[0]) && command.Changed(c, pair[1]) {
			errs = append(errs, sharing.Invalid("--"+pair[0], c.Flag(pair[0]).Value.String(), "leave out one of them",
				"has no effect with --%s", pair[1]))
		}
	}
	if cluster && command.Changed(c, "runtime-socket") {
		errs = append(errs, sharing.Invalid("--runtime-socket", c.Flag("runtime-socket").Value.String(), "leave it out",
			"has no effect on a cluster"))
	}
	return errors.Join(errs...)
}

// diagnose checks the cluster or this machine, or writes the support archive of it.
func diagnose(c *cobra.Command, a *command.App, machine Machine, output, file string) error {
	socket := ""
	if f := c.Flags().Lookup("runtime-socket"); f != nil {
		socket = f.Value.String()
	}
	cluster := ofCluster(c, a)
	switch {
	case file != "" && cluster:
		return writeBundle(a, file, func(to *bundle.Archive) { clusterBundle(c.Context(), a, to) })
	case file != "":
		return writeBundle(a, file, func(to *bundle.Archive) { machine.Bundle(c.Context(), a, socket, to) })
	case cluster:
		return clusterDoctor(c.Context(), a, output)
	}
	return machine.Check(c.Context(), a, output, socket)
}

// ofCluster reports whether the cluster is meant, and not this machine. A pod without the folder of the agent's sockets
// has no view of its node.
func ofCluster(c *cobra.Command, a *command.App) bool {
	if command.Changed(c, "run-dir") || a.Getenv("KERF_DIR") != "" {
		return false
	}
	return a.Meant(c) || a.Getenv("KUBERNETES_SERVICE_HOST") != "" && !command.Exists(a.Dir)
}

// finding is the state of one node of a cluster, or of a namespace with labels of an earlier version.
type finding struct {
	Node      string `json:"node,omitempty"`
	Namespace string `json:"namespace,omitempty"`
	// Serves is true if containers of pods can get GPUs there. Reasons says why not; Notes has other facts.
	Serves  bool     `json:"serves"`
	Reasons []string `json:"reasons"`
	Notes   []string `json:"notes"`
}

// foreignGPUs is the resource of NVIDIA's device plugin.
const foreignGPUs = "nvidia.com/gpu"

func clusterDoctor(parent context.Context, a *command.App, output string) error {
	var found []finding
	err := a.WithCluster(parent, func(ctx context.Context, api *access.Client) (err error) {
		found, err = findings(ctx, api)
		return err
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
		return command.Fail(fmt.Errorf("no node has the label %s=true: label the nodes whose GPUs Kerf shares: %w",
			sharing.LabelNode, sharing.ErrNotFound))
	}
	for _, f := range found {
		if !f.Serves {
			return command.Fail(errors.New("some nodes or namespaces serve no pods"))
		}
	}
	return nil
}

// findings are those of all nodes with the label, and of what has labels of an earlier version.
func findings(ctx context.Context, api *access.Client) ([]finding, error) {
	p, err := command.Reported(ctx, api, time.Now())
	if err != nil {
		return nil, err
	}
	var nodes []corev1.Node
	if err := api.List(ctx, "/api/v1/nodes", url.Values{"labelSelector": {sharing.LabelNode + "=true"}},
		func(raw json.RawMessage) error {
			var n corev1.Node
			err := json.Unmarshal(raw, &n)
			nodes = append(nodes, n)
			return err
		}); err != nil {
		return nil, err //nolint:wrapcheck // it says what it did
	}
	more, err := renamed(ctx, api)
	return merged(examine(nodes, p), more), err
}

// examine evaluates each node with the label.
func examine(nodes []corev1.Node, p present.Cluster) []finding {
	reports := map[string]present.ClusterNode{}
	for _, n := range p.Nodes {
		reports[n.Name] = n
	}
	var out []finding
	for _, n := range nodes {
		f := finding{Node: n.Name, Reasons: []string{}, Notes: []string{}}
		r, ok := reports[n.Name]
		switch {
		case !ok:
			f.Reasons = append(f.Reasons, "no report from a kerf-agent: check its pod with kubectl -n "+
				command.SystemNamespace+" get pods -o wide")
		case r.Stale:
			f.Reasons = append(f.Reasons,
				fmt.Sprintf("the last report of its kerf-agent is from %s: check its pod on the node",
					r.LastSeen.UTC().Format(time.RFC3339)))
		case !r.Ready():
			f.Reasons = append(f.Reasons, strings.Split(r.Condition(gpunode.ConditionReady).Message, "\n")...)
		case len(r.GPUs) == 0:
			f.Reasons = append(f.Reasons, "it has no GPU: remove the label "+sharing.LabelNode+
				", or run kerf doctor on it")
		}
		if ok {
			f.Notes = append(f.Notes, notesOf(r)...)
		}
		if q := n.Status.Allocatable[foreignGPUs]; q.Value() > 0 {
			f.Notes = append(f.Notes, fmt.Sprintf("another device plugin advertises %d %s here: if these are the "+
				"same GPUs, two pods can get one GPU; see docs/operate/migrate.md", q.Value(), foreignGPUs))
		}
		f.Serves = len(f.Reasons) == 0
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
			notes = append(notes, fmt.Sprintf("GPU %s is cordoned: %s; to clear the mark: kerf uncordon %s", name,
				g.Cordoned, name))
		case len(g.Levels) == 0 && !g.MIG:
			notes = append(notes, fmt.Sprintf("GPU %s enforces no share: run kerf doctor on the node", name))
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
		name := f.Node
		if f.Namespace != "" {
			name = "namespace " + f.Namespace
		}
		fmt.Fprintf(&b, "%s %s\n", name, word)
		for _, w := range f.Reasons {
			fmt.Fprintf(&b, "  reason: %s\n", w)
		}
		for _, n := range f.Notes {
			fmt.Fprintf(&b, "  note:   %s\n", n)
		}
	}
	return b.String()
}
