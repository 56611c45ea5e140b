// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package defrag reads a cluster for a defragmentation, and carries one out: it stores its record in a ConfigMap,
// cordons GPUs and evicts pods. It decides nothing; packages sharing/defrag and below do.
package defrag

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kerf-gpu/kerf/api/gpunode"
	"github.com/kerf-gpu/kerf/internal/kube/access"
	"github.com/kerf-gpu/kerf/internal/kube/survey"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/allocator/cluster"
	"github.com/kerf-gpu/kerf/sharing/config"
	planner "github.com/kerf-gpu/kerf/sharing/defrag"
	"github.com/kerf-gpu/kerf/sharing/defrag/state"
	"github.com/kerf-gpu/kerf/sharing/scheduler"
)

// heardFor is how long a report counts whose heartbeat could not be read.
const heardFor = time.Hour

// Options say which pods may be moved.
type Options struct {
	// PriorityClasses are those whose pods may be moved, in addition to the pods of namespaces with the label. Any
	// lets every pod move that a controller replaces.
	PriorityClasses []string
	Any             bool
	Limits          planner.Limits
}

// rules reads which namespaces let Kerf move their pods. Without them, the rules have the options only.
func (o Options) rules(ctx context.Context, api *access.Client) (state.Rules, error) {
	r := state.Rules{PriorityClasses: o.PriorityClasses, Any: o.Any}
	var err error
	if r.Namespaces, err = survey.Namespaces(ctx, api, sharing.LabelDefrag, "true"); err != nil {
		return r, fmt.Errorf("read namespaces: %w", err)
	}
	return r, nil
}

// Cluster is what was read.
type Cluster struct {
	State *state.ClusterState
	// Pods are the pods with a request for GPUs, by UID.
	Pods map[string]survey.Pod
	// Left has a sentence for each thing that could not be read.
	Left []string
}

// Read reads the cluster. Its errors are those of the survey.
func Read(ctx context.Context, api *access.Client, o Options, now time.Time) (Cluster, error) {
	found, err := survey.Take(ctx, api)
	if err != nil {
		return Cluster{}, err
	}
	out := Cluster{Pods: map[string]survey.Pod{}}
	note := func(err error) {
		if err != nil {
			out.Left = append(out.Left, err.Error())
		}
	}
	beats, err := survey.Heartbeats(ctx, api)
	note(err)
	beatsErr := err
	files, err := survey.Config(ctx, api)
	if !errors.Is(err, sharing.ErrNotFound) { // Agents can have their config without a ConfigMap.
		note(err)
	}
	in := state.Input{State: scheduler.New(), Free: freeOf(found), Limits: o.Limits, Now: now}
	if in.Rules, err = o.rules(ctx, api); err != nil {
		note(err)
	}
	budgets, err := survey.Budgets(ctx, api)
	if err != nil {
		return Cluster{}, fmt.Errorf("read disruption budgets: %w", err) // moves could break one
	}
	for _, b := range budgets {
		in.Budgets = append(in.Budgets, b.Allowed)
	}
	if err := configure(in.State, files); err != nil {
		return Cluster{}, err
	}
	if err := report(in.State, found, beats, beatsErr != nil, now); err != nil {
		return Cluster{}, err
	}
	for _, p := range found.Pods {
		w, ok, err := scheduler.PodRequestOf(p.Pod)
		if err != nil || !ok {
			continue // its node rejects it, or it needs no GPU
		}
		w.CPU, w.Memory = cluster.Milli(p.MilliCPU), p.Memory
		in.State.Pod(p.Pod, w, now)
		in.Pods = append(in.Pods, podOf(p, w, budgets))
		out.Pods[p.UID] = p
	}
	out.State = state.New(in)
	return out, nil
}

// podOf is a pod as the planner needs it.
func podOf(p survey.Pod, w scheduler.PodRequest, budgets []survey.DisruptionBudget) state.Pod {
	out := state.Pod{Pod: p.Pod, Request: w, Owner: p.Owner, Fixed: p.Fixed, Ending: p.Ending, Gang: p.Gang,
		Class: p.PriorityClass, Karpenter: p.DoNotDisrupt}
	if p.Ready {
		out.Started = p.Started
	}
	for i := range budgets {
		if budgets[i].Covers(&p) {
			out.Budgets = append(out.Budgets, i)
		}
	}
	return out
}

// configure gives the state the config of the agents.
func configure(to *scheduler.ClusterState, data map[string]string) error {
	files := config.FilesOf(data)
	if len(files) == 0 {
		return nil
	}
	c, err := config.DecodeFiles(files...)
	if err != nil {
		return fmt.Errorf("read the agents' configuration: %w", err)
	}
	to.Configure(c)
	return nil
}

// report gives the state the nodes and what their agents report. Without heartbeats, every report counts.
func report(to *scheduler.ClusterState, found survey.Cluster, beats map[string]survey.Heartbeat, unread bool,
	now time.Time) error {
	for _, n := range found.Nodes {
		to.Machine(n.Name, scheduler.Machine{CPU: cluster.Milli(n.MilliCPU), Memory: n.Memory,
			Allocatable: n.Allocatable})
		raw, ok := found.Reports[n.Name]
		if !ok {
			continue
		}
		s, err := gpunode.ReadStatus(raw)
		if err != nil {
			return fmt.Errorf("read gpunode %s: %w", n.Name, err)
		}
		to.Report(n.Name, s)
		if beat, ok := beats[n.Name]; ok {
			to.Heartbeat(n.Name, beat.Renewed, beat.Valid, now)
		} else if unread {
			to.Heartbeat(n.Name, now, heardFor, now)
		}
	}
	return nil
}

// freeOf is what the machines have free in addition to GPUs.
func freeOf(found survey.Cluster) map[string]scheduler.Free {
	out := map[string]scheduler.Free{}
	for _, n := range found.Nodes {
		out[n.Name] = scheduler.Free{CPU: cluster.Milli(n.MilliCPU), Memory: n.Memory, Closed: n.Closed}
	}
	for _, p := range found.Pods {
		f, ok := out[p.Node]
		if !ok {
			continue
		}
		f.CPU, f.Memory = f.CPU-cluster.Milli(p.MilliCPU), f.Memory.SubFloor(p.Memory)
		out[p.Node] = f
	}
	return out
}
