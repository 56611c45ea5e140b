// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package nri gives a pod's containers their shares of GPUs while the container runtime creates them. It is a plugin
// of NRI, the interface through which containerd and CRI-O report each pod and container.
//
// When a pod's sandbox is created, the plugin has the node reserve the pod's grants. When a container is created, it
// reads the amounts from the CDI names that kubelet passed. It asks the node which GPUs answer them, and adds these
// GPUs, the grant and its environment to the container. Every other container gets NVIDIA_VISIBLE_DEVICES=void, so that
// no image sees a GPU because it says so. When it connects, it reports the existing containers to the node.
//
// Promises:
//   - Amounts come from CDI names alone. What a tenant can write (environment, annotations, labels) counts at most as
//     advice on which GPU. A name of Kerf's overrides it.
//   - Every request is answered within three quarters of the time that the runtime gives. What takes longer is
//     refused, so that kubelet tries again, and goes on meanwhile; the next try finds it done.
//   - A connection that ends is made again, until Run's context ends. Run joins all that it started.
//
// Before the program of a container with a grant runs, StartContainer has the driver's limits read back. Other hooks of
// the container may have changed them.
//
// It does not promise that a container is held to its cap: the runtime goes on without a plugin that is slow
// or gone. The guard, an OCI hook that kubelet's CDI names bring, refuses the start of a container whose
// creation this plugin did not see. Nor does it decide who gets which GPU: that is the node's business.
//
// The adjustments pass through the code of two other projects, which determines their form:
//   - The container runtime applies the removal and the addition of one annotation in map order. So Kerf adds the
//     grant and never removes it first.
//   - If an environment variable occurs twice in a container, from the image and from the pod, the runtime replaces
//     the first, and the second wins. So Kerf rejects a container without a grant whose second NVIDIA_VISIBLE_DEVICES
//     would show GPUs. One with a grant has the CDI device of its GPU, which sets the variable after all others.
package nri

import (
	"context"
	"fmt"
	"log/slog"
	"path"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/containerd/nri/pkg/api"
	specs "tags.cncf.io/container-device-interface/specs-go"

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
	// ReservePod holds all that a pod requests, or nothing. It may be repeated.
	ReservePod(ctx context.Context, asks []sharing.ContainerRequest) error
	// Inject gives a container its grant. It may be repeated for the same container id.
	Inject(ctx context.Context, ask sharing.ContainerRequest, containerID string) (sharing.Injection, error)
	// SyncRuntime receives all containers of the container runtime, at a moment when none is being created.
	SyncRuntime(ctx context.Context, seen []sharing.Seen) error
	// ContainerMade tells that a guarded container was made, and with which note: none when the runtime made it
	// without what Inject gave. It returns at once.
	ContainerMade(containerID, note string)
	// ContainerRemoved hints that a container, or something of a pod, may have ended. It returns at once.
	ContainerRemoved(containerID string)
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

// Points are the failpoints that are activated.
type Points interface {
	Eval(name string) error
}

// Edits returns what the CDI devices of a grant change in its container, with complete device nodes. The error wraps
// sharing.ErrNotFound while there is no CDI spec of the GPU.
type Edits func(in sharing.Injection) (specs.ContainerEdits, error)

// Options are what a Plugin works with. Socket, Log, Node, Pods, Starts and Edits are needed.
type Options struct {
	// Socket is NRI's socket.
	Socket string
	Log    *slog.Logger
	Node   Node
	Pods   Pods
	Starts Starts
	// Edits serves container runtimes other than containerd, which ignore the CDI devices of plugins.
	Edits Edits
	// Exempt are the namespaces whose containers keep the NVIDIA_VISIBLE_DEVICES that they have.
	Exempt []string
	// HostPaths says who may mount what reaches GPUs past Kerf.
	HostPaths HostPaths
	// Baseline says which pods with ResourceClaims may have rights beyond it.
	Baseline Baseline
	// Missed receives all containers that were created while the plugin was away and that it would have rejected, at
	// each change. It returns soon. It may be nil.
	Missed func(ctx context.Context, all []Missed)
	// Condition receives a sentence on why the plugin does not serve the container runtime, and "" if it does. It is
	// called at each change, from one goroutine at a time, and returns soon.
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
	}{{"socket", o.Socket != ""}, {"log", o.Log != nil}, {"node", o.Node != nil}, {"pods", o.Pods != nil},
		{"starts", o.Starts != nil}, {"edits", o.Edits != nil}} {
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
	r := &run{Options: p.opt, jobs: newJobs(ctx), syncing: make(chan struct{}, 1), exempt: map[string]bool{},
		missed: missed{tell: p.opt.Missed}}
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
		r.Log.Warn("failed to connect to NRI, will retry", "socket", r.Socket, "after", pause.String(), "error", err)
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil
		}
	}
}

