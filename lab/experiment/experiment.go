// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package experiment is the command line of kerf-lab. It is kerf simulate with the policies that Kerf's own is compared
// with, published traces and plots. It also shows what no policy could have placed.
package experiment

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kerf-gpu/kerf/internal/cli/command"
	run "github.com/kerf-gpu/kerf/internal/cli/simulate"
	"github.com/kerf-gpu/kerf/lab/measure"
	"github.com/kerf-gpu/kerf/lab/openb"
	"github.com/kerf-gpu/kerf/lab/plot"
	"github.com/kerf-gpu/kerf/lab/policy"
	"github.com/kerf-gpu/kerf/lab/policy/dra"
	"github.com/kerf-gpu/kerf/sharing/allocator/cluster"
	"github.com/kerf-gpu/kerf/sharing/simulate"
)

// experiment has the flags of kerf-lab in addition to those of kerf simulate.
type experiment struct {
	nodes, pods, plot string
	policies          []string
	lives, usable     float64
	bound             bool
}

// Command is kerf-lab.
func Command(a *command.App) *cobra.Command {
	c := run.Command(a, &experiment{})
	c.Use = "kerf-lab {--trace-nodes FILE --trace-pods FILE | --workload FILE | --from-cluster}"
	c.Short = "Fill a cluster with pods and show how much of it each policy uses"
	c.Long = "kerf-lab lets the pods of a list arrive at the nodes of a list, both CSV in the openb format or one " +
		"YAML, as kerf simulate\n" +
		"does it, and compares policies."
	c.Example = "  # How much of this cluster would that policy fill?\n" +
		"  kerf-lab --workload cluster.yaml --policy kerf,nvidia-whole --seeds 1-5 --plot out.svg\n" +
		"  # The published experiment\n" +
		"  kerf-lab --trace-nodes nodes.csv --trace-pods pods.csv --policy kerf,fgd --seeds 42-51"
	c.SilenceErrors, c.SilenceUsage = true, true
	a.DefineConnection(c)
	return c
}

// Define implements the extension.
func (x *experiment) Define(c *cobra.Command) {
	f := c.Flags()
	f.StringVar(&x.nodes, "trace-nodes", "", "CSV file of the nodes")
	f.StringVar(&x.pods, "trace-pods", "", "CSV file of the pods")
	f.StringSliceVar(&x.policies, "policy", []string{"kerf"}, "policies to compare: "+strings.Join(policies(), ", "))
	f.Float64Var(&x.lives, "churn-lives", simulate.CountedLives,
		"with --churn, for how many mean life times it is counted, after 2.5 that are not")
	f.Float64Var(&x.usable, "usable", 0,
		"with --churn, show too what one pool of this percent of the GPUs would refuse, whatever the policy")
	f.BoolVar(&x.bound, "bound", false, "with --churn, show too at least how much of what is refused no packing of "+
		"the same pods had room for, whatever the policy")
	f.StringVar(&x.plot, "plot", "",
		"SVG file to draw: allocation, fragmentation and refused pods over the load, and the GPUs at the end")
}

// Check implements the extension.
func (x *experiment) Check(o run.Options) error {
	if !(x.lives > 0 && x.lives <= 1000) {
		return fmt.Errorf("--churn-lives %g: write a number above 0, and at most 1000", x.lives)
	}
	if !(x.usable >= 0 && x.usable <= 100) {
		return fmt.Errorf("--usable %g: write a number in 0 to 100", x.usable)
	}
	if err := x.checkPolicies(); err != nil {
		return err
	}
	lists := x.nodes != "" || x.pods != ""
	switch {
	case o.Live && (lists || o.Workload != ""):
		return errors.New("--from-cluster stands for --workload and both lists: leave them out")
	case o.Live && x.plot != "" && o.AsItIs():
		return errors.New("--plot draws what fills up: with --from-cluster it needs --load or --churn")
	case o.Live:
	case o.Workload != "" && lists:
		return errors.New("--workload stands for both lists: leave --trace-nodes and --trace-pods out")
	case o.Workload == "" && (x.nodes == "" || x.pods == ""):
		return errors.New("--trace-nodes and --trace-pods, --workload or --from-cluster are needed")
	}
	if x.plot == "" {
		return nil
	}
	if o.Requested != "" {
		return errors.New("--plot draws what fills up, and --pods asks about one moment: leave one out")
	}
	// It is written at the end of a run that may be long.
	if _, err := os.Stat(filepath.Dir(x.plot)); err != nil {
		return fmt.Errorf("--plot %q: its folder: %w", x.plot, err)
	}
	return nil
}

// checkPolicies finds a misspelt policy before the first one takes its time.
func (x *experiment) checkPolicies() error {
	known := policies()
	if len(x.policies) == 0 {
		return fmt.Errorf("--policy is empty: write one or more of %s", strings.Join(known, ", "))
	}
	for _, name := range x.policies {
		if !slices.Contains(known, name) {
			return fmt.Errorf("--policy %q: not one of %s", name, strings.Join(known, ", "))
		}
	}
	return nil
}

// Lists implements the extension.
func (x *experiment) Lists() (string, []cluster.Node, []simulate.Pod, error) {
	nodes, err := readList(x.nodes, openb.ReadNodes)
	if err != nil {
		return "", nil, nil, err
	}
	pods, err := readList(x.pods, openb.ReadPods)
	return strings.TrimSuffix(filepath.Base(x.pods), filepath.Ext(x.pods)), nodes, pods, err
}

// Begin implements the extension.
func (x *experiment) Begin(departures bool) error {
	if x.bound && !departures {
		return errors.New("--bound asks about pods that come and go: it needs --churn, or a YAML that says how often " +
			"they arrive")
	}
	return nil
}

// Policies implements the extension.
func (x *experiment) Policies() []string { return x.policies }

// Policy implements the extension.
func (x *experiment) Policy(name string, nodes []cluster.Node, pods []simulate.Pod, seed int64) (cluster.Policy,
	error) {
	if slices.Contains(dra.Policies(), name) {
		return dra.New(name, nodes, pods, seed)
	}
	return policy.New(name, nodes, pods, seed)
}

// policies are the names of all policies.
func policies() []string { return append(policy.Policies(), dra.Policies()...) }

// Set implements the extension.
func (x *experiment) Set(e *simulate.Experiment) {
	e.Counted, e.Detail = x.lives, x.plot != ""
	if x.usable > 0 {
		e.Observers = append(e.Observers, measure.NewPool(e.Nodes, x.usable/100))
	}
	if x.bound {
		e.Observers = append(e.Observers, measure.NewPacking(e.Nodes))
	}
}

// Done implements the extension: it draws the SVG of --plot.
func (x *experiment) Done(results []simulate.Result) error {
	if x.plot == "" {
		return nil
	}
	text, err := plot.Draw(results)
	if err != nil {
		return err
	}
	f, err := os.Create(x.plot)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	return errors.Join(err, f.Close())
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
		return nil, fmt.Errorf("%s: there is no row below the first line, which names the columns", path)
	}
	return list, nil
}
