// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package explain is kerf describe pod and kerf suggest: why a pod is pending, and which memory fraction a program
// must use.
package explain

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/kerf-gpu/kerf/api/gpunode"
	"github.com/kerf-gpu/kerf/internal/cli/command"
	"github.com/kerf-gpu/kerf/internal/kube/access"
	"github.com/kerf-gpu/kerf/internal/kube/survey"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/allocator/cluster"
	"github.com/kerf-gpu/kerf/sharing/config"
	"github.com/kerf-gpu/kerf/sharing/scheduler"
)

// heardFor is how long a report counts whose heartbeat could not be read.
const heardFor = time.Hour

// Commands are the commands of this package.
func Commands(a *command.App) []*cobra.Command {
	return []*cobra.Command{
		group("describe", "Describe why a pod has its GPU, or why it is pending", describePodCommand(a)),
		group("suggest", "Suggest a setting for a program", suggestUtilizationCommand(a)),
	}
}

func group(name, short string, sub *cobra.Command) *cobra.Command {
	c := &cobra.Command{Use: name, Short: short, Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() }}
	c.AddCommand(sub)
	return c
}

func describePodCommand(a *command.App) *cobra.Command {
	var output string
	var most int
	c := &cobra.Command{
		Use:   "pod NAME",
		Short: "Describe why a pod has its GPU, or why it is pending",
		Long: `Describe why a pod has its GPU, or why it is pending.

The command reads nodes, pods and GPUNodes. If it may, it also reads the pod's
events, the heartbeats of the agents and their config. It uses the same code as
kerf-scheduler. The result shows the cluster as it is now, without the pod. The
events show the state at the time of the decision. The command ignores CPU, host
memory, taints and affinity.

For a pod with ResourceClaims, it reads the claims and ResourceSlices. It then
does not evaluate CEL selectors and constraints. For a pending pod with limits,
it shows the claim to write if nodes give GPUs only by ResourceClaim.

Exit status: 0 if the pod has its GPU, 3 if it is pending, 1 on an error.`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if output != "" && output != "json" && output != "yaml" {
				return command.Misused(sharing.Invalid("--output", output, "write json or yaml, or leave it out",
					"is not a form of output"))
			}
			if most < 1 {
				return command.Misused(sharing.Invalid("--nodes", fmt.Sprint(most), "write 1 or more", "is too few"))
			}
			ctx, cancel := context.WithTimeout(c.Context(), command.ListTimeout)
			defer cancel()
			api, err := a.Cluster()
			if err != nil {
				return command.Fail(fmt.Errorf("describe pod %s: %w", args[0], err))
			}
			defer api.Close()
			x, err := Pod(ctx, api, api.Namespace, args[0])
			if err != nil {
				return command.Fail(fmt.Errorf("describe pod %s/%s: %w", api.Namespace, args[0], err))
			}
			switch output {
			case "json", "yaml":
				var text []byte
				if text, err = command.Encoded(output, x); err == nil {
					_, err = a.Out.Write(text)
				}
			default:
				err = x.write(a.Out, most)
			}
			if err == nil && x.PendingReason != "" {
				return command.Exit(exitWaits, errors.New("pod "+api.Namespace+"/"+args[0]+" waits: "+x.PendingReason))
			}
			return command.Fail(err)
		},
	}
	f := c.Flags()
	f.StringVarP(&output, "output", "o", "", "json or yaml")
	f.IntVar(&most, "nodes", 10, "how many nodes to show of those that fit, and of those that do not; JSON has all")
	command.Complete(c, "output", "json", "yaml")
	return c
}

// exitWaits is the exit status for a pod that waits.
const exitWaits = 3

