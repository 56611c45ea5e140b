// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package drain is kerf cordon, drain and uncordon. They mark a GPU of a cluster, and wait until it has no grant. Or
// they mark a node's driver, and wait until Kerf has released it.
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

// drainEvery is the time between two reads of the GPUNode while a command waits.
const drainEvery = time.Second

// task is what a command does with one GPU.
type task struct {
	evict, force, wait bool
	// driver means the NVIDIA driver of a node.
	driver         bool
	reason, output string
	timeout        time.Duration
}

// Commands are the commands of this package.
func Commands(a *command.App) []*cobra.Command {
	return []*cobra.Command{cordonCommand(a), drainCommand(a), uncordonCommand(a)}
}

// aboutGPU ends the help of the three commands.
const aboutGPU = `GPU is NODE/INDEX as kerf status shows it, or a UUID, or the beginning of one.

The mark is in the spec of the node's GPUNode. It outlives restarts of the agent
and of the node.`

func cordonCommand(a *command.App) *cobra.Command {
	o := &task{}
	c := &cobra.Command{
		Use:   "cordon GPU",
		Short: "Mark one GPU of a cluster so that it takes no new grant",
		Long: `Mark one GPU of a cluster so that it takes no new grant. Pods that use the GPU
go on, and their containers restart on it. With --wait the command returns when
no grant is left on the GPU.

` + aboutGPU + `

The node's capacity does not change. Without kerf-scheduler, a pod that fits
only on this GPU stays pending on the node, and an event states the reason.`,
		Example: "  kerf cordon node-1/3 --reason 'ECC errors, ticket 4711'\n" +
			"  kerf cordon node-1/3 --wait --timeout 10m",
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if c.Flags().Changed("timeout") && !o.wait {
				return command.Misused(sharing.Invalid("--timeout", o.timeout.String(), "add --wait",
					"has no effect without --wait"))
			}
			return cordon(c.Context(), a, o, args[0])
		},
		ValidArgsFunction: a.CompleteGPUName,
	}
	c.Flags().BoolVar(&o.wait, "wait", false, "wait until no grant is left on the GPU")
	o.define(c)
	return c
}

func drainCommand(a *command.App) *cobra.Command {
	o := &task{evict: true, wait: true}
	c := &cobra.Command{
		Use:   "drain GPU | drain --driver NODE",
		Short: "Cordon a GPU and evict its pods, or release a driver",
		Long: `Cordon one GPU of a cluster, evict its pods and wait until they end. Evictions
respect PodDisruptionBudgets. kerf drain evicts no pod without a controller
unless --force is given. It never ends programs that kerf run started; it names
them and waits. kerf uncordon clears the mark.

With --driver, NODE gives no new grants, and the command evicts the pods of all
its GPUs. Then kerf-agent and kerf-monitor release the NVIDIA driver, so that
you can unload its modules. kerf uncordon --driver ends the drain.

` + aboutGPU,
		Example: "  kerf drain node-1/3 --reason 'ECC errors, ticket 4711'\n" +
			"  kerf drain node-1/3 --timeout 10m\n" +
			"  kerf drain --driver node-1 --reason 'driver 590'",
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if o.driver {
				return drainDriver(c.Context(), a, o, args[0])
			}
			return cordon(c.Context(), a, o, args[0])
		},
		ValidArgsFunction: a.CompleteGPUName,
	}
	c.Flags().BoolVar(&o.driver, "driver", false, "release the NVIDIA driver of a node for an upgrade")
	c.Flags().BoolVar(&o.force, "force", false, "also evict pods that no controller replaces")
	o.define(c)
	return c
}

func uncordonCommand(a *command.App) *cobra.Command {
	o := &task{}
	c := &cobra.Command{
		Use:   "uncordon GPU | uncordon --driver NODE",
		Short: "Clear the mark of kerf cordon or kerf drain",
		Long: `Clear the mark of kerf cordon or kerf drain. The GPU takes new grants again.
With --driver, NODE uses its NVIDIA driver again.

` + aboutGPU,
		Example: "  kerf uncordon node-1/3\n  kerf uncordon --driver node-1",
		Args:    cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if o.driver {
				return useDriver(c.Context(), a, o, args[0])
			}
			if err := command.CheckOutput(o.output); err != nil {
				return err
			}
			return withGPU(c.Context(), a, o, args[0],
				func(ctx context.Context, d *draining) error {
					if err := d.mark(ctx, func(s gpunode.Spec) gpunode.Spec { return s.Without(d.gpu) }); err != nil {
						return err
					}
					return d.answer(a, "uncordoned", "takes new grants")
				})
		},
		ValidArgsFunction: a.CompleteGPUName,
	}
	c.Flags().BoolVar(&o.driver, "driver", false, "use the NVIDIA driver of a node again")
	command.OutputFlag(c, &o.output)
	return c
}

