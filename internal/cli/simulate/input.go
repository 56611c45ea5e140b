// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/kerf-gpu/kerf/api/gpunode"
	"github.com/kerf-gpu/kerf/internal/cli/command"
	"github.com/kerf-gpu/kerf/internal/kube/access"
	"github.com/kerf-gpu/kerf/internal/kube/survey"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/allocator/cluster"
	"github.com/kerf-gpu/kerf/sharing/simulate"
)

// checkInput refuses flags that do not go together.
func (s *simulation) checkInput() error {
	switch {
	case s.Live && s.Workload != "":
		return errors.New("--from-cluster stands for --workload: leave it out")
	case s.Live && s.Output == "csv" && s.AsItIs():
		return errors.New("--from-cluster is answered as table, json or yaml, and as csv with --load or --churn")
	case s.Live && s.Requested != "" && s.Filling:
		return errors.New("--pods is simulated in addition to the running pods: remove --load")
	case s.Requested != "" && s.Churn > 0:
		return errors.New("--pods is answered for a cluster that pods do not leave: leave --churn out")
	case s.Requested != "" && s.Output == "csv":
		return errors.New("--pods is answered as table, json or yaml")
	}
	for _, f := range s.globs() {
		for _, glob := range f.globs {
			if err := sharing.CheckGlob(f.flag, glob); err != nil {
				if wrong, ok := errors.AsType[*sharing.FieldError](err); ok {
					wrong.Remedy = "write a pattern over the nodes' names, such as h100-* or !h100-0"
				}
				return err
			}
		}
	}
	return nil
}

// globsOf is a flag with patterns over the nodes' names.
type globsOf struct {
	flag  string
	globs []string
}

func (s *simulation) globs() []globsOf {
	return []globsOf{{"--remove-nodes", s.Removed}, {"--mig", s.MIG}}
}

// checkNames refuses a pattern that no node answers to: what-if of nothing would be answered like nothing else.
func (s *simulation) checkNames(names []string) error {
	for _, f := range s.globs() {
		for _, glob := range f.globs {
			pattern := []string{strings.TrimPrefix(glob, "!")}
			if len(names) > 0 && !slices.ContainsFunc(names,
				func(name string) bool { return sharing.MatchModels(pattern, name) }) {
				return fmt.Errorf("%s %q: no node has such a name; they are called %s", f.flag, glob, shortList(names))
			}
		}
	}
	return nil
}

// shortList is the first names of many.
func shortList(names []string) string {
	const most = 5
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and so on (%d nodes)", strings.Join(names[:most], ", "), len(names))
}

// checkDemand refuses pods that fill nothing, whatever the policy.
func (in *input) checkDemand() error {
	memory := slices.ContainsFunc(in.nodes, func(n cluster.Node) bool { return n.GPUMemory > 0 })
	for i := range in.pods {
		switch p := &in.pods[i]; {
		case p.Demand() > 0:
			return nil
		case p.GPUMemory > 0 && !memory:
			return errors.New(
				"pods request gpuMemory, but no machine states the memory of its GPUs; write gpuMemory of the machines")
		}
	}
	return errors.New("no pod requests a GPU or a share; add a pod that requests one")
}

// input is what an experiment begins with.
type input struct {
	// nodes are those that are there, without those that are gone.
	nodes []cluster.Node
	pods  []simulate.Pod
	// arrivals and load are what a YAML says of them; load is 0 where it says nothing.
	arrivals simulate.Variation
	load     float64
	capacity cluster.Milli
	// name is what the results are called.
	name string
	// live is the cluster that runs, where it was asked about.
	live simulate.Live
}

func (s *simulation) read(survey func() (simulate.Live, error)) (input, error) {
	in := input{}
	var scenario simulate.Scenario
	var err error
	switch {
	case s.Live:
		in.name = "cluster"
		in.live, err = survey()
		in.nodes, in.pods = in.live.Nodes, in.live.Pods
	case s.Workload != "":
		in.name = strings.TrimSuffix(filepath.Base(s.Workload), filepath.Ext(s.Workload))
		scenario, in.nodes, in.pods, err = readWorkload(s.Workload)
	default:
		in.name, in.nodes, in.pods, err = s.more.Lists()
	}
	if err != nil {
		return in, err
	}
	if !s.Live {
		if in.nodes, err = s.present(in.nodes); err != nil {
			return in, err
		}
		simulate.Size(in.pods, in.nodes)
	}
	switch {
	case len(in.nodes) == 0 && len(s.Removed) > 0:
		return in, errors.New("no node is left: --remove-nodes takes every one away")
	case len(in.nodes) == 0:
		return in, errors.New("there is no node")
	}
	for i := range in.nodes {
		in.capacity += in.nodes[i].Free()
	}
	in.arrivals, in.load, err = scenario.Arriving(in.nodes, in.pods)
	if err != nil {
		err = fmt.Errorf("%s: %w", s.Workload, err)
	}
	return in, err
}

