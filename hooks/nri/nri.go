// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package nri

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/kerf-gpu/kerf/sharing"
)

// The plugin's identity in NRI. Plugins act in the order of their indices; a late one sees what the others did.
const (
	pluginName  = "kerf"
	pluginIndex = "90"
)

const (
	// firstRetry and lastRetry bound the pause before a connection is tried again; it doubles in between.
	firstRetry = 200 * time.Millisecond
	lastRetry  = 2 * time.Second
	// lookUp is the longest wait for the API server's word on a pod. The runtime handles one request at a
	// time, so every other pod of the node waits too.
	lookUp = time.Second
	// glance is what is waited instead while the API server has not been read at all.
	glance = 50 * time.Millisecond
	// jobLimit ends work that goes on after its request was refused.
	jobLimit = 30 * time.Second
)

// The failpoints.
const (
	pointRunPod      = "nri-run-pod"
	pointCreate      = "nri-create"
	pointAfterInject = "nri-after-inject"
)

// Failpoints returns the names of all failpoints of this package.
func Failpoints() []string { return []string{pointRunPod, pointCreate, pointAfterInject} }

// Node is what the plugin needs of the node's runtime. Its methods are called from several goroutines.
type Node interface {
	// ClaimPod holds all that a pod asks for, or nothing. It may be repeated.
	ClaimPod(ctx context.Context, asks []sharing.ContainerAsk) error
	// Inject gives a container its grant. It may be repeated for the same container id.
	Inject(ctx context.Context, ask sharing.ContainerAsk, containerID string) (sharing.Injection, error)
	// Witness takes in all containers that the container runtime has, while none is being made.
	Witness(ctx context.Context, seen []sharing.Seen) error
	// ContainerMade tells that a guarded container was made, and with which note: none when the runtime made it
	// without what Inject gave. It returns at once.
	ContainerMade(containerID, note string)
	// ContainerGone hints that a container, or something of a pod, may have ended. It returns at once.
	ContainerGone(containerID string)
}

// Pods is what the plugin needs of the API server's view.
type Pods interface {
	// Pod returns a pod of this node, and waits for it until ctx ends. False means that it is not known, an
	// error that the API server has not been read at all.
	Pod(ctx context.Context, uid string) (sharing.Pod, bool, error)
}

// Starts is what the plugin needs of who checks containers at their start.
type Starts interface {
	// Starting is nil if the limits of the activated container are as granted. Its program does not run yet.
	Starting(ctx context.Context, containerID string) error
}

// Points are the failpoints that are armed.
type Points interface {
	Eval(name string) error
}

// Options are what a Plugin works with. Socket, Log, Node, Pods and Starts are needed.
type Options struct {
	// Socket is NRI's socket.
	Socket string
	Log    *slog.Logger
	Node   Node
	Pods   Pods
	Starts Starts
	// Exempt are the namespaces whose containers keep the NVIDIA_VISIBLE_DEVICES that they have.
	Exempt []string
	// HostPaths says who may mount what reaches GPUs past Kerf.
	HostPaths HostPaths
	// Missed is told of all containers that were created while the plugin was away and that it would have refused, whenever
	// these change. It returns soon; nil: nobody is told.
	Missed func(ctx context.Context, all []Missed)
	// Condition is told why the plugin does not serve the container runtime, in a sentence, and "" when it
	// does. It is called at each change, by one goroutine at a time, and returns soon.
	Condition func(sentence string)
	// Failpoints may be nil.
	Failpoints Points
	// View is the host's folder in which a container finds its own numbers, empty for none.
	View string
}

// Plugin is the plugin, which Run connects.
type Plugin struct{ opt Options }

// New checks the options. The error wraps sharing.ErrInvalid.
func New(o Options) (*Plugin, error) {
	for _, need := range []struct {
		name string
		is   bool
	}{{"socket", o.Socket != ""}, {"log", o.Log != nil}, {"node", o.Node != nil}, {"pods", o.Pods != nil}, {"starts", o.Starts != nil}} {
		if !need.is {
			return nil, fmt.Errorf("nri plugin without %s: %w", need.name, sharing.ErrInvalid)
		}
	}
	o.Exempt = slices.Clone(o.Exempt)
	return &Plugin{opt: o}, nil
}

// Run serves the container runtime until ctx ends, and then returns nil. It connects again whenever the
// connection ends, and returns when all that it started has ended.
func (p *Plugin) Run(ctx context.Context) error {
	r := &run{Options: p.opt, jobs: newJobs(ctx), witness: make(chan struct{}, 1), exempt: map[string]bool{}, missed: missed{tell: p.opt.Missed}}
	for _, ns := range p.opt.Exempt {
		r.exempt[ns] = true
	}
	defer r.jobs.stop()
	r.say("the agent has not connected to NRI yet")
	for pause := firstRetry; ; pause = min(2*pause, lastRetry) {
		synchronised, err := r.serve(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if synchronised {
			pause = firstRetry
		}
		r.Log.Warn("not connected to NRI; trying again", "socket", r.Socket, "after", pause.String(), "error", err)
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil
		}
	}
}
