// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package drain is kerf drain: it takes a GPU of a cluster out of use, and waits until it is empty.
package drain

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kerf-gpu/kerf/api/gpunode"
	"github.com/kerf-gpu/kerf/internal/cli/command"
	"github.com/kerf-gpu/kerf/internal/present"
	"github.com/kerf-gpu/kerf/sharing"
)

// drainEvery is how often a GPU that is drained is looked at.
const drainEvery = time.Second

// drainOptions are the flags of kerf drain.
type drainOptions struct {
	undo, evict, force, mark bool
	reason, output           string
	timeout                  time.Duration
}

// Commands are the commands of this package.
func Commands(a *command.App) []*cobra.Command {
	return []*cobra.Command{drainCommand(a)}
}

func drainCommand(a *command.App) *cobra.Command {
	o := &drainOptions{}
	c := &cobra.Command{
		Use:   "drain GPU",
		Short: "Take one GPU of a cluster out of use, and hand it back",
		Long: `Take one GPU of a cluster out of use: nothing new is granted on it from now on, and the command waits until the pods that
are on it have ended. With --evict it evicts them, as their disruption budgets allow. --undo hands the GPU back.

GPU is NODE/INDEX as kerf status shows it, or a UUID, or its beginning where that is enough.

The mark is in the spec of the node's GPUNode. It outlives restarts of agent and node, and the command. What runs on the GPU
goes on, its containers start again there, and so may pods that had a GPU before the mark was set. Capacity stays as it is:
where kerf-scheduler does not place pods, a pod that fits only there waits on its node and says so. Programs that somebody
started with kerf run on the node are not evicted; they are named and waited for.`,
		Example: "  kerf drain node-1/3 --reason 'ECC errors, ticket 4711'\n  kerf drain node-1/3 --evict --timeout 10m\n  kerf drain node-1/3 --undo",
		Args:    cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if err := o.check(c); err != nil {
				return command.Misused(err)
			}
			return drain(c.Context(), a, o, args[0])
		},
		ValidArgsFunction: a.CompleteGPUName,
	}
	f := c.Flags()
	f.BoolVar(&o.undo, "undo", false, "hand the GPU back")
	f.BoolVar(&o.evict, "evict", false, "evict the pods that are on it")
	f.BoolVar(&o.force, "force", false, "with --evict, also pods that no controller makes anew")
	f.BoolVar(&o.mark, "no-wait", false, "set the mark and return")
	f.StringVar(&o.reason, "reason", "", "why, for those who see it")
	f.DurationVar(&o.timeout, "timeout", 0, "the longest time to wait; the mark stays (0: no limit)")
	command.DocumentFlag(c, &o.output)
	return c
}

func (o *drainOptions) check(c *cobra.Command) error {
	errs := []error{command.DocumentForm(o.output)}
	changed := func(name string) bool { return c.Flags().Changed(name) }
	for _, name := range []string{"evict", "force", "no-wait", "reason", "timeout"} {
		if o.undo && changed(name) {
			errs = append(errs, sharing.Invalid("--"+name, "", "leave it out", "says nothing to --undo"))
		}
	}
	if o.force && !o.evict {
		errs = append(errs, sharing.Invalid("--force", "", "add --evict", "is for --evict alone"))
	}
	if o.mark && (o.evict || changed("timeout")) {
		errs = append(errs, sharing.Invalid("--no-wait", "", "leave it out, or --evict and --timeout", "waits for nobody, and evicts nobody"))
	}
	if o.timeout < 0 {
		errs = append(errs, sharing.Invalid("--timeout", o.timeout.String(), "write a time such as 10m, or 0", "is in the past"))
	}
	if len(o.reason) > 256 {
		errs = append(errs, sharing.Invalid("--reason", "", "write at most 256 bytes", "is too long"))
	}
	return errors.Join(errs...)
}

// drain marks, waits and says what it waits for.
func drain(parent context.Context, a *command.App, o *drainOptions, named string) error {
	api, err := a.Cluster()
	if err != nil {
		return command.Fail(err)
	}
	defer api.Close()
	return command.Interruptible(parent, func(ctx context.Context) error {
		p, err := command.Reported(ctx, api, time.Now())
		if err != nil {
			return command.Fail(err)
		}
		d := &draining{api: api, options: o, tell: a.ErrOut, said: map[string]bool{}}
		if d.node, d.gpu, d.name, err = gpuNamed(p, named); err != nil {
			return command.Fail(err)
		}
		if o.undo {
			if err := d.mark(ctx, nil); err != nil {
				return command.Fail(err)
			}
			return command.Fail(drained(a, o, d, "in use", "takes grants again"))
		}
		if err := d.mark(ctx, &gpunode.Cordon{Reason: o.reason, By: command.UserName(uint32(os.Getuid())), Since: time.Now().UTC().Format(time.RFC3339)}); err != nil { //nolint:gosec // a user id is one
			return command.Fail(err)
		}
		if o.mark {
			return command.Fail(drained(a, o, d, "cordoned", "takes nothing new; hand it back with: "+d.undo(a)))
		}
		if o.timeout > 0 {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, o.timeout)
			defer cancel()
		}
		if err := d.wait(ctx); err != nil {
			return command.Fail(err)
		}
		return command.Fail(drained(a, o, d, "drained", "is drained: nothing is on it, and nothing new comes; hand it back with: "+d.undo(a)))
	})
}

// drainAnswer is what scripts are answered, once the command has done what it was to.
type drainAnswer struct {
	GPU  string `json:"gpu"`
	Node string `json:"node"`
	// Name is the node's name and the GPU's index there, and State drained, cordoned or in use.
	Name  string `json:"name"`
	State string `json:"state"`
}

// drained says how the GPU is at the end.
func drained(a *command.App, o *drainOptions, d *draining, state, sentence string) error {
	return a.Answer(o.output, drainAnswer{d.gpu, d.node, d.name, state}, func() string { return fmt.Sprintf("GPU %s (%s) %s\n", d.name, d.gpu, sentence) })
}

// undo is the command that hands the GPU back.
func (d *draining) undo(a *command.App) string { return a.Name() + " drain " + d.name + " --undo" }

// gpuNamed finds one GPU of the cluster, and the name that people give it.
func gpuNamed(p present.Cluster, named string) (node, uuid, name string, err error) {
	var known []string
	found := 0
	for _, n := range p.Nodes {
		for _, g := range n.GPUs {
			full := present.GPUName(n.Name, g)
			known = append(known, full)
			if exact := full == named || g.UUID == named; exact || len(named) > len("GPU-") && strings.HasPrefix(g.UUID, named) {
				node, uuid, name = n.Name, g.UUID, full
				if exact {
					return node, uuid, name, nil
				}
				found++
			}
		}
	}
	switch {
	case found == 1:
		return node, uuid, name, nil
	case found > 1:
		return "", "", "", fmt.Errorf("GPU %q: %d GPUs begin so; write more of it: %w", named, found, sharing.ErrInvalid)
	case len(known) == 0:
		return "", "", "", fmt.Errorf("GPU %q: no node of the cluster reports of any GPU: %w", named, sharing.ErrNotFound)
	}
	slices.Sort(known)
	return "", "", "", fmt.Errorf("GPU %q: there is none; there are %s: %w", named, some(known, 12), sharing.ErrNotFound)
}

// some is the beginning of a list, for a message.
func some(list []string, most int) string {
	if len(list) > most {
		return strings.Join(list[:most], ", ") + fmt.Sprintf(" and %d more", len(list)-most)
	}
	return strings.Join(list, ", ")
}