// present removes the nodes of --remove-nodes and puts the GPUs of those of --mig in MIG mode.
func (s *simulation) present(nodes []cluster.Node) ([]cluster.Node, error) {
	var kept []cluster.Node
	var names []string
	for _, n := range nodes {
		names = append(names, n.Name)
	}
	if err := s.checkNames(names); err != nil {
		return nil, err
	}
	for _, n := range nodes {
		if s.isGone(n.Name) {
			continue
		}
		kept = append(kept, n)
	}
	return kept, simulate.MIG(kept, s.isMIG)
}

// experiment is one policy on the nodes in the order of the seed.
func (s *simulation) experiment(name string, in *input, seed int64) (simulate.Experiment, error) {
	known := in.pods
	if s.Typical == "online" && name == "kerf" {
		known = nil
	}
	policy, err := s.more.Policy(name, in.nodes, known, seed)
	e := simulate.Experiment{
		Nodes: simulate.Order(in.nodes, seed), Typical: in.pods, Policy: policy, Arrivals: in.arrivals, Now: time.Now,
		Defrag: simulate.Defrag{Moves: s.Defrag, CostPerGPU: s.DefragCost},
	}
	if s.AsItIs() {
		e.Nodes, e.There = in.nodes, in.live.There
	}
	s.more.Set(&e)
	return e, err
}

// readWorkload reads a YAML of machines and pods.
func readWorkload(path string) (simulate.Scenario, []cluster.Node, []simulate.Pod, error) {
	scenario, err := readScenario(path)
	if err != nil {
		return scenario, nil, nil, err
	}
	if len(scenario.Machines) == 0 || len(scenario.Pods) == 0 {
		return scenario, nil, nil, fmt.Errorf("%s: machines and pods are both needed, as docs/operate/what-if.md shows",
			path)
	}
	nodes, err := scenario.Nodes()
	if err != nil {
		return scenario, nil, nil, fmt.Errorf("%s: %w", path, err)
	}
	pods, err := scenario.List()
	if err != nil {
		return scenario, nil, nil, fmt.Errorf("%s: %w", path, err)
	}
	simulate.Size(pods, nodes)
	return scenario, nodes, pods, nil
}

// readCluster reads the running cluster. It reports what it could not read.
func (s *simulation) readCluster(ctx context.Context, to access.Options, tell io.Writer) (simulate.Live, error) {
	ctx, cancel := context.WithTimeout(ctx, command.ListTimeout)
	defer cancel()
	api, err := access.Open(to)
	if err != nil {
		return simulate.Live{}, fmt.Errorf("--from-cluster: %w", err)
	}
	defer api.Close()
	found, err := survey.Take(ctx, api)
	if err != nil {
		return simulate.Live{}, fmt.Errorf("--from-cluster: %w", err)
	}
	var nodes []simulate.LiveNode
	var names []string
	for _, n := range found.Nodes {
		names = append(names, n.Name)
		node := simulate.LiveNode{Name: n.Name, CPU: cluster.Milli(n.MilliCPU), Memory: n.Memory, Closed: n.Closed,
			Allocatable: n.Allocatable}
		if raw := found.Reports[n.Name]; raw != nil {
			report, err := gpunode.ReadStatus(raw)
			if err != nil {
				return simulate.Live{}, fmt.Errorf("--from-cluster: node %s: %w", n.Name, err)
			}
			node.Report = &report
		}
		nodes = append(nodes, node)
	}
	if err := s.checkNames(names); err != nil {
		return simulate.Live{}, err
	}
	var pods []simulate.LivePod
	for _, p := range found.Pods {
		pods = append(pods, simulate.LivePod{Pod: p.Pod, CPU: cluster.Milli(p.MilliCPU), Memory: p.Memory,
			Owner: p.Owner, Fixed: p.Fixed})
	}
	live, err := simulate.NewLive(nodes, pods, s.isGone, s.isMIG)
	if err != nil {
		return live, fmt.Errorf("--from-cluster: %w", err)
	}
	for _, why := range live.Left {
		_, _ = fmt.Fprintf(tell, "kerf simulate: left out: %s\n", why)
	}
	for _, note := range live.Notes {
		_, _ = fmt.Fprintf(tell, "kerf simulate: note: %s\n", note)
	}
	return live, nil
}

func (s *simulation) isGone(node string) bool {
	return len(s.Removed) > 0 && sharing.MatchModels(s.Removed, node)
}

func (s *simulation) isMIG(node string) bool {
	return len(s.MIG) > 0 && sharing.MatchModels(s.MIG, node)
}

// named puts a word before the types of pods, so that the table tells them from those of --pods.
func named(word string, pods []simulate.Pod) []simulate.Pod {
	out := make([]simulate.Pod, len(pods))
	for i, p := range pods {
		p.Type = word + ": " + p.Type
		out[i] = p
	}
	return out
}
