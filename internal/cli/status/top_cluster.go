// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package status

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/spf13/cobra"

	"github.com/kerf-gpu/kerf/internal/cli/command"
	"github.com/kerf-gpu/kerf/internal/kube/access"
	"github.com/kerf-gpu/kerf/internal/present"
	"github.com/kerf-gpu/kerf/sharing"
)

// mostExposed bounds what is read of one monitor's exposition, in bytes.
const mostExposed = 16 << 20

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
		draw := terminal && !o.Script() && !o.once
		if draw {
			_, _ = fmt.Fprint(a.Out, command.EnterScreen)
			defer func() { _, _ = fmt.Fprint(a.Out, command.LeaveScreen) }()
		}
		tick := time.NewTicker(max(o.interval, clusterWatch))
		defer tick.Stop()
		for {
			text, err := clusterTopOnce(ctx, a, api, o)
			if err == nil && draw {
				err = a.Draw(text)
			} else if err == nil {
				_, err = a.Out.Write(text)
			}
			if ctx.Err() != nil || err == nil && o.once {
				return nil
			}
			if err != nil && (o.once || !errors.Is(err, sharing.ErrUnavailable)) {
				return command.Fail(err)
			}
			select {
			case <-ctx.Done():
				return nil // ctrl-C is how a watch ends
			case <-tick.C:
			}
		}
	})
}

// clusterTopOnce is one picture: what is booked, from the agents' reports, and what is used, from the monitors.
func clusterTopOnce(parent context.Context, a *command.App, api *access.Client, o *topOptions) ([]byte, error) {
	ctx, cancel := context.WithTimeout(parent, command.ClusterDeadline)
	defer cancel()
	p, err := command.Reported(ctx, api, time.Now())
	if err != nil {
		return nil, err
	}
	measured, left := measure(ctx, api)
	keep, err := o.Pods(ctx, api, "")
	if err != nil {
		return nil, err
	}
	uses := slices.DeleteFunc(usesOf(p, measured), func(u present.ClusterUsage) bool {
		return len(o.namespaces) > 0 && !slices.Contains(o.namespaces, u.Namespace) || !keep(u.Namespace, u.Pod)
	})
	if text, ok, err := o.Encode(struct {
		Usages  []present.ClusterUsage `json:"usages"`
		Unknown []string               `json:"unknown"`
	}{append([]present.ClusterUsage{}, uses...), append([]string{}, left...)},
		func() []string { return present.UseNames(uses) }); ok {
		return text, err
	}
	var b strings.Builder
	b.WriteString(present.ClusterTop(uses, o.sort, present.Options{Color: a.Colors(), Wide: o.Wide()}))
	for _, l := range left {
		b.WriteString("not known: " + l + "\n")
	}
	return []byte(b.String()), nil
}

// useKey is whose use of which GPU; pod and container are empty for programs that are of no pod.
type useKey struct{ gpu, owner, namespace, pod, container, grant string }

// measured are the amounts that monitors tell.
type measured struct{ memory, sm map[useKey]float64 }

// measure asks every monitor once; left says what is not known, and why.
func measure(ctx context.Context, api *access.Client) (m measured, left []string) {
	m = measured{memory: map[useKey]float64{}, sm: map[useKey]float64{}}
	pods, err := command.OwnPods(ctx, api, "kerf-monitor")
	if err != nil {
		return m, []string{err.Error()}
	}
	if len(pods) == 0 {
		return m,
			[]string{"what is used: no kerf-monitor runs (deploy/variants/monitor.yaml); what is granted is shown"}
	}
	for _, p := range pods {
		text, err := command.AskPod(ctx, api, p, command.MonitorPort, "metrics", nil, mostExposed)
		if err == nil {
			err = m.read(text)
		}
		if err != nil {
			left = append(left, err.Error())
		}
	}
	return m, left
}

// read takes in one monitor's exposition.
func (m measured) read(text []byte) error {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(text))
	if err != nil {
		return fmt.Errorf("read the monitor's metrics: %w (%w)", err, sharing.ErrInvalid)
	}
	for name, into := range map[string]map[useKey]float64{"kerf_usage_memory_bytes": m.memory,
		"kerf_usage_sm_ratio": m.sm} {
		for _, row := range families[name].GetMetric() {
			into[keyOf(row)] += row.GetGauge().GetValue()
		}
	}
	return nil
}

func keyOf(row *dto.Metric) useKey {
	var k useKey
	for _, l := range row.GetLabel() {
		switch l.GetName() {
		case "gpu_uuid":
			k.gpu = l.GetValue()
		case "owner":
			k.owner = l.GetValue()
		case "namespace":
			k.namespace = l.GetValue()
		case "pod":
			k.pod = l.GetValue()
		case "container":
			k.container = l.GetValue()
		case "grant":
			k.grant = l.GetValue()
		}
	}
	if k.pod != "" || k.owner != "grant" {
		k.grant = ""
	}
	return k
}

