// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"fmt"
	"os"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/kerf-gpu/kerf/internal/kube/access"
	"github.com/kerf-gpu/kerf/internal/kube/defrag"
	planner "github.com/kerf-gpu/kerf/sharing/defrag"
	"github.com/kerf-gpu/kerf/sharing/defrag/control"
)

const (
	// defragEvery is the time between two acts of a defragmentation, and planEvery between two plans.
	defragEvery = 5 * time.Second
	planEvery   = time.Minute
	// defragTimeout bounds one step.
	defragTimeout = 2 * time.Minute
)

// DefragArgs are the arguments of the controller that moves pods so that pending pods fit.
type DefragArgs struct {
	// Enabled turns it on.
	Enabled bool `yaml:"enabled"`
	// MaxEvictionsPerPoolPerHour is the most evictions from the nodes of one pool in one hour; 0: two.
	MaxEvictionsPerPoolPerHour int `yaml:"maxEvictionsPerPoolPerHour"`
	// PriorityClasses are those whose pods may be moved, in addition to the pods of namespaces with
	// the label kerf.dev/defrag=true.
	PriorityClasses []string `yaml:"priorityClasses"`
	// MaxMoves is the most moves for pending pods; 0: eight.
	MaxMoves int `yaml:"maxMoves"`
	// MaxCostPerGPU is the highest cost for one GPU, in seconds; 0: no limit.
	MaxCostPerGPU int64 `yaml:"maxCostPerGPU"`
	// Wait is how long a moved pod may take until it runs; 0: ten minutes.
	Wait time.Duration `yaml:"wait"`
}

func (a DefragArgs) check() error {
	if a.MaxEvictionsPerPoolPerHour < 0 || a.MaxMoves < 0 || a.MaxCostPerGPU < 0 || a.Wait < 0 {
		return fmt.Errorf("defragmentation: %+v: write no negative number", a)
	}
	return nil
}

// defragmenter moves pods so that pending pods fit. Its state is in the API server: see package control.
type defragmenter struct {
	core *core
	// leads reports whether this scheduler decides.
	leads  func() bool
	act    func(ctx context.Context, now time.Time) (defrag.Status, error)
	idle   bool
	nextAt time.Time
}

// defragment starts the controller if it is enabled.
func (c *core) defragment(ctx context.Context, config *rest.Config, a DefragArgs) error {
	if !a.Enabled {
		return nil
	}
	host, err := os.Hostname()
	if err != nil {
		return fmt.Errorf("defragmentation: %w", err)
	}
	d, err := newDefragmenter(c, config, a, func() bool { return c.rules.Leads(host) })
	if err != nil {
		return err
	}
	c.running.Go(func() { repeat(ctx, defragEvery, d.step) })
	return nil
}

// newDefragmenter makes one that reads the cluster of a configuration.
func newDefragmenter(c *core, config *rest.Config, a DefragArgs, leads func() bool) (*defragmenter, error) {
	api, err := access.For(config, "")
	if err != nil {
		return nil, fmt.Errorf("defragmentation: %w", err)
	}
	r := &defrag.Runner{API: api, Options: defrag.Options{PriorityClasses: a.PriorityClasses,
		Limits: planner.Limits{Moves: a.MaxMoves, CostPerGPU: a.MaxCostPerGPU}},
		Limits: control.Limits{PerPoolPerHour: a.MaxEvictionsPerPoolPerHour, Wait: a.Wait}}
	return &defragmenter{core: c, leads: leads, act: r.Step}, nil
}

// step is one step, if there is something to do: the first one finds what an earlier leader has begun.
func (d *defragmenter) step(ctx context.Context) {
	now := d.core.now()
	if d.core.ready() != nil || !d.leads() {
		d.idle = false // another one may begin
		return
	}
	if d.idle && (now.Before(d.nextAt) || !d.core.waits()) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, defragTimeout)
	defer cancel()
	s, err := d.act(ctx, now)
	if err != nil {
		klog.FromContext(ctx).Error(err, "failed to defragment, will retry", "phase", s.Record.Phase)
		return
	}
	d.idle, d.nextAt = s.Record.Phase == control.Idle, now.Add(planEvery)
	d.log(ctx, s)
}

// log says what was done.
func (d *defragmenter) log(ctx context.Context, s defrag.Status) {
	log := klog.FromContext(ctx).WithValues("for", s.Record.For.String(), "node", s.Record.Node)
	switch {
	case s.Begun:
		log.Info("began to defragment", "moves", len(s.Record.Moves))
	case s.Act == control.Evict && s.Reason == "":
		log.Info("evicted pod to defragment", "pod", s.Move.Pod.String(), "from", s.Move.Node)
	case s.Act == control.Finished:
		log.Info("finished defragmentation", "reason", s.Reason)
	case s.Act == control.Failed:
		log.Info("stopped defragmentation", "reason", s.Reason)
	default:
		log.V(4).Info("defragmentation waits", "act", s.Act, "reason", s.Reason)
	}
}

// waits reports whether a pod waits for GPUs.
func (c *core) waits() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.waiting.pods) > 0
}
