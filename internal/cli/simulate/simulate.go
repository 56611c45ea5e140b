// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package simulate is kerf simulate: which pods a cluster could take.
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

// simulation is the flags of kerf simulate.
type simulation struct {
	nodes, pods, seeds, output string
	typical, workload, asked   string
	plot                       string
	// live is --from-cluster.
	live           bool
	gone, mig      []string
	policies       []string
	inflate, churn float64
	// lives and usable are --churn-lives and --usable.
	lives, usable float64
	// bound is --bound.
	bound bool
	// filling is set where --inflate was given: then nothing leaves, whatever the YAML says of times.
	filling bool
}

// Commands are the commands of this package.
func Commands(a *command.App) []*cobra.Command {
	return []*cobra.Command{simulateCommand(a)}
}

func simulateCommand(a *command.App) *cobra.Command {
	s := simulation{}
	cmd := &cobra.Command{
		Use:   "simulate {--trace-nodes FILE --trace-pods FILE | --workload FILE | --from-cluster}",
		Short: "Fill a cluster with pods and show how much of it each policy uses",
		Long: "simulate lets the pods of a list arrive at the nodes of a list, both CSV in the openb format or one YAML, until\n" +
			"they have asked for --inflate times the GPUs, and none leaves. With --churn, or where the YAML says how often\n" +
			"pods arrive, they leave too, until the cluster was long in a steady state. A pod that does not fit is refused\n" +
			"for good. It needs no GPU, no agent and no cluster.\n\n" +
			"With --from-cluster, nodes and pods are those of the cluster that the kubeconfig names, and nothing there is\n" +
			"changed. Its pods stay where they are, and the answer is whether those fit that wait, that have to move because\n" +
			"of --gone or --mig, and that --pods names. With --inflate or --churn its nodes are filled from empty with pods\n" +
			"like its own.",
		Example: "  # How much of this cluster would that policy fill?\n" +
			"  kerf simulate --workload cluster.yaml --policy kerf,nvidia-whole --seeds 1-5 --plot out.svg\n" +
			"  # Do these pods fit, which not and why, and how many more GPUs until they do?\n" +
			"  kerf simulate --workload cluster.yaml --inflate 0.8 --pods new.yaml\n" +
			"  # What if these nodes became MIG?\n" +
			"  kerf simulate --workload cluster.yaml --mig 'h100-*'\n" +
			"  # What if these nodes went away, while pods come and go?\n" +
			"  kerf simulate --workload cluster.yaml --gone 'h100-[0-3]' --churn 0.9\n" +
			"  # The same of the cluster that runs: do these fit, and what if a node went away?\n" +
			"  kerf simulate --from-cluster --pods new.yaml\n" +
			"  kerf simulate --from-cluster --gone gpu-7\n" +
			"  # The published experiment\n" +
			"  kerf simulate --trace-nodes nodes.csv --trace-pods pods.csv --policy kerf,fgd --seeds 42-51",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s.filling = cmd.Flags().Changed("inflate")
			if !slices.Contains([]string{"table", "json", "yaml", "csv"}, s.output) {
				return command.Misused(fmt.Errorf("--output %q: not table, json, yaml or csv", s.output))
			}
			if s.typical != "list" && s.typical != "online" {
				return command.Misused(fmt.Errorf("--typical %q: not list or online", s.typical))
			}
			if !(s.inflate > 0 && s.inflate <= 100) {
				return command.Misused(fmt.Errorf("--inflate %g: write a number above 0, and at most 100", s.inflate))
			}
			if !(s.churn >= 0 && s.churn <= 10) {
				return command.Misused(fmt.Errorf("--churn %g: write a number in 0 to 10", s.churn))
			}
			if !(s.lives > 0 && s.lives <= 1000) {
				return command.Misused(fmt.Errorf("--churn-lives %g: write a number above 0, and at most 1000", s.lives))
			}
			if !(s.usable >= 0 && s.usable <= 100) {
				return command.Misused(fmt.Errorf("--usable %g: write a number in 0 to 100", s.usable))
			}
			seeds, err := seedsOf(s.seeds)
			if err != nil {
				return command.Misused(err)
			}
			if err = s.checkPolicies(); err == nil {
				err = s.checkInput()
			}
			if err == nil && !s.live && a.Kubeconfig != "" {
				err = errors.New("--kubeconfig is for --from-cluster")
			}
			if err != nil {
				return command.Misused(err)
			}
			in, err := s.read(func() (simulate.Live, error) {
				return s.readCluster(cmd.Context(), a.Reach(), a.ErrOut)
			})
			if err != nil {
				return command.Fail(err)
			}
			if s.bound && s.churn == 0 && (s.filling || in.load == 0) {
				return command.Misused(errors.New("--bound asks about pods that come and go: it needs --churn, or a YAML that says how often they arrive"))
			}
			if s.asked != "" || s.asItIs() {
				return command.Fail(s.answer(a.Out, in, seeds[0]))
			}
			if err := in.checkDemand(); err != nil {
				return command.Fail(fmt.Errorf("%s: %w", s.trace(), err))
			}
			bar := progressOn(a, len(s.policies)*len(seeds), s.output)
			results, err := s.run(in, seeds, bar)
			bar.clear()
			if err != nil {
				return command.Fail(err)
			}
			if s.plot != "" {
				if err := draw(s.plot, results); err != nil {
					return command.Fail(err)
				}
			}
			switch s.output {
			case "json", "yaml":
				return command.Fail(a.Answer(s.output, results, nil))
			case "csv":
				return command.Fail(writeResults(a.Out, results))
			}
			return command.Fail(printResults(a.Out, results, s.churn > 0, s.usable > 0))
		},
	}
	f := cmd.Flags()
	f.StringVar(&s.nodes, "trace-nodes", "", "CSV file of the nodes")
	f.StringVar(&s.pods, "trace-pods", "", "CSV file of the pods")
	f.StringSliceVar(&s.policies, "policy", []string{"kerf"}, "policies to compare: "+strings.Join(simulate.Policies(), ", "))
	f.StringVar(&s.typical, "typical", "list", "whence kerf knows the usual workload: list (of the pods), or online (learnt while they arrive)")
	f.StringVar(&s.seeds, "seeds", "42", "seeds of the order of arrival, as 42, 42-51 or 1,5,9")
	f.Float64Var(&s.inflate, "inflate", 1.3, "how many times the cluster's GPUs are asked for")
	f.Float64Var(&s.churn, "churn", 0, "let pods leave too: how many times the cluster's GPUs they would hold on average")
	f.Float64Var(&s.lives, "churn-lives", simulate.CountedLives, "with --churn, for how many mean life times it is counted, after 2.5 that are not")
	f.Float64Var(&s.usable, "usable", 0, "with --churn, show too what one pool of this percent of the GPUs would refuse, whatever the policy")
	f.BoolVar(&s.bound, "bound", false, "with --churn, show too at least how much of what is refused no packing of the same pods had room for, whatever the policy")
	f.StringVarP(&s.output, "output", "o", "table", "table, json, yaml or csv")
	command.Complete(cmd, "output", "table", "json", "yaml", "csv")
	f.StringVar(&s.workload, "workload", "", "YAML file of machines and pods, instead of the two lists")
	f.BoolVar(&s.live, "from-cluster", false, "take nodes and pods from the cluster of the kubeconfig, which nothing is written to")
	f.StringVar(&s.asked, "pods", "", "YAML file of pods: say whether they fit beside those that arrived, and what is missing")
	f.StringSliceVar(&s.gone, "gone", nil, "globs of nodes that are taken away before anything arrives")
	f.StringSliceVar(&s.mig, "mig", nil, "globs of nodes whose GPUs are put into MIG mode before anything arrives")
	f.StringVar(&s.plot, "plot", "", "SVG file to draw: allocation, fragments and refused pods over the load, and the GPUs at the end")
	return cmd
}

