// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package status

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/kerf-gpu/kerf/internal/cli/command"
	"github.com/kerf-gpu/kerf/internal/kube/access"
	"github.com/kerf-gpu/kerf/internal/present"
	"github.com/kerf-gpu/kerf/sharing"
)

// clusterWatch is the time between two pictures of a watched cluster.
const clusterWatch = 2 * time.Second

// clusterTop is kerf top of a cluster.
func clusterTop(parent context.Context, a *command.App, o *topOptions) error {
	if len(o.gpus)+len(o.grants) > 0 {
		return command.Misused(sharing.Invalid("--gpu-uuid and --grant", "",
			"use --namespace, or ask one node's monitor with --run-dir", "are for the monitor of one machine"))
	}
	if o.sort == "energy" || o.sort == "idle" {
		return command.Misused(sharing.Invalid("--sort", o.sort, "write gpu, memory, sm or name",
			"is an order for one machine alone"))
	}
	api, err := a.Cluster()
	if err != nil {
		return command.Fail(err)
	}
	defer api.Close()
	return command.Interruptible(parent, func(ctx context.Context) error {
		_, _, terminal := a.Screen()
		if terminal && o.Output == "" && !o.once {
			err = live(ctx, a, o.clusterView(), func(ctx context.Context, show func(event)) error {
				return o.followCluster(ctx, api, func(p clusterTopData, unavailable error) error {
					next := event{notes: p.unknown}
					if unavailable != nil {
						next.notes = []string{unavailable.Error()}
					} else {
						next.nodes = samplesOf(p.cluster, p.uses, p.measured)
					}
					show(next)
					return nil
				})
			})
		} else {
			err = o.followCluster(ctx, api, o.printCluster(a))
		}
		if ctx.Err() != nil || errors.Is(err, errEnough) {
			return nil //nolint:nilerr // ctrl-C is how a watch ends
		}
		return command.Fail(err)
	})
}

// clusterView is where the live form begins: at the nodes, unless the user asks for other lines.
func (o *topOptions) clusterView() present.TopView {
	v := o.view()
	if v.By == "owner" && len(o.namespaces) == 0 && o.Selector == "" {
		v.By = "node"
	}
	return v
}

// followCluster calls see with what is known of the cluster, again and again. If the cluster is unavailable, see gets
// the error and decides. It returns other errors, and those of see.
func (o *topOptions) followCluster(ctx context.Context, api *access.Client,
	see func(clusterTopData, error) error) error {
	tick := time.NewTicker(max(o.interval, clusterWatch))
	defer tick.Stop()
	for {
		p, err := o.readCluster(ctx, api)
		if err != nil && !errors.Is(err, sharing.ErrUnavailable) {
			return err
		}
		if err := see(p, err); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err() //nolint:wrapcheck // the caller knows the cause
		case <-tick.C:
		}
	}
}

// printCluster prints one text after the other. With --once, an unavailable cluster is an error.
func (o *topOptions) printCluster(a *command.App) func(clusterTopData, error) error {
	return func(p clusterTopData, err error) error {
		if err != nil && o.once {
			return err
		}
		if err != nil {
			return nil //nolint:nilerr // the next try may succeed
		}
		text, err := p.render(a, o)
		if err == nil {
			_, err = a.Out.Write(text)
		}
		if err == nil && o.once {
			err = errEnough
		}
		return err
	}
}

// clusterTopData is what is reserved, from the agents' reports, and what is used, from the monitors.
type clusterTopData struct {
	cluster  present.Cluster
	uses     []present.ClusterUsage
	measured measured
	unknown  []string
}

func (o *topOptions) readCluster(parent context.Context, api *access.Client) (clusterTopData, error) {
	ctx, cancel := context.WithTimeout(parent, command.ClusterDeadline)
	defer cancel()
	p, err := command.Reported(ctx, api, time.Now())
	if err != nil {
		return clusterTopData{}, err
	}
	if o.Wide() || o.Script() {
		if err := command.NameClaims(ctx, api, &p); err != nil {
			return clusterTopData{}, err
		}
	}
	measured, left := measure(ctx, api)
	keep, err := o.Pods(ctx, api, "")
	if err != nil {
		return clusterTopData{}, err
	}
	uses := slices.DeleteFunc(usesOf(p, measured), func(u present.ClusterUsage) bool {
		return len(o.namespaces) > 0 && !slices.Contains(o.namespaces, u.Namespace) || !keep(u.Namespace, u.Pod)
	})
	return clusterTopData{p, uses, measured, left}, nil
}

func (d clusterTopData) render(a *command.App, o *topOptions) ([]byte, error) {
	if text, ok, err := o.Encode(struct {
		Usages  []present.ClusterUsage `json:"usages"`
		Unknown []string               `json:"unknown"`
	}{append([]present.ClusterUsage{}, d.uses...), append([]string{}, d.unknown...)},
		func() []string { return present.UseNames(d.uses) }); ok {
		return text, err
	}
	var b strings.Builder
	b.WriteString(present.ClusterTop(d.uses, o.sort, present.Options{Color: a.Colors(), Wide: o.Wide()}))
	for _, l := range d.unknown {
		b.WriteString("not known: " + l + "\n")
	}
	return []byte(b.String()), nil
}
