// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package status is the commands that show what runs: kerf status and kerf top, of a machine or a cluster.
package status

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	nodeapi "github.com/kerf-gpu/kerf/api/node/v1alpha1"
	"github.com/kerf-gpu/kerf/internal/cli/command"
	"github.com/kerf-gpu/kerf/internal/nodeclient"
	"github.com/kerf-gpu/kerf/internal/present"
	"github.com/kerf-gpu/kerf/sharing"
)

// watchInterval is the longest time between two pictures of a watch.
const watchInterval = time.Second

// statusOptions are the flags of status.
type statusOptions struct {
	command.Listing

	wait    string
	watch   bool
	timeout time.Duration
}

// Commands are the commands of this package.
func Commands(a *command.App) []*cobra.Command {
	return []*cobra.Command{statusCommand(a), topCommand(a)}
}

func statusCommand(a *command.App) *cobra.Command {
	o := &statusOptions{}
	c := &cobra.Command{
		Use:   "status",
		Short: "Show GPUs and grants",
		Long: `Show the GPUs and grants of this machine: bars on a terminal, else a table. For
a cluster, show those of each node as its agent reports them in its GPUNode.

-o json, yaml and jsonpath are for scripts. -o wide adds UUIDs and cgroups.
-o bars and -o table select a form for people.

--wait returns when a condition is true: "ready" (the agent accepts requests) or
"grants=N" (exactly N grants exist). It also waits while the agent restarts, and
fails after --timeout.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return status(a, c, o) },
	}
	f := c.Flags()
	o.Define(c, "table", "bars")
	f.BoolVarP(&o.watch, "watch", "w", false, "show changes until ctrl-C")
	f.StringVar(&o.wait, "wait", "", "wait for a condition: ready or grants=N")
	f.DurationVar(&o.timeout, "timeout", 30*time.Second, "longest time for --wait")
	command.Complete(c, "wait", "ready", "grants=0")
	return c
}

func status(a *command.App, c *cobra.Command, o *statusOptions) error {
	if err := o.Check(c); err != nil {
		return command.Misused(err)
	}
	if a.Remote(c) {
		return clusterStatus(a, c, o)
	}
	if err := o.CheckMachine(); err != nil {
		return command.Misused(err)
	}
	waits := c.Flags().Changed("wait")
	switch {
	case waits && o.watch:
		return command.Misused(sharing.Invalid("--wait", o.wait, "leave out one of them",
			"cannot be given together with --watch"))
	case !waits && c.Flags().Changed("timeout"):
		return command.Misused(sharing.Invalid("--timeout", o.timeout.String(), "add --wait CONDITION",
			"is for --wait alone"))
	case waits:
		return statusWait(c.Context(), a, o)
	case o.watch:
		return statusWatch(c.Context(), a, o)
	}
	client, err := nodeclient.New(a.Dir)
	if err != nil {
		return command.Fail(err)
	}
	defer func() { _ = client.Close() }()
	p, err := client.Node(c.Context())
	if err != nil {
		return command.Fail(err)
	}
	return command.Fail(show(a, o, p))
}

// show prints one picture.
func show(a *command.App, o *statusOptions, p *nodeapi.GetNodeResponse) error {
	text, err := render(a, o, p)
	if err != nil {
		return err
	}
	_, err = a.Out.Write(text)
	return err
}

// render is a picture in the form that was asked for, or that fits where the output goes.
func render(a *command.App, o *statusOptions, p *nodeapi.GetNodeResponse) ([]byte, error) {
	s := present.FromNode(p).InNamespace(a.Overrides.Context.Namespace)
	if text, ok, err := o.Encode(s, s.Names); ok {
		return text, err
	}
	width, _, terminal := a.Screen()
	shown := present.Options{Width: width, Color: a.Colors(), Wide: o.Wide(), User: command.UserName}
	if o.Output == "bars" || o.Output != "table" && terminal {
		return []byte(present.Bars(s, shown)), nil
	}
	return []byte(present.Table(s, shown)), nil
}

// condition is what --wait waits for: whether it holds in a picture, and what is seen of it there.
type condition func(*nodeapi.GetNodeResponse) (holds bool, seen string)

// parseCondition reads the value of --wait.
func parseCondition(s string) (condition, error) {
	bad := func(problem string) (condition, error) {
		return nil, sharing.Invalid("--wait", s, "write ready, or grants=N with a whole number, such as grants=0", "%s",
			problem)
	}
	if s == "ready" {
		return isReady, nil
	}
	number, ok := strings.CutPrefix(s, "grants=")
	switch {
	case s == "":
		return bad("is empty")
	case !ok:
		return bad("is not a condition")
	case strings.HasPrefix(number, "-"):
		return bad("requests a negative number of grants")
	case number == "" || strings.Trim(number, "0123456789") != "":
		return bad("has no whole number of grants")
	}
	n, err := strconv.Atoi(number)
	if err != nil {
		return bad("requests too many grants")
	}
	return func(p *nodeapi.GetNodeResponse) (bool, string) { return hasGrants(p, n) }, nil
}

func isReady(p *nodeapi.GetNodeResponse) (bool, string) {
	if p.GetReady() {
		return true, "ready"
	}
	if len(p.GetNotReady()) == 0 {
		return false, "not ready"
	}
	return false, "not ready: " + strings.Join(p.GetNotReady(), "; ")
}

func hasGrants(p *nodeapi.GetNodeResponse, n int) (bool, string) {
	const most = 8 // names, which is enough to know what is meant
	grants := p.GetGrants()
	var names []string
	for _, g := range grants[:min(len(grants), most)] {
		names = append(names, present.FromGrant(g).Label())
	}
	if len(grants) > most {
		names = append(names, "...")
	}
	seen := fmt.Sprintf("grants=%d", len(grants))
	if len(names) > 0 {
		seen += " (" + strings.Join(names, ", ") + ")"
	}
	return len(grants) == n, seen
}

// errHolds ends a watch whose condition holds.
var errHolds = errors.New("condition holds")

// statusWait waits until the condition holds in a picture; with an output form it then prints that picture.
func statusWait(parent context.Context, a *command.App, o *statusOptions) error {
	holds, err := parseCondition(o.wait)
	if err == nil && o.timeout <= 0 {
		err = sharing.Invalid("--timeout", o.timeout.String(), "write a time such as 10s", "is not above zero")
	}
	if err != nil {
		return command.Misused(err)
	}
	return command.Interruptible(parent, func(ctx context.Context) error {
		// No deadline on the context: the agent would get it with the call. It might end the call first, as if the
		// output were complete.
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		defer time.AfterFunc(o.timeout, func() { cancel(context.DeadlineExceeded) }).Stop()
		seen := "nothing"
		var last *nodeapi.GetNodeResponse
		err := nodeclient.WatchReconnecting(ctx, a.Dir, watchInterval, func(p *nodeapi.GetNodeResponse) error {
			last = p
			var ok bool
			if ok, seen = holds(p); ok {
				return errHolds
			}
			return nil
		}, func(err error) error {
			seen = err.Error()
			if hopeless(err) {
				return err
			}
			return nil
		})
		var stopped *command.InterruptedError
		switch {
		case errors.Is(err, errHolds) && o.Output != "":
			return command.Fail(show(a, o, last))
		case errors.Is(err, errHolds):
			return nil
		case errors.As(err, &stopped):
			return command.Exit(stopped.Code(), err)
		case errors.Is(err, context.DeadlineExceeded):
			return command.Fail(fmt.Errorf("%q did not come within %s; last seen: %s", o.wait,
				o.timeout.Round(time.Millisecond), seen))
		}
		return command.Fail(err)
	})
}

// hopeless reports errors that do not go away by waiting.
func hopeless(err error) bool {
	return errors.Is(err, sharing.ErrDenied) || errors.Is(err, sharing.ErrInvalid) ||
		errors.Is(err, sharing.ErrUnsupported)
}