// stubLog passes the stub's log on. What it tells as news is detail here: the plugin logs its own.
type stubLog struct{ log *slog.Logger }

// Debugf logs at debug level.
func (l stubLog) Debugf(ctx context.Context, format string, args ...any) {
	l.write(ctx, slog.LevelDebug, format, args)
}

// Infof logs at debug level.
func (l stubLog) Infof(ctx context.Context, format string, args ...any) {
	l.write(ctx, slog.LevelDebug, format, args)
}

// Warnf logs at warning level.
func (l stubLog) Warnf(ctx context.Context, format string, args ...any) {
	l.write(ctx, slog.LevelWarn, format, args)
}

// Errorf logs at warning level: the plugin tells what became of it.
func (l stubLog) Errorf(ctx context.Context, format string, args ...any) {
	l.write(ctx, slog.LevelWarn, format, args)
}

func (l stubLog) write(ctx context.Context, level slog.Level, format string, args []any) {
	if l.log.Enabled(ctx, level) {
		l.log.Log(ctx, level, "the NRI stub says", "text", fmt.Sprintf(format, args...))
	}
}

// runtimeContainerd is how containerd names itself.
const runtimeContainerd = "containerd"

// blind is a warning, with the remedy, if a runtime with that version of NRI does not report the hook devices of
// containers. It is empty if the runtime does, and for a version that cannot be read: such a container then does not
// start anyway. The Container message has CDI devices since NRI 0.10. Before that, containerd and CRI-O 1.34 report
// their hooks. Other runtimes are untested.
func blind(runtime, nri string) string {
	var major, minor int
	n, err := fmt.Sscanf(nri, "v%d.%d", &major, &minor)
	if runtime == runtimeContainerd || n != 2 || err != nil || major > 0 || minor >= 10 {
		return ""
	}
	return fmt.Sprintf("the NRI %s of %s does not tell plugins of CDI devices: update to CRI-O 1.34 or newer", nri,
		runtime)
}

// said is a sentence that several goroutines use.
type said struct{ value atomic.Value }

// Store keeps the sentence.
func (s *said) Store(sentence string) { s.value.Store(sentence) }

// Load is the sentence, empty before the first.
func (s *said) Load() string {
	sentence, _ := s.value.Load().(string)
	return sentence
}

// viewTarget is where a container finds the folder of the socket that tells it its own numbers.
const viewTarget = "/run/kerf-pod"

// addView mounts the host's folder view, if there is one. Nothing depends on it: if a container mounts something there,
// above it or below it, it gets no view.
func addView(a *api.ContainerAdjustment, c *api.Container, view string) {
	if view == "" {
		return
	}
	for _, own := range c.GetMounts() {
		at := path.Clean(own.GetDestination())
		if at == viewTarget || strings.HasPrefix(at, viewTarget+"/") || at != "/" &&
			strings.HasPrefix(viewTarget, at+"/") {
			return
		}
	}
	a.AddMount(&api.Mount{Source: view, Destination: viewTarget, Type: "bind",
		Options: []string{"bind", "nosuid", "nodev", "noexec", "ro"}})
}
