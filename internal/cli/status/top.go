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

On a terminal, the list scrolls, and Enter goes from a node to its GPUs and from
a GPU to its grants. Press ? for the other keys: filter, order, views. With
--once or --output, the command prints text as to a pipe.

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
		in := &telemetryapi.WatchRequest{Gpus: o.gpus, Namespaces: o.namespaces, Grants: o.grants,
			IntervalMs: uint32(o.interval.Milliseconds())} //nolint:gosec // at most 60000
		var err error
		if terminal && o.Output == "" && !o.once {
			err = live(ctx, a, o.view(), func(ctx context.Context, show func(event)) error {
				return nodeclient.Telemetry(ctx, a.Dir, in, func(s *telemetryapi.Sample) error {
					show(event{nodes: []present.TopNode{{Sample: s}}, notes: present.MissingValues(s)})
					return nil
				})
			})
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