// run is every policy with every seed.
func (s *simulation) run(in input, seeds []int64, bar *progress) ([]simulate.Result, error) {
	if s.churn == 0 && !s.filling {
		s.churn = in.load
	}
	var results []simulate.Result
	for _, name := range s.policies {
		for _, seed := range seeds {
			e, err := s.experiment(name, &in, seed)
			if err != nil {
				return nil, err
			}
			e.Progress = bar.next(name, seed)
			var r simulate.Result
			if s.churn > 0 {
				e.Counted, e.Usable, e.Bound = s.lives, s.usable/100, s.bound
				r, err = e.Churn(in.pods, s.churn, seed)
			} else {
				r, err = e.Fill(simulate.Inflate(in.pods, in.capacity, s.inflate, seed))
			}
			if err != nil {
				return nil, err
			}
			bar.done()
			r.Policy, r.Trace, r.Seed = name, s.trace(), seed
			if seed != seeds[0] {
				r.Nodes = nil // only those of the first run are drawn
			}
			results = append(results, r)
		}
	}
	return results, nil
}

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
			return nil, fmt.Errorf("--seeds %q: %q is no range of at most %d numbers; write 42-51, say", list, part, mostSeeds)
		}
		for seed := from; seed <= to; seed++ {
			seeds = append(seeds, int64(seed))
		}
	}
	return seeds, nil
}
