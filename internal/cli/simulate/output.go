// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"encoding/csv"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/kerf-gpu/kerf/internal/cli/command"
	"github.com/kerf-gpu/kerf/sharing/allocator/cluster"
	"github.com/kerf-gpu/kerf/sharing/simulate"
)

// printResults is one line a run; - where no load reached the point.
func printResults(out io.Writer, results []simulate.Result, departures bool) error {
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprint(t, "POLICY\tSEED")
	if departures {
		_, _ = fmt.Fprint(t, "\tLOAD\tALLOCATED\tREJECTED PODS\tREJECTED GPU")
		pooled := len(results) > 0 && results[0].Pooled
		if pooled {
			_, _ = fmt.Fprint(t, "\tBY ONE POOL")
		}
		bounded := len(results) > 0 && results[0].NoPacking != nil
		if bounded {
			_, _ = fmt.Fprint(t, "\tNO PACKING")
		}
		moved := len(results) > 0 && results[0].Moved != nil
		if moved {
			_, _ = fmt.Fprint(t, "\tMOVES/1000 PODS")
		}
		_, _ = fmt.Fprintln(t, "\tREJECTED 8 GPU\tDECISIONS/S")
		for _, r := range results {
			_, _ = fmt.Fprintf(t, "%s\t%d\t%.2f\t%.2f %%\t%.2f %%\t%.2f %%", r.Policy, r.Seed, r.Load,
				r.MeanAllocatedPercent, r.RejectedPodsPercent, r.RejectedDemandPercent)
			if pooled {
				_, _ = fmt.Fprintf(t, "\t%.2f %%", r.PooledRejectedPercent)
			}
			if bounded {
				_, _ = fmt.Fprintf(t, "\t%.2f %%", r.NoPacking.Percent)
			}
			if moved {
				_, _ = fmt.Fprintf(t, "\t%.2f", r.Moved.PerThousand)
			}
			_, _ = fmt.Fprintf(t, "\t%d of %d\t%.0f\n", r.Rejects["8"], r.Arrived["8"], r.Decisions)
		}
		return t.Flush()
	}
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
		first := "-" // nothing was refused
		if r.Rejected() > 0 {
			first = fmt.Sprintf("%.2f", r.FirstFailurePercent)
		}
		_, _ = fmt.Fprintf(t, "\t%s\t%d\t%.0f\n", first, r.Rejected(), r.Decisions)
	}
	return t.Flush()
}

// writeResults is one row a run, with the fields of the JSON; a point that no load reached is empty.
func writeResults(out io.Writer, results []simulate.Result) error {
	head := []string{"policy", "trace", "seed", "capacity_gpu_milli", "arrived_gpu_milli"}
	for _, p := range simulate.Points() {
		head = append(head, fmt.Sprintf("allocated_percent_%d", p))
	}
	for _, p := range simulate.Points() {
		head = append(head, fmt.Sprintf("fragmentation_percent_%d", p))
	}
	head = append(head, "first_failure_percent", "load", "mean_allocated_percent", "rejected_pods_percent",
		"rejected_demand_percent", "pooled_rejected_percent", "no_packing_percent", "moves_per_1000_pods")
	for _, class := range simulate.Classes() {
		head = append(head, "rejects_"+class)
	}
	head = append(head, "decisions_per_second")
	w := csv.NewWriter(out)
	_ = w.Write(head)
	for _, r := range results {
		row := []string{r.Policy, r.Trace, strconv.FormatInt(r.Seed, 10), strconv.FormatInt(r.CapacityMilli, 10),
			strconv.FormatInt(r.ArrivedMilli, 10)}
		for _, values := range []map[string]float64{r.AllocatedPercent, r.FragmentationPercent} {
			for _, p := range simulate.Points() {
				cell := ""
				if v, ok := values[strconv.Itoa(p)]; ok {
					cell = number(v)
				}
				row = append(row, cell)
			}
		}
		for _, v := range []float64{r.FirstFailurePercent, r.Load, r.MeanAllocatedPercent, r.RejectedPodsPercent,
			r.RejectedDemandPercent, r.PooledRejectedPercent} {
			row = append(row, number(v))
		}
		row = append(row, requested(r)...)
		for _, class := range simulate.Classes() {
			row = append(row, strconv.Itoa(r.Rejects[class]))
		}
		_ = w.Write(append(row, number(r.Decisions)))
	}
	w.Flush()
	return w.Error()
}

// requested are the cells of the bound and of the moves, empty where the command line requests none.
func requested(r simulate.Result) []string {
	cells := []string{"", ""}
	if r.NoPacking != nil {
		cells[0] = number(r.NoPacking.Percent)
	}
	if r.Moved != nil {
		cells[1] = number(r.Moved.PerThousand)
	}
	return cells
}

func number(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }

