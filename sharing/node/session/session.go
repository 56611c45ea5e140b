// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package session uses one NVIDIA driver for as long as it answers: its library, its GPUs, their MIG instances and
// backends.
//
// It promises that at most one agent uses a GPU, and that the node runtime hears when the driver is gone.
package session

import (
	"context"
	"log/slog"
	"sync/atomic"

	"github.com/kerf-gpu/kerf/internal/cgroup"
	"github.com/kerf-gpu/kerf/mig/manager"
	"github.com/kerf-gpu/kerf/monitor/health"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/audit"
	"github.com/kerf-gpu/kerf/sharing/backend"
	"github.com/kerf-gpu/kerf/sharing/backend/libkerf"
	"github.com/kerf-gpu/kerf/sharing/backend/mps"
	"github.com/kerf-gpu/kerf/sharing/node"
	"github.com/kerf-gpu/kerf/sharing/node/contextprobe"
	"github.com/kerf-gpu/kerf/sharing/node/metrics"
	"github.com/kerf-gpu/kerf/sharing/node/options"
	"github.com/kerf-gpu/kerf/sharing/node/settings"
)

// Deps are what a session needs of the agent.
type Deps struct {
	Log     *slog.Logger
	Options *options.Options
	Events  *metrics.Events
	// State is the folder of what outlives a reboot, and Boot the kernel's boot ID.
	State, Boot string
	Cgroups     cgroup.Hierarchy
	// Parent is the folder of the grants' cgroups, relative to the hierarchy's mount.
	Parent   string
	Contexts *contextprobe.Sizes
	// Audit writes an entry; nil for no audit log.
	Audit func(audit.Entry)
	// NewID makes a new random name.
	NewID func() string
}

// Served is what a session serves. It exists later than Deps, because the node runtime asks for MPS and libkerf first.
type Served struct {
	Runtime *node.Runtime
	Source  *settings.Source
	// Seen lists the containers of pods, as the container runtime has them; nil without Kubernetes.
	Seen func(ctx context.Context) ([]sharing.Seen, error)
}

// Session owns the driver that is in use.
type Session struct {
	Deps
	Served
	// preload is the library that is preloaded, as far as it is the same for every driver.
	preload libkerf.Probe
	mps     *mpsDaemons
	// migManager manages the GPUs' MIG instances; nil without a driver. cutBefore is the manager before it; only Run
	// uses it.
	migManager atomic.Pointer[manager.Manager]
	cutBefore  *manager.Manager
	// news says in the node's events what stands in the way of MIG.
	news migNews
	// machines are the GPUs' health over watches of one driver; Run alone uses it.
	machines map[sharing.GPUID]*health.Machine
	// faulty are the MIG instances with a fault; only Run and its health check use it.
	faulty faultyInstances
}

// New finds libkerf and MPS on this node. The error is a sharing.FieldError for a --library that cannot be used.
func New(d Deps) (*Session, error) {
	s := &Session{Deps: d}
	if err := s.findLibrary(); err != nil {
		return nil, err
	}
	s.mps = s.newMPS(d.Boot)
	return s, nil
}

// MPS is how the node runtime reaches MPS; nil where there is none.
func (s *Session) MPS() backend.Backend {
	if s.mps.sup == nil {
		return nil
	}
	return mps.NewBackend(s.mps.sup, s.Log)
}

// Client says where libkerf is.
func (s *Session) Client() libkerf.Paths {
	return libkerf.Paths{Dir: s.preload.Dir, Library: s.preload.Library}
}

// RunMPS watches the daemons of MPS until ctx ends.
func (s *Session) RunMPS(ctx context.Context) {
	if s.mps.sup != nil {
		s.mps.sup.Run(ctx)
	}
}

// Announce writes events of the node about MIG from now on.
func (s *Session) Announce(event func(reason, message string)) { s.news.to(event) }
