// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package simulate is kerf simulate: what a cluster would hold, and whether pods fit. Experiments extend it.
package simulate

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kerf-gpu/kerf/internal/cli/command"
	"github.com/kerf-gpu/kerf/sharing/simulate"
)

// Options are the flags of kerf simulate.
type Options struct {
	Workload, Requested, Seeds, Output, Typical string
	// Live is --from-cluster.
	Live           bool
	Removed, MIG   []string
	Inflate, Churn float64
	// Defrag is the most moves for one pod that does not fit, and DefragCost the highest cost for one GPU.
	Defrag     int
	DefragCost int64
	// Filling is set where --load was given: then nothing leaves, whatever the YAML says of times.
	Filling bool
}

// AsItIs is true when the pods of the cluster stay where they are, and new ones are asked about.
func (o *Options) AsItIs() bool { return o.Live && !o.Filling && o.Churn == 0 }

// simulation is one call of the command.
type simulation struct {
	Options

	more Extension
}

// Commands are the commands of this package.
func Commands(a *command.App) []*cobra.Command {
	return []*cobra.Command{Command(a, plain())}
}

// Command is kerf simulate with an extension.
func Command(a *command.App, more Extension) *cobra.Command {
	s := &simulation{more: more}
	c := &cobra.Command{
		Use:   "simulate {--workload FILE | --from-cluster}",
		Short: "Simulate how pods fill a cluster",
		Long: `Simulate how pods fill a cluster. The pods of a YAML file arrive until they
request --load times the GPUs, and none ends. With --churn, or if the file
has an arrival rate, pods also end, until a long steady state. A pod that does
not fit is rejected. kerf-scheduler's code places the pods. The command needs no
GPU, no agent and no cluster.

With --from-cluster, nodes and pods are those of the cluster in the kubeconfig.
The command changes nothing there. Running pods stay. The result shows whether
these pods fit: pending pods, pods that --remove-nodes or --mig displace, and
pods of --pods. With --load or --churn, the simulation starts with empty nodes
and pods like those of the cluster.`,
		Example: "  # How much of this cluster would be filled?\n" +
			"  kerf simulate --workload cluster.yaml --seeds 1-5\n" +
			"  # Do these pods fit, which not and why, and how many more GPUs until they do?\n" +
			"  kerf simulate --workload cluster.yaml --load 0.8 --pods new.yaml\n" +
			"  # What if these nodes became MIG?\n" +
			"  kerf simulate --workload cluster.yaml --mig 'h100-*'\n" +
			"  # What if these nodes went away, while pods come and go?\n" +
			"  kerf simulate --workload cluster.yaml --remove-nodes 'h100-[0-3]' --churn 0.9\n" +
			"  # The same for a running cluster: do these fit, and if a node went away?\n" +
			"  kerf simulate --from-cluster --pods new.yaml\n" +
			"  kerf simulate --from-cluster --remove-nodes gpu-7",
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			s.Filling = c.Flags().Changed("load")
			return s.simulate(c, a)
		},
	}
	s.define(c)
	more.Define(c)
	return c
}

func (s *simulation) define(c *cobra.Command) {
	f := c.Flags()
	f.StringVar(&s.Typical, "workload-model", "list",
		"source of the typical workload: list (the pods) or online (learned from arrivals)")
	f.StringVar(&s.Seeds, "seeds", "42", "seeds of the arrival order, such as 42, 42-51 or 1,5,9")
	f.Float64Var(&s.Inflate, "load", 1.3, "requested GPUs, as a multiple of the cluster's")
	f.Float64Var(&s.Churn, "churn", 0, "let pods end, too: average requested GPUs, as a multiple of the cluster's")
	f.IntVar(&s.Defrag, "defrag", 0, "with --churn, move up to this many pods for one that does not fit")
	f.Int64Var(&s.DefragCost, "defrag-cost", 0,
		"with --defrag, highest cost for one GPU, in seconds; a mean life time counts as an hour; 0 is no limit")
	f.StringVarP(&s.Output, "output", "o", "table", "table, json, yaml or csv")
	command.Complete(c, "output", "table", "json", "yaml", "csv")
	f.StringVar(&s.Workload, "workload", "", "YAML file of nodes and pods")
	f.BoolVar(&s.Live, "from-cluster", false, "use nodes and pods of the cluster in the kubeconfig, read-only")
	f.StringVar(&s.Requested, "pods", "", "YAML file of further pods: show whether they fit, and what is missing")
	f.StringSliceVar(&s.Removed, "remove-nodes", nil, "globs of nodes to remove before the simulation")
	f.StringSliceVar(&s.MIG, "mig", nil, "globs of nodes whose GPUs get MIG mode before the simulation")
}

