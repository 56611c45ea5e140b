// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/kerf-gpu/kerf/internal/cli/command"
	"github.com/kerf-gpu/kerf/sharing/allocator/cluster"
	"github.com/kerf-gpu/kerf/sharing/simulate"
)

// answer says for each policy whether the pods of --pods fit, and those of a cluster that wait or have to move.
func (s *simulation) answer(out io.Writer, in input, seed int64) error {
	asked := append(named("moved", in.live.Moved), named("waiting", in.live.Waiting)...)
	arrivals := []simulate.Pod(nil)
	if !s.Live {
		arrivals = simulate.Inflate(in.pods, in.capacity, s.Inflate, seed)
	}
	if s.Asked != "" {
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
	scenario, err := readScenario(s.Asked)
	if err != nil {
		return nil, err
	}
	if len(scenario.Machines) > 0 || scenario.Arrivals != (simulate.Times{}) {
		return nil, fmt.Errorf("%s: --pods asks about pods alone: leave machines and arrivals out", s.Asked)
	}
	asked, err := scenario.List()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s.Asked, err)
	}
	if len(asked) == 0 {
		return nil, fmt.Errorf("%s: there are no pods: write a list of them below pods, as docs/placement.md shows", s.Asked)
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
		all = all && p.Placed == p.Asked
		_, _ = fmt.Fprintf(t, "%s\t%d\t%d\t", p.Type, p.Asked, p.Placed)
		if len(p.Why) == 0 {
			_, _ = fmt.Fprintln(t)
		}
		for i, w := range p.Why {
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
		_, _ = fmt.Fprintf(out, "all fit with %s of %s (%s)\n", counted(m.Nodes, "more node"), m.Model, counted(m.GPUs, "GPU"))
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
