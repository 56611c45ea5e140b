// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package plugin is the adapter to Nomad's interface of device plugins. It watches the agent, and package shares
// decides.
package plugin

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/nomad/plugins/device"
	"github.com/hashicorp/nomad/plugins/shared/structs"

	nodeapi "github.com/kerf-gpu/kerf/api/node/v1alpha1"
	"github.com/kerf-gpu/kerf/internal/nodeclient"
	"github.com/kerf-gpu/kerf/nomad/shares"
	"github.com/kerf-gpu/kerf/sharing"
)

// vendor and the type of devices make up the name that a job requests: kerf/gpu.
const vendor = "kerf"

// Plugin is the device plugin. New creates it. Nomad calls SetConfig before the other methods. It is safe for
// concurrent use.
type Plugin struct {
	log     hclog.Logger
	version string

	mu       sync.Mutex
	dir      string
	interval time.Duration
	node     shares.Node
}

var _ device.DevicePlugin = (*Plugin)(nil)

// New returns a plugin that reports this version of Kerf.
func New(version string, log hclog.Logger) *Plugin {
	return &Plugin{version: version, log: log.Named(Name)}
}

// Fingerprint sends the devices at once, and after each change until ctx ends. Without an agent it sends the known
// devices as unhealthy.
func (p *Plugin) Fingerprint(ctx context.Context) (<-chan *device.FingerprintResponse, error) {
	p.mu.Lock()
	dir, every := p.dir, p.interval
	p.mu.Unlock()
	if dir == "" {
		return nil, errors.New("watch agent: Nomad set no config")
	}
	out := make(chan *device.FingerprintResponse)
	go p.watch(ctx, dir, every, out)
	return out, nil
}

// watch follows the agent over its restarts until ctx ends.
func (p *Plugin) watch(ctx context.Context, dir string, every time.Duration, out chan<- *device.FingerprintResponse) {
	defer close(out)
	first, reason := true, ""
	send := func(next shares.Node) error {
		same := p.replace(next)
		if same && !first {
			return nil
		}
		first = false
		select {
		case out <- device.NewFingerprint(groups(next)...):
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	err := nodeclient.WatchReconnecting(ctx, dir, every, func(s *nodeapi.GetNodeResponse) error {
		reason = ""
		return send(shares.FromStatus(s, p.known()))
	}, func(err error) error {
		if now := sharing.Plain(err); now != reason {
			reason = now
			p.log.Warn("failed to watch agent", "error", now)
		}
		return send(shares.Unreachable(p.known(), reason))
	})
	p.log.Debug("stopped to watch agent", "reason", err)
}

// known returns the node as it was last seen.
func (p *Plugin) known() shares.Node {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.node
}

// replace stores the node, and reports whether the devices are those of before.
func (p *Plugin) replace(next shares.Node) (same bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	same = p.node.SameDevices(next)
	p.node = next
	return same
}

// Reserve returns the variables for the share that the devices make up. kerf run makes the grant, which ends with its
// process: there is nothing to release.
func (p *Plugin) Reserve(ids []string) (*device.ContainerReservation, error) {
	r, err := p.known().Reserve(ids)
	if err != nil {
		return nil, errors.New(sharing.Plain(err))
	}
	return &device.ContainerReservation{Envs: r.Env()}, nil
}

// groups are the devices in Nomad's form. Nomad takes all devices of a task from one group, and identifies a group by
// vendor, type and name. So each GPU is a group, named by its UUID.
//
// Nomad does not try a node again for a pending job until an attribute of the node changes. The attribute health makes
// it try a GPU that has recovered.
func groups(n shares.Node) []*device.DeviceGroup {
	var out []*device.DeviceGroup
	for _, g := range n.GPUs {
		group := &device.DeviceGroup{Vendor: vendor, Type: device.DeviceTypeGPU, Name: g.UUID,
			Attributes: map[string]*structs.Attribute{
				"uuid":           structs.NewStringAttribute(g.UUID),
				"model":          structs.NewStringAttribute(g.Model),
				"memory":         structs.NewIntAttribute(int64(g.GiB), "GiB"),
				"driver_version": structs.NewStringAttribute(n.DriverVersion),
				"health":         structs.NewStringAttribute(cmp.Or(g.Problem, sharing.HealthOK.String())),
			}}
		for _, id := range g.IDs() {
			group.Devices = append(group.Devices, &device.Device{ID: id, Healthy: g.Problem == "",
				HealthDesc: g.Problem, HwLocality: &device.DeviceLocality{PciBusID: g.PCI}})
		}
		out = append(out, group)
	}
	return out
}