// simulate runs the command.
func (s *simulation) simulate(c *cobra.Command, a *command.App) error {
	seeds, err := s.check()
	if err == nil && !s.Live && a.Kubeconfig != "" {
		err = errors.New("--kubeconfig is for --from-cluster")
	}
	if err != nil {
		return command.Misused(err)
	}
	in, err := s.read(func() (simulate.Live, error) {
		return s.readCluster(c.Context(), a.Reach(), a.ErrOut)
	})
	if err != nil {
		return command.Fail(err)
	}
	departures := s.Churn > 0 || !s.Filling && in.load > 0
	if err := s.more.Begin(departures); err != nil {
		return command.Misused(err)
	}
	if s.Defrag > 0 && !departures {
		return command.Misused(errors.New("--defrag moves pods where pods end: it needs --churn, or a YAML that " +
			"says how often they arrive"))
	}
	if s.Requested != "" || s.AsItIs() {
		if len(seeds) > 1 {
			return command.Misused(fmt.Errorf("--seeds %s: one seed answers whether pods fit; write one", s.Seeds))
		}
		return command.Fail(s.answer(a.Out, in, seeds[0]))
	}
	if err := in.checkDemand(); err != nil {
		return command.Fail(fmt.Errorf("%s: %w", in.name, err))
	}
	bar := progressOn(a, len(s.more.Policies())*len(seeds), s.Output)
	results, err := s.run(in, seeds, bar)
	bar.clear()
	if err == nil {
		err = s.more.Done(results)
	}
	if err != nil {
		return command.Fail(err)
	}
	switch s.Output {
	case "json", "yaml":
		return command.Fail(a.Answer(s.Output, results, nil))
	case "csv":
		return command.Fail(writeResults(a.Out, results))
	}
	return command.Fail(printResults(a.Out, results, s.Churn > 0))
}

// check refuses flags that are wrong or do not go together.
func (s *simulation) check() ([]int64, error) {
	if !slices.Contains([]string{"table", "json", "yaml", "csv"}, s.Output) {
		return nil, fmt.Errorf("--output %q: not table, json, yaml or csv", s.Output)
	}
	if s.Typical != "list" && s.Typical != "online" {
		return nil, fmt.Errorf("--workload-model %q: not list or online", s.Typical)
	}
	if !(s.Inflate > 0 && s.Inflate <= 100) {
		return nil, fmt.Errorf("--load %g: write a number above 0, and at most 100", s.Inflate)
	}
	if !(s.Churn >= 0 && s.Churn <= 10) {
		return nil, fmt.Errorf("--churn %g: write a number in 0 to 10", s.Churn)
	}
	if s.Defrag < 0 || s.Defrag > mostMoves || s.DefragCost < 0 {
		return nil, fmt.Errorf("--defrag %d, --defrag-cost %d: write 0 to %d moves, and a cost of 0 or more", s.Defrag,
			s.DefragCost, mostMoves)
	}
	if s.Defrag == 0 && s.DefragCost > 0 {
		return nil, errors.New("--defrag-cost has no effect without --defrag")
	}
	seeds, err := seedsOf(s.Seeds)
	if err == nil {
		err = s.more.Check(s.Options)
	}
	if err == nil {
		err = s.checkInput()
	}
	return seeds, err
}

// run is every policy with every seed.
func (s *simulation) run(in input, seeds []int64, bar *progress) ([]simulate.Result, error) {
	if s.Churn == 0 && !s.Filling {
		s.Churn = in.load
	}
	var results []simulate.Result
	for _, name := range s.more.Policies() {
		for _, seed := range seeds {
			e, err := s.experiment(name, &in, seed)
			if err != nil {
				return nil, err
			}
			e.Progress = bar.next(name, seed)
			var r simulate.Result
			if s.Churn > 0 {
				r, err = e.Churn(in.pods, s.Churn, seed)
			} else {
				r, err = e.Fill(simulate.Inflate(in.pods, in.capacity, s.Inflate, seed))
			}
			if err != nil {
				return nil, err
			}
			bar.done()
			r.Policy, r.Trace, r.Seed = name, in.name, seed
			if seed != seeds[0] {
				r.Nodes = nil // only those of the first run are drawn
			}
			results = append(results, r)
		}
	}
	return results, nil
}

// mostMoves bounds --defrag.
const mostMoves = 64

// mostSeeds keeps a slip of the keyboard from running for days.
const mostSeeds = 10000

// seedsOf reads a list of numbers and ranges.
func seedsOf(list string) ([]int64, error) {
	var seeds []int64
	for part := range strings.SplitSeq(list, ",") {
		low, high, isRange := strings.Cut(part, "-")
		if !isRange {
			high = low
		}
		from, err := strconv.ParseUint(low, 10, 31)
		if err != nil {
			return nil, fmt.Errorf("--seeds %q: %q is no number; write 42, 42-51 or 1,5,9", list, low)
		}
		to, err := strconv.ParseUint(high, 10, 31)
		if err != nil || to < from || to-from >= mostSeeds {
			return nil, fmt.Errorf("--seeds %q: %q is no range of at most %d numbers; write 42-51, say", list, part,
				mostSeeds)
		}
		for seed := from; seed <= to; seed++ {
			seeds = append(seeds, int64(seed))
		}
	}
	return seeds, nil
}
