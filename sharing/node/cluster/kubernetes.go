// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/kerf-gpu/kerf/api/gpunode"
	"github.com/kerf-gpu/kerf/deviceplugin"
	"github.com/kerf-gpu/kerf/hooks/nri"
	"github.com/kerf-gpu/kerf/internal/cdi"
	"github.com/kerf-gpu/kerf/internal/containerd"
	"github.com/kerf-gpu/kerf/internal/kube"
	"github.com/kerf-gpu/kerf/internal/kubelet"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/config"
	"github.com/kerf-gpu/kerf/sharing/ledger"
	"github.com/kerf-gpu/kerf/sharing/node/conditions"
	"github.com/kerf-gpu/kerf/sharing/node/health"
	"github.com/kerf-gpu/kerf/sharing/node/place"
	"github.com/kerf-gpu/kerf/sharing/node/store"
)

// Kubernetes has the agent's parts on a node of a cluster besides its node API. These are the device plugin, NRI
// plugin, the list of the node's pods, and the second source for what runs.
type Kubernetes struct {
	*Containers
	plugin      *deviceplugin.Plugin
	inject      *nri.Plugin
	api         *kube.Client
	runtimeDoor *containerd.Client
	// restarted asks for a new judgement, because the container runtime has just been connected to.
	restarted chan struct{}
	kubelet   *kubelet.Client
	pulse     *pulse
	cordons   *cordons
	resizer   *resizer
	claims    *claimFront
}

// NewKubernetes creates the clients. It serves nothing and makes no call yet.
func NewKubernetes(c *Containers) (*Kubernetes, error) {
	a, k := c.Deps, &Kubernetes{Containers: c, pulse: newPulse(), restarted: make(chan struct{}, 1)}
	var err error
	if k.api, err = kube.Open(kube.Options{Kubeconfig: a.Options.Cluster.Kubeconfig, Node: a.Options.Cluster.Node,
		Log: a.Log}); err != nil {
		return nil, fmt.Errorf("API server: %w", err)
	}
	k.cordons = &cordons{log: a.Log, dir: a.State, set: a.Runtime.SetCordons,
		rest: k.takeSpec, warn: func(text string) { a.Runtime.Conditions.Set(conditions.Cordons, text) }}
	k.resizer = k.newResizer()
	if k.claims, err = newClaimFront(k); err != nil {
		return nil, err
	}
	k.cordons.restore()
	if k.runtimeDoor, err = containerd.Open(a.Options.Cluster.RuntimeSocket); err != nil {
		return nil, fmt.Errorf("container runtime: %w", err)
	}
	if k.kubelet, err = kubelet.Open(kubelet.SocketPath(a.Options.Cluster.Kubelet)); err != nil {
		return nil, errors.Join(fmt.Errorf("kubelet: %w", err), k.runtimeDoor.Close())
	}
	k.plugin = deviceplugin.New(deviceplugin.Options{
		Dir: filepath.Join(a.Options.Cluster.Kubelet, "device-plugins"), Log: a.Log, ReadinessGate: k.gate,
		MIGReadinessGate: k.noCreation,
		Answered:         a.Allocated,
		Share:            a.Kubelet,
		PodResources:     &assignedIDs{kubelet: k.kubelet, pods: k.api.Asking, begun: a.Runtime.KnownPods},
	})
	// The monitor puts its socket there, if one runs; the folder is there first, because containers keep what they were
	// given.
	view := filepath.Join(a.Options.Dirs.Dir, "pods")
	if err := os.MkdirAll(view, 0o755); err != nil {
		return nil, errors.Join(fmt.Errorf("make folder of pods' own numbers: %w", err), k.close())
	}
	missed := &missedNews{warn: func(text string) { a.Runtime.Conditions.Set(conditions.Missed, text) },
		event: k.api.Event}
	k.inject, err = nri.New(nri.Options{
		Socket: a.Options.Cluster.NRISocket, Log: a.Log, Node: a.Runtime, Pods: k.api, Starts: k.Starts,
		Edits: cdi.EditsIn(a.Options.Containers.CDI), View: view,
		Exempt: a.Options.Cluster.Exempt, Failpoints: a.Options.Failpoints,
		HostPaths: nri.HostPaths{Guarded: a.Options.GuardedPaths(), Allowed: a.Options.Cluster.HostPaths,
			Namespaces: k.api},
		Baseline:  nri.Baseline{Namespaces: k.api, Permitted: permitsPrivileged(a.Runtime)},
		Missed:    missed.tell,
		Condition: func(why string) { a.Runtime.Conditions.Set(conditions.NRI, why) },
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("NRI plugin: %w", err), k.close())
	}
	c.tell = k.tellKubelet
	a.Runtime.AwaitRuntimeSync()
	users := a.Runtime.Notify
	users.ToPod = func(ctx context.Context, ref sharing.ContainerRef, reason, message string) {
		k.api.Event(ctx, ref, reason, message, reason != health.RecoveredReason)
	}
	users.ToNode = func(ctx context.Context, reason, message string) {
		k.api.Event(ctx, sharing.ContainerRef{}, reason, message, true)
	}
	users.LabelsOf, users.Evictor = k.api.Labels, k.api.Evict
	a.Runtime.Instances.NotifyTo(k.tellCut)
	// Until each has spoken for itself.
	a.Runtime.Conditions.Set(conditions.NRI, "the NRI plugin is not connected to the container runtime yet")
	a.Runtime.Conditions.Set(conditions.ContainerRuntime, "the container runtime's configuration has not been read yet")
	a.Runtime.Conditions.Set(conditions.CDI, "the CDI specs have not been written yet")
	return k, nil
}

