// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"

	"github.com/kerf-gpu/kerf/dra/resourceclaim"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/dra"
)

const (
	// prepareTime bounds one call of kubelet, which waits for 45 s.
	prepareTime = 30 * time.Second
	// healthEvery is how often health is reported again. kubelet takes a device as unknown after 30 s.
	healthEvery = 10 * time.Second
	// settleTime is how long the plugin lets changes follow each other before it looks again.
	settleTime = 100 * time.Millisecond
)

// Preparer reserves and ends the grants of claims.
type Preparer interface {
	// Prepare gives all claims of a pod their grants, or none. It may be repeated.
	Prepare(ctx context.Context, claims []dra.Claim) error
	// Unprepare ends the grants of claims, by UID. It may be repeated.
	Unprepare(uids []string) error
	// Prepared names the claims of all grants. Those of pods that are not known yet are missing, and in the error.
	Prepared(ctx context.Context) ([]dra.ClaimRef, error)
}

// Options are what a Plugin is made of.
type Options struct {
	Log    *slog.Logger
	Client kubernetes.Interface
	// Node is the node's name, and the name of its pool.
	Node string
	// Registry and Plugins are kubelet's directories for registration sockets and for the files of plugins.
	Registry, Plugins string
	Preparer          Preparer
	// Devices are those that the node has now; false while they are not known. Changed is closed at the next change of
	// devices or grants.
	Devices func() ([]dra.Device, bool)
	Changed func() <-chan struct{}
	// Grants are all grants by claims now, and the GPUs of the node.
	Grants func() ([]dra.Granted, []sharing.GPUID)
	// Condition receives why the plugin does not serve, and nil once it does. It may be called with a lock held.
	Condition func(error)
	// Answered is called with the time that each call of Prepare took. It may be nil.
	Answered func(took time.Duration)
	Now      func() time.Time
}

// Plugin serves kubelet's DRA plugin API, and publishes ResourceSlices.
type Plugin struct {
	opt      Options
	statuses statuses
	failures failures
	// prepared gets a value when the status of a claim may have changed.
	prepared chan struct{}
	// published is true once the library has devices of the node to publish.
	published atomic.Bool
}

// New returns a Plugin.
func New(opt Options) *Plugin {
	if opt.Condition == nil {
		opt.Condition = func(error) {}
	}
	if opt.Answered == nil {
		opt.Answered = func(time.Duration) {}
	}
	return &Plugin{opt: opt, prepared: make(chan struct{}, 1),
		failures: failures{report: opt.Condition, noted: make(chan struct{}, 1)}}
}

// Published reports whether any Run of this process has given the library devices to publish. The API server may not
// have them yet; HandleError receives why.
func (p *Plugin) Published() bool { return p.published.Load() }

// Run serves until ctx ends. The ResourceSlices stay: kubelet removes them if the plugin does not come back.
func (p *Plugin) Run(ctx context.Context) error {
	dir := filepath.Join(p.opt.Plugins, dra.Driver)
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return fmt.Errorf("start DRA plugin: %w", err)
	}
	p.failures.begin()
	// Preparer needs the calls one after the other: else a claim could be unprepared while it is prepared.
	helper, err := kubeletplugin.Start(ctx, p, kubeletplugin.DriverName(dra.Driver), kubeletplugin.Serialize(true),
		kubeletplugin.KubeClient(p.opt.Client), kubeletplugin.NodeName(p.opt.Node),
		kubeletplugin.RegistrarDirectoryPath(p.opt.Registry),
		kubeletplugin.PluginDataDirectoryPath(dir))
	if err != nil {
		return fmt.Errorf("start DRA plugin: %w", err)
	}
	defer helper.Stop()
	p.failures.serving()
	ctx, cancel := context.WithCancel(ctx)
	var statuses sync.WaitGroup
	defer statuses.Wait()
	defer cancel()
	statuses.Go(func() { p.followStatuses(ctx) })
	return p.followDevices(ctx, helper)
}

// followDevices publishes the devices of the node until ctx ends, or the library cannot go on.
func (p *Plugin) followDevices(ctx context.Context, helper *kubeletplugin.Helper) error {
	var pace dra.PublishLimiter
	for {
		changed := p.opt.Changed()
		wait, err := p.publish(ctx, helper, &pace)
		if err != nil && ctx.Err() == nil { // else the agent is stopping
			return err
		}
		if !p.await(ctx, changed, p.failures.noted, wait) {
			return nil
		}
		if err := p.failures.fatal(); err != nil {
			return err
		}
	}
}

// publish publishes the devices of the node if they have changed, or if the last publication failed. It returns how
// long to wait until it is called again without a change; 0 means until the next change.
func (p *Plugin) publish(ctx context.Context, helper *kubeletplugin.Helper, pace *dra.PublishLimiter) (time.Duration,
	error) {
	devices, known := p.opt.Devices()
	if !known {
		return 0, nil
	}
	now := p.opt.Now()
	again, later := p.failures.next(now)
	if due, wait := pace.Next(devices, now); !due && !again {
		return cmp.Or(wait, later), nil
	}
	if err := helper.PublishResources(ctx, Resources(p.opt.Node, devices)); err != nil {
		return 0, fmt.Errorf("publish ResourceSlices: %w", err)
	}
	pace.Published(devices, now)
	p.failures.published(now)
	p.published.Store(true)
	p.opt.Log.Info("published ResourceSlices", "devices", len(devices))
	_, later = p.failures.next(now)
	return later, nil
}