// Pod reads the cluster and evaluates the pod against it.
func Pod(ctx context.Context, api *access.Client, namespace, name string) (Explanation, error) {
	found, more, err := survey.TakeFor(ctx, api, namespace, name)
	if err != nil {
		return Explanation{}, err
	}
	at := slices.IndexFunc(found.Pods, func(p survey.Pod) bool { return p.Namespace == namespace && p.Name == name })
	if at < 0 {
		return Explanation{}, fmt.Errorf("there is none, or it is at its end: %w", sharing.ErrNotFound)
	}
	now := time.Now()
	state, left, err := stateOf(found, more, now)
	if err != nil {
		return Explanation{}, err
	}
	w, ok, err := wantOf(found.Pods[at])
	if err != nil {
		return Explanation{}, err
	}
	if !ok && len(found.Pods[at].Claims) > 0 {
		return byClaims(ctx, api, found, more, found.Pods[at], now)
	}
	if !ok {
		return Explanation{}, fmt.Errorf("it requests no GPU of Kerf's: %w", sharing.ErrInvalid)
	}
	state.Learn(w)
	x, err := byLimits(found, found.Pods[at], state, w, now)
	x.Left, x.Events = slices.Concat(more.Left, left), eventsOf(more)
	return x, err
}

// byLimits explains a pod that requests GPUs by limits.
func byLimits(found survey.Cluster, p survey.Pod, state *scheduler.ClusterState, w scheduler.PodRequest,
	now time.Time) (Explanation, error) {
	x := Explanation{Pod: p.Name, Namespace: p.Namespace, UID: w.UID, Needs: w.Needs(),
		ComputedAt: now.UTC().Truncate(time.Second)}
	if s, on := state.Standing(w.UID); on {
		x.stands(s)
	} else if x.PendingReason = state.Explain(w, now); x.PendingReason == "" {
		x.PendingReason = "nodes have enough free for it now; its events state the other reasons"
	}
	for _, answer := range state.Answers(w, freeCPU(found, w.UID), now) {
		x.Nodes = append(x.Nodes, answered(answer))
	}
	if x.PendingReason == "" {
		return x, nil
	}
	var err error
	x.Remedy, err = claimInstead(found, p)
	return x, err
}

func eventsOf(more survey.More) (out []said) {
	for _, e := range more.Events {
		out = append(out, said{Reason: e.Reason, Message: e.Message, From: e.From, Last: e.Last, Count: e.Count})
	}
	return out
}

// booksOf builds the cluster state, and one sentence for each thing that it could not use.
func stateOf(c survey.Cluster, more survey.More, now time.Time) (b *scheduler.ClusterState, left []string, err error) {
	b = scheduler.New()
	if files := config.FilesOf(more.Config); len(files) > 0 {
		doc, err := config.DecodeFiles(files...)
		if err != nil {
			return nil, nil, fmt.Errorf("read the agents' configuration: %w", err)
		}
		b.Configure(doc)
	}
	for _, n := range c.Nodes {
		b.Machine(n.Name, scheduler.Machine{CPU: cluster.Milli(n.MilliCPU), Memory: n.Memory,
			Allocatable: n.Allocatable})
		raw, ok := c.Reports[n.Name]
		if !ok {
			continue
		}
		s, err := gpunode.ReadStatus(raw)
		if err != nil {
			return nil, nil, fmt.Errorf("node %s: %w", n.Name, err)
		}
		b.Report(n.Name, s)
		if beat, ok := more.Heartbeats[n.Name]; ok {
			b.Heartbeat(n.Name, beat.Renewed, beat.Valid, now)
		} else if len(more.Heartbeats) == 0 {
			b.Heartbeat(n.Name, now, heardFor, now) // heartbeats are not readable here
		}
	}
	for _, p := range c.Pods {
		w, ok, err := wantOf(p)
		switch {
		case err != nil:
			left = append(left, fmt.Sprintf("pod %s/%s: %v", p.Namespace, p.Name, err))
		case ok:
			b.Pod(p.Pod, w, now)
		}
	}
	return b, left, nil
}

func wantOf(p survey.Pod) (scheduler.PodRequest, bool, error) {
	w, ok, err := scheduler.PodRequestOf(p.Pod)
	w.CPU, w.Memory = cluster.Milli(p.MilliCPU), p.Memory
	return w, ok, err
}

// freeCPU is what the machines have without the pod.
func freeCPU(c survey.Cluster, without string) map[string]cluster.Milli {
	free := map[string]cluster.Milli{}
	for _, n := range c.Nodes {
		free[n.Name] = cluster.Milli(n.MilliCPU)
	}
	for _, p := range c.Pods {
		if p.Node != "" && p.UID != without {
			free[p.Node] = max(0, free[p.Node]-cluster.Milli(p.MilliCPU))
		}
	}
	return free
}