// API is the API server's client.
func (k *Kubernetes) API() *kube.Client { return k.api }

// Seen lists the containers of pods, as the container runtime has them.
func (k *Kubernetes) Seen(ctx context.Context) ([]sharing.Seen, error) {
	return k.runtimeDoor.Containers(ctx, containerd.NamespaceKubernetes)
}

// Run serves kubelet and the container runtime until ctx ends.
func (k *Kubernetes) Run(ctx context.Context) error {
	k.api.OnPodRemoved(k.Runtime.PodRemoved)
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return k.pulse.run(ctx) })
	g.Go(func() error { return k.api.Run(ctx) })
	g.Go(func() error { k.api.Resync(ctx, k.Runtime.KnownPods, k.Runtime.PodRemoved); return nil })
	g.Go(func() error { return k.inject.Run(ctx) })
	g.Go(func() error { return k.plugin.Run(ctx) })
	g.Go(func() error { k.claims.serve(ctx); return nil })
	g.Go(func() error { k.claims.creator.Run(ctx); return nil })
	g.Go(func() error { return k.judgeRuntime(ctx) })
	g.Go(func() error { return k.followRuntime(ctx) })
	g.Go(func() error { return k.crossCheckLoop(ctx) })
	g.Go(func() error { return k.publisher().run(ctx) })
	g.Go(func() error { k.followLeaving(ctx); return nil })
	g.Go(func() error { k.markNode(ctx); return nil })
	g.Go(func() error { k.api.WatchSpec(ctx, k.cordons.tell); return nil })
	g.Go(func() error { k.resizer.run(ctx); return nil })
	if k.Options.Cluster.Label {
		g.Go(func() error { k.labelNode(ctx); return nil })
	}
	g.Go(func() error { k.followOthers(ctx); return nil })
	err := g.Wait()
	return errors.Join(err, k.close())
}

// takeSpec takes what the node's GPUNode says besides cordons.
func (k *Kubernetes) takeSpec(s gpunode.Spec) {
	k.resizer.want(s.GrantMemory)
	k.claims.creator.Want(assignedTo(k.Options.Cluster.Node, s))
	k.Runtime.Conditions.Set(conditions.DriverDrain, drainSentence(s.DriverDrain))
	k.Runtime.Announce() // wakes the resizer
}

func (k *Kubernetes) newResizer() *resizer {
	return &resizer{log: k.Log, changed: k.Runtime.Changed, resize: k.Runtime.Limit, event: k.api.Event,
		pause:  resizePause,
		config: func() config.Config { return k.Runtime.Settings().Config() },
		grants: func() (grants []ledger.Grant) {
			k.Runtime.Store.Read(func(l store.Reader) { grants = l.Grants() })
			return grants
		}}
}