// await waits for a change, for a value of woken, or for a time that is not 0. It returns false if ctx ended.
func (p *Plugin) await(ctx context.Context, changed, woken <-chan struct{}, wait time.Duration) bool {
	var due <-chan time.Time
	if wait > 0 {
		t := time.NewTimer(wait)
		defer t.Stop()
		due = t.C
		if wait <= dra.MinInterval {
			changed = nil // The next publication has to wait.
		}
	}
	select {
	case <-ctx.Done():
		return false
	case <-changed:
	case <-due:
	case <-woken:
	}
	settle := time.NewTimer(settleTime)
	defer settle.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-settle.C:
		return true
	}
}

// PrepareResourceClaims implements kubeletplugin.DRAPlugin. All claims are those of one pod.
func (p *Plugin) PrepareResourceClaims(ctx context.Context, claims []*resourceapi.ResourceClaim) (
	map[types.UID]kubeletplugin.PrepareResult, error) {
	ctx, cancel := context.WithTimeout(ctx, prepareTime)
	defer cancel()
	var all []dra.Claim
	for _, c := range claims {
		all = append(all, resourceclaim.Of(c))
	}
	began := p.opt.Now()
	err := p.opt.Preparer.Prepare(ctx, all)
	p.opt.Answered(p.opt.Now().Sub(began))
	p.statuses.prepared(all, err)
	select {
	case p.prepared <- struct{}{}:
	default:
	}
	out := map[types.UID]kubeletplugin.PrepareResult{}
	_, gpus := p.opt.Grants()
	for _, c := range all {
		out[types.UID(c.UID)] = kubeletplugin.PrepareResult{Err: err}
		if err == nil {
			out[types.UID(c.UID)] = kubeletplugin.PrepareResult{Devices: devicesOf(c, gpus)}
		}
	}
	return out, nil
}

// devicesOf are the CDI devices of a claim: the hook device and the request device of each request, or with admin
// access the GPU itself.
func devicesOf(c dra.Claim, gpus []sharing.GPUID) []kubeletplugin.Device {
	var out []kubeletplugin.Device
	for _, r := range c.Results {
		d := kubeletplugin.Device{Requests: []string{r.Request}, PoolName: r.Pool, DeviceName: r.Device,
			CDIDeviceIDs: []string{sharing.HookDevice, r.ResourceRequest(c.UID).Device()}}
		if r.Admin {
			d.CDIDeviceIDs = nil
			for _, gpu := range r.AdminGPUs(gpus) {
				d.CDIDeviceIDs = append(d.CDIDeviceIDs, sharing.CDIGPU+"="+string(gpu))
			}
		}
		if r.ShareID != "" {
			d.ShareID = new(types.UID(r.ShareID))
		}
		out = append(out, d)
	}
	return out
}

// UnprepareResourceClaims implements kubeletplugin.DRAPlugin.
func (p *Plugin) UnprepareResourceClaims(_ context.Context, claims []kubeletplugin.NamespacedObject) (
	map[types.UID]error, error) {
	var uids []string
	for _, c := range claims {
		uids = append(uids, string(c.UID))
	}
	err := p.opt.Preparer.Unprepare(uids)
	if err == nil {
		p.statuses.ended(uids)
	}
	out := map[types.UID]error{}
	for _, c := range claims {
		out[c.UID] = err
	}
	return out, nil
}

// HandleError implements kubeletplugin.DRAPlugin. It sets the condition of the node. Run ends with an error from which
// the library does not recover.
func (p *Plugin) HandleError(_ context.Context, err error, msg string) {
	p.opt.Log.Error("DRA plugin failed", "operation", msg, "error", err,
		"recoverable", errors.Is(err, kubeletplugin.ErrRecoverable))
	p.failures.note(fmt.Errorf("%s: %w", msg, err), p.opt.Now())
}

// WatchHealthStatus implements kubeletplugin.DRAPlugin.
func (p *Plugin) WatchHealthStatus(ctx context.Context, reports chan<- kubeletplugin.DeviceHealthReport) error {
	t := time.NewTicker(healthEvery)
	defer t.Stop()
	for {
		changed := p.opt.Changed()
		if devices, known := p.opt.Devices(); known {
			select {
			case reports <- healthOf(p.opt.Node, devices, p.opt.Now()):
			case <-ctx.Done():
				return nil
			}
		}
		select {
		case <-changed:
		case <-t.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// healthOf is the health of each device. A cordoned GPU is healthy.
func healthOf(pool string, devices []dra.Device, now time.Time) kubeletplugin.DeviceHealthReport {
	var out kubeletplugin.DeviceHealthReport
	for _, d := range devices {
		h := kubeletplugin.DeviceHealth{PoolName: pool, DeviceName: d.Name, LastUpdated: now,
			Health: kubeletplugin.HealthStatusHealthy}
		for _, t := range d.Taints {
			if t.Key != dra.TaintUnhealthy {
				continue
			}
			h.Health, h.Message = kubeletplugin.HealthStatusUnhealthy, "GPU is "+t.Value
			if t.Value == sharing.HealthUnknown.String() {
				h.Health = kubeletplugin.HealthStatusUnknown
			}
		}
		out.Devices = append(out.Devices, h)
	}
	return out
}
