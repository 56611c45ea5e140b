// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package status

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/encoding/protojson"

	telemetryapi "github.com/kerf-gpu/kerf/api/telemetry/v1alpha1"
	"github.com/kerf-gpu/kerf/internal/cli/command"
	"github.com/kerf-gpu/kerf/internal/nodeclient"
	"github.com/kerf-gpu/kerf/internal/present"
	"github.com/kerf-gpu/kerf/sharing"
)

// topOptions are the flags of kerf top.
type topOptions struct {
	command.Listing

	interval                 time.Duration
	sort, by                 string
	reverse, once            bool
	gpus, namespaces, grants []string
}

// errEnough ends a stream of which enough was seen.
var errEnough = errors.New("enough")

func topCommand(a *command.App) *cobra.Command {
	o := &topOptions{}
	c := &cobra.Command{
		Use:   "top",
		Short: "Show the measured usage of GPUs and grants",
		Long: `Show the usage of GPUs and grants as kerf-monitor measures it: live on a
terminal, else one table per sample. Usage without a grant has its own lines, so
the lines of a GPU add up to its total.

Keys: < and > change the order, r reverses it, v switches between owners, pods
and GPUs, q quits.

For a cluster, the command shows the grants that the agents report and the usage
that the monitors measure. It reads the monitors through the API server, which
needs the right to get pods/proxy in kerf-system.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := errors.Join(o.check(), o.Check(c)); err != nil {
				return command.Misused(err)
			}
			if a.Remote(c) {
				return clusterTop(c.Context(), a, o)
			}
			if err := o.CheckMachine(); err != nil {
				return command.Misused(err)
			}
			return top(c.Context(), a, o)
		},
	}
	f := c.Flags()
	f.DurationVar(&o.interval, "interval", time.Second, "time between samples, 100ms to 1m")
	f.StringVar(&o.sort, "sort", "gpu", "order: "+strings.Join(present.TopOrders(), ", "))
	f.BoolVar(&o.reverse, "reverse", false, "reverse the order")
	f.StringVar(&o.by, "by", "owner", "one line per: "+strings.Join(present.TopRows(), ", "))
	o.Define(c, "table")
	f.BoolVar(&o.once, "once", false, "show one sample and exit")
	f.StringSliceVar(&o.gpus, "gpu-uuid", nil, "only this GPU (repeatable)")
	f.StringSliceVarP(&o.namespaces, "namespace", "n", nil, "only pods of this namespace (repeatable)")
	command.CompleteWith(c, "gpu-uuid", a.CompleteGPUs)
	command.Complete(c, "sort", present.TopOrders()...)
	f.StringSliceVar(&o.grants, "grant", nil, "only this grant, by name or ID (repeatable)")
	return c
}

func (o *topOptions) check() error {
	var errs []error
	if o.interval < 100*time.Millisecond || o.interval > time.Minute {
		errs = append(errs, sharing.Invalid("--interval", o.interval.String(), "write 100ms to 1m",
			"is not an interval that is kept"))
	}
	if !slices.Contains(present.TopOrders(), o.sort) {
		errs = append(errs, sharing.Invalid("--sort", o.sort, "write "+strings.Join(present.TopOrders(), ", "),
			"is not an order"))
	}
	if !slices.Contains(present.TopRows(), o.by) {
		errs = append(errs, sharing.Invalid("--by", o.by, "write "+strings.Join(present.TopRows(), ", "),
			"is not what there are lines of"))
	}
	return errors.Join(errs...)
}

// top shows samples until it is interrupted.
func top(parent context.Context, a *command.App, o *topOptions) error {
	return command.Interruptible(parent, func(ctx context.Context) error {
		_, _, terminal := a.Screen()
		in := &telemetryapi.WatchRequest{IntervalMs: uint32(o.interval.Milliseconds()), Gpus: o.gpus, Namespaces: o.namespaces, Grants: o.grants} //nolint:gosec // at most 60000
		var err error
		if terminal && !o.Script() && !o.once {
			err = liveTop(ctx, a, o, in)
		} else {
			err = nodeclient.Telemetry(ctx, a.Dir, in, printTop(a, o))
		}
		if _, ok := errors.AsType[*command.InterruptedError](context.Cause(ctx)); ok || errors.Is(err, errEnough) {
			return nil // ctrl-C is how a watch ends
		}
		return command.Fail(err)
	})
}

// printTop prints samples one after the other.
func printTop(a *command.App, o *topOptions) func(*telemetryapi.Sample) error {
	first := true
	return func(s *telemetryapi.Sample) error {
		text, err := o.render(s)
		if err != nil {
			return err
		}
		if !o.Script() && !first {
			text = append([]byte("\n"), text...)
		}
		first = false
		if _, err = a.Out.Write(text); err == nil && o.once {
			err = errEnough
		}
		return err
	}
}

// view is what the flags ask to be shown.
func (o *topOptions) view() present.TopView {
	return present.TopView{Order: o.sort, Reverse: o.reverse, By: o.by, Wide: o.Wide()}
}

func (o *topOptions) render(s *telemetryapi.Sample) ([]byte, error) {
	if !o.Script() {
		return []byte(present.Top(s, o.view())), nil
	}
	text, err := protojson.MarshalOptions{EmitDefaultValues: true}.Marshal(s)
	if err != nil {
		return nil, fmt.Errorf("write a sample: %w", err)
	}
	if o.Output == "json" { // one sample per line
		return append(text, '\n'), nil
	}
	text, _, err = o.Encode(json.RawMessage(text), func() []string { return present.SampleNames(s) })
	return text, err
}

// liveTop draws samples in place, and has the keys change what is shown. The screen and the keyboard are given back on
// every way out.
func liveTop(ctx context.Context, a *command.App, o *topOptions, in *telemetryapi.WatchRequest) (err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	d := &drawing{app: a, view: o.view()}
	board, err := openKeyboard(a.In)
	if err != nil {
		return err
	}
	_, _ = fmt.Fprint(a.Out, command.EnterScreen)
	defer func() { _, _ = fmt.Fprint(a.Out, command.LeaveScreen) }()
	if board != nil {
		d.view.Keys = true
		defer func() { err = errors.Join(err, board.close()) }()
		board.follow(func(key string) {
			if end := d.press(key); end != nil {
				cancel(end)
			}
		})
	}
	err = nodeclient.Telemetry(ctx, a.Dir, in, d.see)
	if cause := context.Cause(ctx); cause != nil {
		return cause // a key, or a signal
	}
	return err
}

// drawing is what is on the screen. Samples and keys change it.
type drawing struct {
	app  *command.App
	mu   sync.Mutex
	view present.TopView
	last *telemetryapi.Sample
}

// see draws a sample.
func (d *drawing) see(s *telemetryapi.Sample) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.last = s
	return d.app.Draw([]byte(present.Top(s, d.view)))
}

// press draws the last sample as a key wants it. The error ends the watch: errEnough, or why it cannot be drawn.
func (d *drawing) press(key string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	next, quit := d.view.Key(key)
	if quit || key == interrupt {
		return errEnough
	}
	if next == d.view || d.last == nil {
		d.view = next
		return nil
	}
	d.view = next
	return d.app.Draw([]byte(present.Top(d.last, d.view)))
}
