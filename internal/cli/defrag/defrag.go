// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package defrag is kerf defrag plan and apply: which pods to move so that pending pods fit.
package defrag

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kerf-gpu/kerf/internal/cli/command"
	mover "github.com/kerf-gpu/kerf/internal/kube/defrag"
	"github.com/kerf-gpu/kerf/internal/sleep"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/defrag"
	"github.com/kerf-gpu/kerf/sharing/defrag/control"
)

// lookEvery is the time between two acts of apply.
const lookEvery = 5 * time.Second

// options are the flags of both commands.
type options struct {
	mover.Options

	output string
	apply  control.Limits
}

// Commands are the commands of this package.
func Commands(a *command.App) []*cobra.Command {
	c := &cobra.Command{Use: "defrag", Short: "Move pods so that pending pods fit", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() }}
	c.AddCommand(planCommand(a), applyCommand(a))
	return []*cobra.Command{c}
}

const aboutPods = `Kerf can move a pod if a controller replaces it, and if its namespace has the
label kerf.dev/defrag=true or its priority class is in --priority-classes.
Pods with kerf.dev/do-not-disrupt or karpenter.sh/do-not-disrupt stay. No pod
moves for one of lower priority.`

func planCommand(a *command.App) *cobra.Command {
	o := &options{}
	c := &cobra.Command{
		Use:   "plan",
		Short: "Show which pods to move so that pending pods fit",
		Long: `Show which pods to move so that pending pods fit. The command changes nothing.

Each step has the lowest cost for each GPU that pending pods get. The cost of a
move is the lost running time in seconds, and 60 for the restart. A
PodDisruptionBudget doubles it. Each unit of a positive priority adds 1.

` + aboutPods,
		Example: "  kerf defrag plan\n  kerf defrag plan --any-pod -o json",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return o.run(c.Context(), a, func(ctx context.Context, found mover.Cluster) error {
				return show(a, o, found)
			})
		},
	}
	o.define(c)
	command.OutputFlag(c, &o.output)
	c.Flags().BoolVar(&o.Any, "any-pod", false, "plan with all pods that a controller replaces")
	return c
}

func applyCommand(a *command.App) *cobra.Command {
	o := &options{}
	c := &cobra.Command{
		Use:   "apply",
		Short: "Move pods so that pending pods fit",
		Long: `Move pods so that pending pods fit. The command carries out the first step of
kerf defrag plan. It cordons the GPUs for the pending pod, evicts one pod after
the other and waits until each runs again. Then it uncordons the GPUs. It stops
if a moved pod does not run.

The state is in the ConfigMap kerf-defrag. After an interruption, the next
command or kerf-scheduler continues.

` + aboutPods,
		Example: "  kerf defrag apply",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := o.checkApply(); err != nil {
				return command.Misused(err)
			}
			return command.Interruptible(c.Context(), func(ctx context.Context) error {
				return command.Fail(o.carryOut(ctx, a))
			})
		},
	}
	o.define(c)
	f := c.Flags()
	f.IntVar(&o.apply.PerPoolPerHour, "max-evictions-per-pool-per-hour", control.DefaultPerPoolPerHour,
		"most evictions from the nodes of one pool in one hour")
	f.DurationVar(&o.apply.Wait, "wait", control.DefaultWait, "longest time until a moved pod runs, such as 10m")
	return c
}

// define adds the flags of both commands.
func (o *options) define(c *cobra.Command) {
	f := c.Flags()
	f.IntVar(&o.Limits.Moves, "moves", defrag.DefaultMoves, "most moves")
	f.Int64Var(&o.Limits.CostPerGPU, "cost-per-gpu", 0, "highest cost for one GPU, in seconds; 0 is no limit")
	f.StringSliceVar(&o.PriorityClasses, "priority-classes", nil, "priority classes of pods that Kerf can move")
}

func (o *options) check() error {
	if err := command.CheckOutput(o.output); err != nil {
		return err
	}
	if o.Any && len(o.PriorityClasses) > 0 {
		return sharing.Invalid("--priority-classes", strings.Join(o.PriorityClasses, ","), "leave out one of them",
			"has no effect with --any-pod")
	}
	if o.Limits.CostPerGPU < 0 {
		return sharing.Invalid("--cost-per-gpu", fmt.Sprint(o.Limits.CostPerGPU), "write 0 or more seconds",
			"is negative")
	}
	return positive("--moves", o.Limits.Moves)
}

// checkApply checks the flags that only the command that moves pods has.
func (o *options) checkApply() error {
	if err := o.check(); err != nil {
		return err
	}
	if o.apply.Wait <= 0 {
		return sharing.Invalid("--wait", o.apply.Wait.String(), "write a positive time, such as 10m", "is not positive")
	}
	return positive("--max-evictions-per-pool-per-hour", o.apply.PerPoolPerHour)
}

func positive(flag string, n int) error {
	if n < 1 {
		return sharing.Invalid(flag, fmt.Sprint(n), "write 1 or more", "is not positive")
	}
	return nil
}