// define adds the flags of cordon and drain.
func (o *task) define(c *cobra.Command) {
	f := c.Flags()
	f.StringVar(&o.reason, "reason", "", "reason that kerf status and pending pods show")
	f.DurationVar(&o.timeout, "timeout", 0, "longest time to wait, such as 10m; 0 is no limit; the mark stays")
	command.OutputFlag(c, &o.output)
}

func (o *task) check() error {
	errs := []error{command.CheckOutput(o.output)}
	if o.timeout < 0 {
		errs = append(errs, sharing.Invalid("--timeout", o.timeout.String(), "write a time such as 10m, or 0",
			"is below zero"))
	}
	if len(o.reason) > 256 {
		errs = append(errs, sharing.Invalid("--reason", "", "write at most 256 bytes", "is too long"))
	}
	return errors.Join(errs...)
}

// cordon marks a GPU, and waits until it has no grant if the task says so.
func cordon(parent context.Context, a *command.App, o *task, named string) error {
	if err := o.check(); err != nil {
		return command.Misused(err)
	}
	return withGPU(parent, a, o, named, func(ctx context.Context, d *draining) error {
		by := command.UserName(uint32(os.Getuid())) //nolint:gosec // a user id is one
		c := gpunode.Cordon{UUID: d.gpu, Reason: o.reason, By: by, Since: time.Now().UTC().Format(time.RFC3339)}
		if err := d.mark(ctx, func(s gpunode.Spec) gpunode.Spec { return s.With(c) }); err != nil {
			return err
		}
		undo := a.Name() + " uncordon " + d.name
		if !o.wait {
			return d.answer(a, "cordoned", "takes no new grant; to clear the mark: "+undo)
		}
		if o.timeout > 0 {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, o.timeout)
			defer cancel()
		}
		if err := d.wait(ctx); err != nil {
			return err
		}
		return d.answer(a, "drained",
			"is drained: no grant is left on it, and it takes no new one; to clear the mark: "+undo)
	})
}

// withGPU finds the GPU in the cluster and runs f for it until an interrupt.
func withGPU(parent context.Context, a *command.App, o *task, named string,
	f func(context.Context, *draining) error) error {
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
		d := &draining{api: api, task: o, tell: a.ErrOut, said: map[string]bool{}}
		if d.node, d.gpu, d.name, err = gpuNamed(p, named); err != nil {
			return command.Fail(err)
		}
		d.what = "GPU " + d.name
		return command.Fail(f(ctx, d))
	})
}

// answer is what the commands print at their end.
type answer struct {
	// GPU is absent for a node's driver.
	GPU  string `json:"gpu,omitempty"`
	Node string `json:"node"`
	// Name is the node's name and the index of the GPU there, or the node's. State is cordoned, drained or uncordoned.
	Name  string `json:"name"`
	State string `json:"state"`
}

func (d *draining) answer(a *command.App, state, sentence string) error {
	return a.Answer(d.task.output, answer{d.gpu, d.node, d.name, state}, func() string {
		if d.gpu == "" {
			return d.what + " " + sentence + "\n"
		}
		return fmt.Sprintf("%s (%s) %s\n", d.what, d.gpu, sentence)
	})
}

// gpuNamed finds one GPU of the cluster, and the name that people give it.
func gpuNamed(p present.Cluster, named string) (node, uuid, name string, err error) {
	var known []string
	found := 0
	for _, n := range p.Nodes {
		for _, g := range n.GPUs {
			full := present.GPUName(n.Name, g)
			known = append(known, full)
			if exact := full == named || g.UUID == named; exact || len(named) > len("GPU-") &&
				strings.HasPrefix(g.UUID, named) {
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
		return "", "", "", fmt.Errorf("GPU %q: %d GPUs begin so; write more of it: %w", named, found,
			sharing.ErrInvalid)
	case len(known) == 0:
		return "", "", "", fmt.Errorf("GPU %q: no node of the cluster reports of any GPU: %w", named,
			sharing.ErrNotFound)
	}
	slices.Sort(known)
	return "", "", "", fmt.Errorf("GPU %q: there is none; there are %s: %w", named, some(known, 12),
		sharing.ErrNotFound)
}

// some is the beginning of a list, for a message.
func some(list []string, most int) string {
	if len(list) > most {
		return strings.Join(list[:most], ", ") + fmt.Sprintf(" and %d more", len(list)-most)
	}
	return strings.Join(list, ", ")
}
