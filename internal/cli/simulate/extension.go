// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/kerf-gpu/kerf/sharing/allocator/cluster"
	"github.com/kerf-gpu/kerf/sharing/simulate"
)

// Extension is what a program for experiments adds to the command.
type Extension interface {
	// Define defines more flags.
	Define(c *cobra.Command)
	// Check refuses flags that are wrong or do not go together, and a call that names no nodes and no pods.
	Check(o Options) error
	// Lists reads nodes and pods where Check accepted neither a YAML nor a cluster. The name is that of the results.
	Lists() (name string, nodes []cluster.Node, pods []simulate.Pod, err error)
	// Begin hears, before the first run, whether pods leave; it may refuse that.
	Begin(departures bool) error
	// Policies are the names of the policies that place the pods, and Policy is the one of a name. It knows the pods as the usual
	// workload; without pods it learns.
	Policies() []string
	Policy(name string, nodes []cluster.Node, pods []simulate.Pod, seed int64) (cluster.Policy, error)
	// Set says what else a run measures.
	Set(e *simulate.Experiment)
	// Done gets the results before they are printed.
	Done(results []simulate.Result) error
}

// plain adds nothing: pods are placed as kerf-scheduler does it.
func plain() Extension { return none{} }

type none struct{}

func (none) Define(*cobra.Command) {}
func (none) Check(o Options) error {
	if o.Workload == "" && !o.Live {
		return errors.New("--workload or --from-cluster is needed")
	}
	return nil
}
func (none) Lists() (string, []cluster.Node, []simulate.Pod, error) {
	return "", nil, nil, nil
}
func (none) Begin(bool) error   { return nil }
func (none) Policies() []string { return []string{"kerf"} }
func (none) Policy(_ string, nodes []cluster.Node, pods []simulate.Pod, _ int64) (cluster.Policy, error) {
	return simulate.NewKerf(nodes, pods), nil
}
func (none) Set(*simulate.Experiment)     {}
func (none) Done([]simulate.Result) error { return nil }