// run reads the cluster and calls f.
func (o *options) run(parent context.Context, a *command.App,
	f func(context.Context, mover.Cluster) error) error {
	if err := o.check(); err != nil {
		return command.Misused(err)
	}
	ctx, cancel := context.WithTimeout(parent, command.ListTimeout)
	defer cancel()
	api, err := a.Cluster()
	if err != nil {
		return command.Fail(err)
	}
	defer api.Close()
	found, err := mover.Read(ctx, api, o.Options, time.Now())
	if err != nil {
		return command.Fail(fmt.Errorf("plan defragmentation: %w", err))
	}
	for _, left := range found.Left {
		_, _ = fmt.Fprintf(a.ErrOut, "kerf defrag: failed to read: %s\n", left)
	}
	return command.Fail(f(ctx, found))
}

// carryOut looks until the defragmentation has ended.
func (o *options) carryOut(ctx context.Context, a *command.App) error {
	api, err := a.Cluster()
	if err != nil {
		return err
	}
	defer api.Close()
	r := &mover.Runner{API: api, Options: o.Options, Limits: o.apply}
	last := ""
	return r.Run(ctx, time.Now, func(ctx context.Context) error {
		if !sleep.For(ctx, lookEvery) {
			return context.Cause(ctx)
		}
		return nil
	}, false, func(s mover.Status, err error) {
		if line := said(s, err); line != last && line != "" {
			last = line
			_, _ = fmt.Fprintln(a.Out, line)
		}
	})
}

// said is a status in one line.
func said(s mover.Status, err error) string {
	switch {
	case err != nil:
		return "failed, will retry: " + err.Error()
	case s.Begun:
		return fmt.Sprintf("moving %d pods from node %s so that pod %s fits", len(s.Record.Moves), s.Record.Node,
			s.Record.For)
	case s.Act == control.Cordon:
		return fmt.Sprintf("cordoned %d GPUs of node %s", len(s.Record.GPUs), s.Record.Node)
	case s.Act == control.Uncordon:
		return "uncordoned the GPUs of node " + s.Record.Node
	case s.Act == control.Evict && s.Reason == "":
		return fmt.Sprintf("evicted pod %s from node %s", s.Move.Pod, s.Move.Node)
	}
	return s.Reason
}

// plan is what plan prints.
type plan struct {
	Moves []move    `json:"moves"`
	Fits  []fitting `json:"fits"`
	// FreedGPUs are the GPUs that no pod uses after the moves.
	FreedGPUs []string `json:"freedGPUs"`
	// GPUs is what the pending pods get, and Cost what all moves cost, in seconds.
	GPUs       float64 `json:"gpusForPendingPods"`
	Cost       int64   `json:"cost"`
	CostPerGPU float64 `json:"costPerGPU"`
	// Left are the pending pods that still do not fit.
	Left []string `json:"pending"`
	// Partial is true if the search ended at its limit: other moves can help, and pods of Left can fit.
	Partial bool `json:"partial"`
	// Staying counts the pods that must stay, by reason.
	Staying map[string]int `json:"kept"`
}

type move struct {
	Pod  string `json:"pod"`
	From string `json:"from"`
	To   string `json:"to"`
	// Cost is in seconds; the others are what it is made of.
	Cost      int64 `json:"cost"`
	LostSecs  int64 `json:"lostRunningSeconds"`
	Budgets   int   `json:"disruptionBudgets"`
	Priority  int32 `json:"priority"`
	StepIndex int   `json:"step"`
}

type fitting struct {
	Pod       string `json:"pod"`
	To        string `json:"to"`
	StepIndex int    `json:"step"`
}

// show prints a plan.
func show(a *command.App, o *options, found mover.Cluster) error {
	b := found.State
	made := b.Make()
	p := plan{Moves: []move{}, Fits: []fitting{}, FreedGPUs: []string{}, Left: []string{}, Staying: map[string]int{}}
	freed := int64(0)
	for i := range made.Steps {
		s := &made.Steps[i]
		freed, p.Cost = freed+s.Freed, p.Cost+s.Cost
		for _, m := range s.Moves {
			pod := &b.Pods[m.Pod]
			p.Moves = append(p.Moves, move{pod.String(), b.Text(m.From), b.Text(m.To), m.Cost,
				int64(pod.Ran / time.Second), len(pod.Budgets), pod.Priority, i + 1})
		}
		for _, f := range s.Fits {
			p.Fits = append(p.Fits, fitting{b.Pods[f.Pod].String(), b.Text(f.To), i + 1})
		}
		for _, g := range s.Empty {
			p.FreedGPUs = append(p.FreedGPUs, fmt.Sprintf("%s/%d", b.Problem.Nodes[g.Node].Name, g.GPU))
		}
	}
	for _, f := range made.Fit {
		p.Fits = append(p.Fits, fitting{b.Pods[f.Pod].String(), b.Text(f.To), 0})
	}
	for _, pod := range made.Left {
		p.Left = append(p.Left, b.Pods[pod].String())
	}
	for i := range b.Pods {
		if b.Pods[i].Placed && b.Pods[i].StayReason != "" {
			p.Staying[b.Pods[i].StayReason]++
		}
	}
	slices.Sort(p.Left)
	p.Partial = made.Partial
	p.GPUs = float64(freed) / 1000
	if freed > 0 {
		p.CostPerGPU = float64(p.Cost) / p.GPUs
	}
	return a.Answer(o.output, p, p.text)
}
