// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/kerf-gpu/kerf/sharing/allocator/cluster"
	"github.com/kerf-gpu/kerf/sharing/simulate"
)

// simulation is the flags of kerf simulate.
type simulation struct {
	nodes, pods, seeds, output string
	policies                   []string
	inflate                    float64
}

func (a *app) simulateCommand() *cobra.Command {
	s := simulation{}
	cmd := &cobra.Command{
		Use:   "simulate --trace-nodes FILE --trace-pods FILE",
		Short: "Fill a cluster with pods and show how much of it each policy uses",
		Long: "simulate lets the pods of a list arrive at the nodes of a list, both CSV in the openb format, until\n" +
			"they have asked for --inflate times the GPUs. Nothing leaves; a pod that does not fit is refused for\n" +
			"good. It needs no GPU, no agent and no cluster.",
		Example: "  kerf simulate --trace-nodes nodes.csv --trace-pods pods.csv --policy kerf,fgd --seeds 42-51",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if s.output != "table" && s.output != "json" {
				return misused(fmt.Errorf("--output %q: not table or json", s.output))
			}
			if !(s.inflate > 0 && s.inflate <= 100) {
				return misused(fmt.Errorf("--inflate %g: not above 0 and at most 100", s.inflate))
			}
			seeds, err := seedsOf(s.seeds)
			if err != nil {
				return misused(err)
			}
			results, err := s.run(seeds)
			if err != nil {
				return fail(err)
			}
			if s.output == "json" {
				e := json.NewEncoder(a.out)
				e.SetIndent("", "  ")
				return fail(e.Encode(results))
			}
			return fail(printResults(a.out, results))
		},
	}
	f := cmd.Flags()
	f.StringVar(&s.nodes, "trace-nodes", "", "CSV file of the nodes")
	f.StringVar(&s.pods, "trace-pods", "", "CSV file of the pods")
	f.StringSliceVar(&s.policies, "policy", []string{"kerf"}, "policies to compare: "+strings.Join(simulate.Policies(), ", "))
	f.StringVar(&s.seeds, "seeds", "42", "seeds of the order of arrival, as 42, 42-51 or 1,5,9")
	f.Float64Var(&s.inflate, "inflate", 1.3, "how many times the cluster's GPUs are asked for")
	f.StringVarP(&s.output, "output", "o", "table", "table or json")
	for _, name := range []string{"trace-nodes", "trace-pods"} {
		_ = cmd.MarkFlagRequired(name)
	}
	return cmd
}

// run is every policy with every seed.
func (s *simulation) run(seeds []int64) ([]simulate.Result, error) {
	nodes, err := readList(s.nodes, simulate.ReadNodes)
	if err != nil {
		return nil, err
	}
	pods, err := readList(s.pods, simulate.ReadPods)
	if err != nil {
		return nil, err
	}
	capacity := cluster.Milli(0)
	for i := range nodes {
		capacity += nodes[i].Free()
	}
	var results []simulate.Result
	for _, name := range s.policies {
		policy, err := simulate.NewPolicy(name, nodes, pods)
		if err != nil {
			return nil, err
		}
		for _, seed := range seeds {
			arrivals := simulate.Inflate(pods, capacity, s.inflate, seed)
			r, err := simulate.Run(simulate.Order(nodes, seed), pods, arrivals, policy, time.Now)
			if err != nil {
				return nil, err
			}
			r.Policy, r.Trace, r.Seed = name, strings.TrimSuffix(filepath.Base(s.pods), ".csv"), seed
			results = append(results, r)
		}
	}
	return results, nil
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
			return nil, fmt.Errorf("--seeds %q: %q is no number", list, low)
		}
		to, err := strconv.ParseUint(high, 10, 31)
		if err != nil || to < from || to-from >= mostSeeds {
			return nil, fmt.Errorf("--seeds %q: %q is no range of at most %d numbers", list, part, mostSeeds)
		}
		for seed := from; seed <= to; seed++ {
			seeds = append(seeds, int64(seed))
		}
	}
	return seeds, nil
}

// printResults is one line a run; - where no load reached the point.
func printResults(out io.Writer, results []simulate.Result) error {
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprint(t, "POLICY\tSEED")
	for _, p := range simulate.Points() {
		_, _ = fmt.Fprintf(t, "\t@%d", p)
	}
	_, _ = fmt.Fprintln(t, "\tFIRST FAILURE\tREJECTED\tDECISIONS/S")
	for _, r := range results {
		_, _ = fmt.Fprintf(t, "%s\t%d", r.Policy, r.Seed)
		for _, p := range simulate.Points() {
			if v, ok := r.AllocatedPercent[strconv.Itoa(p)]; ok {
				_, _ = fmt.Fprintf(t, "\t%.2f", v)
			} else {
				_, _ = fmt.Fprint(t, "\t-")
			}
		}
		rejected := 0
		for _, n := range r.Rejects {
			rejected += n
		}
		_, _ = fmt.Fprintf(t, "\t%.2f\t%d\t%.0f\n", r.FirstFailurePercent, rejected, r.Decisions)
	}
	return t.Flush()
}