// answer says for each policy whether the pods of --pods fit, and those of a cluster that wait or have to move.
func (s *simulation) answer(out io.Writer, in input, seed int64) error {
	asked := append(named("moved", in.live.Moved), named("waiting", in.live.Waiting)...)
	arrivals := []simulate.Pod(nil)
	if !s.Live {
		arrivals = simulate.Inflate(in.pods, in.capacity, s.Inflate, seed)
	}
	if s.Requested != "" {
		more, err := s.readAsked(in.nodes)
		if err != nil {
			return err
		}
		asked = append(asked, more...)
	}
	var fits []simulate.Fit
	for _, name := range s.more.Policies() {
		e, err := s.experiment(name, &in, seed)
		if err != nil {
			return err
		}
		f, err := e.Fits(arrivals, asked)
		if err != nil {
			return err
		}
		f.Policy = name
		fits = append(fits, f)
	}
	if s.Output == "json" || s.Output == "yaml" {
		text, err := command.Encoded(s.Output, fits)
		if err == nil {
			_, err = out.Write(text)
		}
		return err
	}
	for i, f := range fits {
		if i > 0 {
			_, _ = fmt.Fprintln(out)
		}
		if err := printFit(out, f); err != nil {
			return err
		}
	}
	return nil
}

// readAsked is the pods of --pods.
func (s *simulation) readAsked(nodes []cluster.Node) ([]simulate.Pod, error) {
	scenario, err := readScenario(s.Requested)
	if err != nil {
		return nil, err
	}
	if len(scenario.Machines) > 0 || scenario.Arrivals != (simulate.Times{}) {
		return nil, fmt.Errorf("%s: --pods asks about pods alone: leave machines and arrivals out", s.Requested)
	}
	asked, err := scenario.List()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s.Requested, err)
	}
	if len(asked) == 0 {
		return nil,
			fmt.Errorf("%s: there are no pods: write a list of them below pods, as docs/operate/what-if.md shows",
				s.Requested)
	}
	simulate.Size(asked, nodes)
	return asked, nil
}

func printFit(out io.Writer, f simulate.Fit) error {
	_, _ = fmt.Fprintf(out, "%s: %.2f %% allocated before, %.2f %% with those that fit\n", f.Policy, f.Before, f.After)
	if len(f.Pods) == 0 {
		_, err := fmt.Fprintln(out, "no pod waits, and none has to move")
		return err
	}
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(t, "PODS\tASKED\tFIT\tWHY THE OTHERS DO NOT")
	all := true
	for _, p := range f.Pods {
		all = all && p.Placed == p.Requested
		_, _ = fmt.Fprintf(t, "%s\t%d\t%d\t", p.Type, p.Requested, p.Placed)
		if len(p.Reasons) == 0 {
			_, _ = fmt.Fprintln(t)
		}
		for i, w := range p.Reasons {
			if i > 0 {
				_, _ = fmt.Fprint(t, "\t\t\t")
			}
			_, _ = fmt.Fprintf(t, "%s: %s (%s)\n", counted(w.Nodes, "node"), w.Reason, w.Example)
		}
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, m := range f.More {
		_, _ = fmt.Fprintf(out, "all fit with %s of %s (%s)\n", counted(m.Nodes, "more node"), m.Model,
			counted(m.GPUs, "GPU"))
	}
	if !all && len(f.More) == 0 {
		_, _ = fmt.Fprintln(out, "no number of nodes like those that are there makes all fit")
	}
	return nil
}

// counted is a number of things, one of which is called so.
func counted(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// progress shows on a terminal how much of the work is done. Its zero value shows nothing.
type progress struct {
	out    io.Writer
	screen command.Screen
	runs   int
	// run counts from 0, name says which it is, and shown is the percent that the terminal shows.
	run   int
	name  string
	shown int
}

// progressOn is for that many runs. It shows itself only on a terminal, and not while the output is for a program at
// the other end of a pipe.
func progressOn(a *command.App, runs int, output string) *progress {
	if a.ErrScreen == nil {
		return &progress{}
	}
	_, _, terminal := a.ErrScreen()
	if output != "table" && terminal {
		_, _, terminal = a.Screen()
	}
	if !terminal {
		return &progress{}
	}
	return &progress{out: a.ErrOut, screen: a.ErrScreen, runs: runs, shown: -1}
}

// next begins a run.
func (p *progress) next(policy string, seed int64) func(float64) {
	p.name = fmt.Sprintf("%s, seed %d", policy, seed)
	if p.out == nil {
		return nil
	}
	return p.show
}

// show receives the fraction of the run that is done, and writes a line for each percent.
func (p *progress) show(part float64) {
	percent := int((float64(p.run) + min(1, part)) / float64(p.runs) * 100)
	if percent == p.shown {
		return
	}
	p.shown = percent
	width, _, _ := p.screen()
	const bar = 30
	line := fmt.Sprintf("[%-*s] %3d %%  %s", bar, strings.Repeat("#", percent*bar/100), percent, p.name)
	// A line that is wrapped could not be taken back.
	_, _ = fmt.Fprintf(p.out, "\r%s\x1b[K", line[:min(len(line), max(0, width-1))])
}

// done ends a run.
func (p *progress) done() { p.run++ }

// clear takes the line back, so that what follows stands alone.
func (p *progress) clear() {
	if p.out != nil {
		_, _ = fmt.Fprint(p.out, "\r\x1b[K")
	}
}