func (k *Kubernetes) publisher() *publisher {
	return &publisher{
		log: k.Log, changed: k.Runtime.Changed, ledger: k.Runtime.LedgerState, renewed: k.api.Renewed(),
		generation: k.cordons.applied.Load,
		write:      k.api.PublishStatus, beat: k.api.Heartbeat,
		pause: publishPause, retry: publishRetry, every: heartbeatEvery,
	}
}

func (k *Kubernetes) close() error { return errors.Join(k.runtimeDoor.Close(), k.kubelet.Close()) }

// tellKubelet tells kubelet what the node offers, and who holds what of it.
func (k *Kubernetes) tellKubelet(units []deviceplugin.Unit) {
	settings := k.Runtime.Settings()
	pool := settings.Pool()
	units, some := ofDevicePlugin(units,
		func(gpu sharing.GPUID) bool { return settings.Has(gpu).FrontEnd == sharing.FrontEndDRA })
	err := k.plugin.SetInventory(deviceplugin.Inventory{
		Units:   units,
		Memory:  some && (pool.AllowsMode(config.Mode.Shared) || pool.SharesMIG() || hardwareMemory(pool)),
		Percent: some && pool.AllowsMode(config.Mode.Shared), Whole: some && pool.AllowsMode(config.Mode.Whole),
		MIG: some && pool.AllowsMode(config.Mode.MIG),
	})
	text := ""
	if err != nil {
		text = fmt.Sprintf("cannot advertise GPUs to kubelet: %v", err)
	}
	k.Runtime.Conditions.Set(conditions.Inventory, text)
	k.plugin.SetOwners(place.ContainersOn(k.Runtime.Store.Grants()))
}

// Unregistered says which resources kubelet does not offer yet: it refuses for good the pods that request them.
func (k *Kubernetes) Unregistered() []string {
	var why []string
	advertised := false
	for _, s := range k.plugin.Status() {
		advertised = advertised || s.Advertised
		if s.Advertised && !s.Registered {
			why = append(why, "kubelet has not taken "+s.Resource+" yet")
		}
	}
	switch needed := k.claims.needed(); {
	case needed && !k.claims.plugin.Published():
		why = append(why, "the ResourceSlices have not been published yet")
	case !needed && !advertised:
		why = append(why, "no GPU is advertised to kubelet yet")
	}
	return why
}

// Stuck says why kubelet should restart this pod's container. The driver's device files and libraries were mounted at
// its creation: they are missing or old if the driver was loaded again or updated. A drained driver is away on purpose.
func (k *Kubernetes) Stuck() string {
	if !k.Runtime.DriverLost() || k.Runtime.Conditions.Has(conditions.DriverDrain) {
		return ""
	}
	return "the NVIDIA driver that was there does not answer any more; if it is loaded again, a container sees it " +
		"only after a restart"
}

// noCreation waits until no MIG instance is being created for a pod. The error names the pending ones.
func (k *Kubernetes) noCreation(ctx context.Context) error {
	for {
		changed := k.Runtime.Changed()
		why := k.Runtime.PendingInstances()
		if len(why) == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s: %w", strings.Join(why, "; "), sharing.ErrUnavailable)
		case <-changed:
		}
	}
}

// gate waits until pods' containers may start: what kubelet waits for before each of them. The error says
// what is not ready. An agent that has just been stopped for a while first finds out whether NRI still has it.
func (k *Kubernetes) gate(ctx context.Context) error {
	for {
		if err := k.pulse.steady(ctx); err != nil {
			return fmt.Errorf("kerf-agent was stopped for a while, and finds out what it missed: %w",
				sharing.ErrUnavailable)
		}
		changed := k.Runtime.Changed()
		why := k.Runtime.PodsNotReady()
		if len(why) == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("kerf-agent is not ready: %s: %w", strings.Join(why, "; "), sharing.ErrUnavailable)
		case <-changed:
		}
	}
}
