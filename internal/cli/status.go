// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"os/user"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	nodev1 "github.com/kerf-gpu/kerf/api/node/v1"
	"github.com/kerf-gpu/kerf/internal/nodeclient"
	"github.com/kerf-gpu/kerf/internal/present"
	"github.com/kerf-gpu/kerf/sharing"
)

// watchInterval is the longest time between two pictures of a watch.
const watchInterval = time.Second

// statusOptions are the flags of status.
type statusOptions struct {
	output, wait string
	watch        bool
	timeout      time.Duration
}

func (a *app) statusCommand() *cobra.Command {
	o := &statusOptions{}
	c := &cobra.Command{
		Use:   "status",
		Short: "Show the GPUs and who holds what",
		Long: `Show the GPUs of this machine and who holds what: bars on a terminal, a table elsewhere. Of a cluster it shows each
node's, as its agent tells of them (GPUNode), with --namespace the claims of that namespace alone.

-o json and -o yaml are for scripts: their fields keep their names and meanings. -o wide adds UUIDs and
cgroups, -o bars and -o table choose a form whatever the output goes to.

--wait returns when its condition holds: "ready" (the agent takes claims) or "grants=N" (exactly N grants
live). It waits for an agent that is not there yet or is restarting, and fails after --timeout.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return a.status(c, o) },
	}
	f := c.Flags()
	f.StringVarP(&o.output, "output", "o", "", "json, yaml, wide, table or bars")
	f.BoolVarP(&o.watch, "watch", "w", false, "show every change until ctrl-C")
	f.StringVar(&o.wait, "wait", "", "wait for a condition: ready or grants=N")
	f.DurationVar(&o.timeout, "timeout", 30*time.Second, "the longest time for --wait")
	complete(c, "output", outputs()...)
	complete(c, "wait", "ready", "grants=0")
	return c
}

func outputs() []string { return []string{"json", "yaml", "wide", "table", "bars"} }

func (a *app) status(c *cobra.Command, o *statusOptions) error {
	if o.output != "" && !slices.Contains(outputs(), o.output) {
		return misused(sharing.Invalid("--output", o.output, "write one of "+strings.Join(outputs(), ", "), "is not a form of output"))
	}
	if a.remote(c) {
		return a.clusterStatus(c, o)
	}
	waits := c.Flags().Changed("wait")
	switch {
	case waits && o.watch:
		return misused(sharing.Invalid("--wait", o.wait, "leave out one of them", "cannot be given together with --watch"))
	case !waits && c.Flags().Changed("timeout"):
		return misused(sharing.Invalid("--timeout", o.timeout.String(), "add --wait CONDITION", "is for --wait alone"))
	case waits:
		return a.statusWait(c.Context(), o)
	case o.watch:
		return a.statusWatch(c.Context(), o)
	}
	client, err := nodeclient.New(a.dir)
	if err != nil {
		return fail(err)
	}
	defer func() { _ = client.Close() }()
	p, err := client.Node(c.Context())
	if err != nil {
		return fail(err)
	}
	return fail(a.show(o.output, p))
}

// show prints one picture.
func (a *app) show(output string, p *nodev1.GetNodeResponse) error {
	text, err := a.render(output, p)
	if err != nil {
		return err
	}
	_, err = a.out.Write(text)
	return err
}

// render is a picture in the form that was asked for, or that fits where the output goes.
func (a *app) render(output string, p *nodev1.GetNodeResponse) ([]byte, error) {
	s := present.FromNode(p)
	switch output {
	case "json":
		return present.JSON(s, true)
	case "yaml":
		return present.YAML(s)
	}
	width, _, terminal := a.screen()
	o := present.Options{Width: width, Color: a.colors(), Wide: output == "wide", User: userName}
	if output == "bars" || output != "table" && terminal {
		return []byte(present.Bars(s, o)), nil
	}
	return []byte(present.Table(s, o)), nil
}

// colors tells whether the output takes colours and the user wants them.
func (a *app) colors() bool {
	_, _, terminal := a.screen()
	return terminal && a.getenv("NO_COLOR") == "" && a.getenv("TERM") != "dumb"
}

// userName is the name of a user id, or empty when there is none.
func userName(uid uint32) string {
	u, err := user.LookupId(strconv.FormatUint(uint64(uid), 10))
	if err != nil {
		return ""
	}
	return u.Username
}

// interruptible runs f with a context that ends on ctrl-C and its like.
func interruptible(parent context.Context, f func(context.Context) error) error {
	ctx, signals := catch(parent)
	defer signals.release()
	return f(ctx)
}
