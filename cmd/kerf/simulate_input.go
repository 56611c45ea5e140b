// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/allocator/cluster"
	"github.com/kerf-gpu/kerf/sharing/simulate"
)

// checkInput refuses flags that do not go together.
func (s *simulation) checkInput() error {
	lists := s.nodes != "" || s.pods != ""
	switch {
	case s.workload != "" && lists:
		return errors.New("--workload stands for both lists: leave --trace-nodes and --trace-pods out")
	case s.workload == "" && (s.nodes == "" || s.pods == ""):
		return errors.New("--trace-nodes and --trace-pods, or --workload, are needed")
	case s.asked != "" && s.churn > 0:
		return errors.New("--pods is answered for a cluster that pods do not leave: leave --churn out")
	case s.asked != "" && s.output == "csv":
		return errors.New("--pods is answered as table or json")
	}
	for _, glob := range append(s.gone, s.mig...) {
		if err := sharing.CheckGlob("--gone, --mig", glob); err != nil {
			return err
		}
	}
	return nil
}

// trace is what the results are called.
func (s *simulation) trace() string {
	base := filepath.Base(s.pods + s.workload)
	return strings.TrimSuffix(base, filepath.Ext(base))
}

// read is the nodes, without those that are gone, and the pods that arrive.
func (s *simulation) read() ([]cluster.Node, []simulate.Pod, error) {
	var nodes []cluster.Node
	var pods []simulate.Pod
	var err error
	if s.workload != "" {
		nodes, pods, err = readWorkload(s.workload)
	} else if nodes, err = readList(s.nodes, simulate.ReadNodes); err == nil {
		pods, err = readList(s.pods, simulate.ReadPods)
	}
	if err != nil {
		return nil, nil, err
	}
	var kept []cluster.Node
	for _, n := range nodes {
		if len(s.gone) > 0 && sharing.MatchModels(s.gone, n.Name) {
			continue
		}
		n.MIG = n.MIG || len(s.mig) > 0 && sharing.MatchModels(s.mig, n.Name)
		kept = append(kept, n)
	}
	if len(kept) == 0 {
		return nil, nil, errors.New("no node is left")
	}
	return kept, pods, nil
}

// experiment is one policy on the nodes in the order of the seed.
func (s *simulation) experiment(name string, nodes []cluster.Node, pods []simulate.Pod, seed int64) (simulate.Experiment, error) {
	known := pods
	if s.typical == "online" && name == "kerf" {
		known = nil
	}
	policy, err := simulate.NewPolicy(name, nodes, known, seed)
	return simulate.Experiment{Nodes: simulate.Order(nodes, seed), Usual: pods, Policy: policy, Now: time.Now}, err
}

// readWorkload reads a YAML of machines and pods.
func readWorkload(path string) ([]cluster.Node, []simulate.Pod, error) {
	scenario, err := readScenario(path)
	if err != nil {
		return nil, nil, err
	}
	if len(scenario.Machines) == 0 || len(scenario.Pods) == 0 {
		return nil, nil, fmt.Errorf("%s: machines and pods are both needed", path)
	}
	nodes, err := scenario.Nodes()
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", path, err)
	}
	pods, err := scenario.List()
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", path, err)
	}
	simulate.Size(pods, nodes)
	return nodes, pods, nil
}

func readScenario(path string) (simulate.Scenario, error) {
	var scenario simulate.Scenario
	f, err := os.Open(path)
	if err != nil {
		return scenario, err
	}
	defer func() { _ = f.Close() }()
	d := yaml.NewDecoder(f)
	d.KnownFields(true)
	if err := d.Decode(&scenario); err != nil {
		return scenario, fmt.Errorf("%s: %w", path, err)
	}
	return scenario, nil
}

// readList reads a file that must not be empty of rows.
func readList[T any](path string, read func(io.Reader) ([]T, error)) ([]T, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	list, err := read(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("%s: no rows", path)
	}
	return list, nil
}