// usesOf joins reserved and measured amounts. Usage without a grant has a separate line.
func usesOf(p present.Cluster, m measured) []present.ClusterUsage {
	var out []present.ClusterUsage
	amount := func(of map[useKey]float64, k useKey) *float64 {
		if v, ok := of[k]; ok {
			return &v
		}
		return nil
	}
	for _, n := range p.Nodes {
		index := map[string]int{}
		for _, g := range n.GPUs {
			index[g.UUID] = g.Index
		}
		for _, c := range n.Grants {
			for _, f := range c.Shares {
				k := useKey{gpu: f.GPU, owner: "grant", namespace: c.Namespace, pod: c.Pod, container: c.Container}
				if c.Pod == "" {
					k.grant = c.ID
				}
				out = append(out, present.ClusterUsage{
					Node: n.Name, GPU: f.GPU, Index: index[f.GPU], Grant: c.ID, Namespace: c.Namespace, Pod: c.Pod,
					Container: c.Container,
					Level:     c.Level, MemoryBytes: uint64(max(0, f.MemoryBytes)), UsedBytes: amount(m.memory, k),
					SM: amount(m.sm, k),
				})
			}
		}
		for _, g := range n.GPUs {
			k := useKey{gpu: g.UUID, owner: "unmanaged"}
			if used := amount(m.memory, k); used != nil && *used > 0 {
				out = append(out, present.ClusterUsage{Node: n.Name, GPU: g.UUID, Index: g.Index, UsedBytes: used,
					SM: amount(m.sm, k)})
			}
		}
	}
	return out
}

// clusterWatch is the time between two pictures of a watched cluster.
const clusterWatch = 2 * time.Second

// clusterStatus is kerf status of a cluster.
func clusterStatus(a *command.App, c *cobra.Command, o *statusOptions) error {
	if c.Flags().Changed("wait") || c.Flags().Changed("timeout") {
		return command.Misused(sharing.Invalid("--wait", o.wait,
			"use kubectl wait, or ask one node's agent with --run-dir",
			"is for the agent of one machine"))
	}
	if err := o.Reject("a cluster", "bars"); err != nil {
		return command.Misused(err)
	}
	if o.watch {
		return clusterStatusWatch(c.Context(), a, o)
	}
	return command.Fail(a.WithCluster(c.Context(), func(ctx context.Context, api *access.Client) error {
		text, err := clusterPicture(ctx, a, api, o)
		if err == nil {
			_, err = a.Out.Write(text)
		}
		return err
	}))
}

func clusterPicture(ctx context.Context, a *command.App, api *access.Client, o *statusOptions) ([]byte, error) {
	p, err := command.Reported(ctx, api, time.Now())
	if err != nil {
		return nil, err
	}
	keep, err := o.Pods(ctx, api, a.Overrides.Context.Namespace)
	if err != nil {
		return nil, err
	}
	if a.Overrides.Context.Namespace != "" || o.Selector != "" {
		p = p.Filter(keep)
	}
	return a.RenderCluster(&o.Listing, p, present.ClusterTable)
}

// clusterStatusWatch shows pictures until it is interrupted, in place on a terminal. What cannot be read is said, and
// tried again.
func clusterStatusWatch(parent context.Context, a *command.App, o *statusOptions) error {
	api, err := a.Cluster()
	if err != nil {
		return command.Fail(err)
	}
	defer api.Close()
	return command.Interruptible(parent, func(ctx context.Context) error {
		_, _, terminal := a.Screen()
		draw := terminal && !o.Script()
		if draw {
			_, _ = fmt.Fprint(a.Out, command.EnterScreen)
			defer func() { _, _ = fmt.Fprint(a.Out, command.LeaveScreen) }()
		}
		tick := time.NewTicker(clusterWatch)
		defer tick.Stop()
		for {
			text, err := clusterPicture(ctx, a, api, o)
			switch {
			case ctx.Err() != nil:
			case errors.Is(err, sharing.ErrDenied) || errors.Is(err, sharing.ErrNotFound):
				return command.Fail(err)
			case err != nil:
				_, _ = fmt.Fprintf(a.ErrOut, "%s status: %v\n", a.Name(), err)
			case draw:
				err = a.Draw(text)
			default:
				_, err = a.Out.Write(append(text, '\n'))
			}
			if err != nil && !errors.Is(err, sharing.ErrUnavailable) && ctx.Err() == nil {
				return command.Fail(err)
			}
			select {
			case <-ctx.Done():
				return nil // ctrl-C is how a watch ends
			case <-tick.C:
			}
		}
	})
}
