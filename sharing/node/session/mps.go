// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package session

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kerf-gpu/kerf/internal/cgroup"
	"github.com/kerf-gpu/kerf/internal/mountns"
	door "github.com/kerf-gpu/kerf/internal/mps"
	"github.com/kerf-gpu/kerf/internal/nvml"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/backend"
	"github.com/kerf-gpu/kerf/sharing/backend/choice"
	"github.com/kerf-gpu/kerf/sharing/backend/mps"
	"github.com/kerf-gpu/kerf/sharing/config"
	"github.com/kerf-gpu/kerf/sharing/node"
)

const (
	// mpsTryEvery is how often a GPU is tried again on which no daemon came up.
	mpsTryEvery = time.Minute
	// mpsTryDomain is that of the daemon that is started to see whether one comes up.
	mpsTryDomain = "probe"
)

// mpsDaemons is MPS for the runtime: the supervisor, with the driver that is in use for the compute modes.
type mpsDaemons struct {
	sup *mps.Supervisor
	// missing says why there is no MPS on this machine; sup is then nil.
	missing error
	lib     atomic.Pointer[nvml.Library]

	mu        sync.Mutex
	recovered bool
	tried     map[sharing.GPUID]try
}

// try is what came of starting a daemon to see.
type try struct {
	at  time.Time
	err error
}

// newMPS looks the program up. A machine without it has no MPS, which is no error of the agent's.
func (s *Session) newMPS(boot string) *mpsDaemons {
	m := &mpsDaemons{tried: map[sharing.GPUID]try{}}
	program, err := door.Find(s.Options.Driver.Path, s.Options.Driver.Folders)
	if err == nil {
		m.sup, err = mps.New(mps.Options{
			Dir: filepath.Join(s.Options.Dirs.Dir, "mps"), Program: program, Modes: m, Rule: s.modeRule, BootID: boot,
			Owner: mps.UserOfDomain, MoveDaemon: s.keepDaemon, Log: s.Log,
			Again: func(mps.Key) { s.Events.MPSRestarted() },
		})
	}
	m.missing = err
	return m
}

// keepDaemon moves a daemon to a cgroup next to those of the grants. There the end of this program's container or
// service does not reach it, and it does not count as unmanaged.
func (s *Session) keepDaemon(pid int) error {
	rel := node.DaemonsOf(s.Parent)
	group, err := s.Cgroups.Create(rel)
	if errors.Is(err, sharing.ErrConflict) {
		group, err = s.Cgroups.Open(filepath.Join(s.Cgroups.Mount, rel), 0)
	}
	if err == nil {
		err = group.Add(pid)
	}
	if err != nil {
		return fmt.Errorf("move process %d to the cgroup of daemons: %w", pid, err)
	}
	return nil
}

// NoMPSForPods says why this agent can have no pod's container held by MPS; it is empty where it can.
func NoMPSForPods() string {
	host, err := mountns.IsHost()
	switch {
	case err != nil:
		return "cannot check whether the agent shares its mounts with the node: " + err.Error()
	case !host:
		return "the agent has separate mounts, as in a container: it can mount no /dev/shm on the node for a " +
			"daemon of MPS and its clients"
	}
	return ""
}

// ComputeMode implements mps.Modes.
func (m *mpsDaemons) ComputeMode(ctx context.Context, gpu sharing.GPUID) (sharing.ComputeMode, error) {
	lib := m.lib.Load()
	if lib == nil {
		return sharing.ComputeModeAsIs, fmt.Errorf("no driver answers: %w", sharing.ErrUnavailable)
	}
	return lib.ComputeMode(ctx, gpu)
}

// SetComputeMode implements mps.Modes.
func (m *mpsDaemons) SetComputeMode(ctx context.Context, gpu sharing.GPUID, mode sharing.ComputeMode) error {
	lib := m.lib.Load()
	if lib == nil {
		return fmt.Errorf("no driver answers: %w", sharing.ErrUnavailable)
	}
	return lib.SetComputeMode(ctx, gpu, mode)
}

// changedModes reports whether there are GPUs whose compute mode was changed and not put back.
func (m *mpsDaemons) changedModes() bool { return m.sup != nil && len(m.sup.ModesChanged()) > 0 }

// use takes a driver into use, nil for none, and with the first one the daemons that an earlier agent has left.
func (m *mpsDaemons) use(ctx context.Context, lib *nvml.Library, grants []backend.Grant) error {
	m.lib.Store(lib)
	if m.sup == nil || lib == nil {
		return nil
	}
	m.mu.Lock()
	first := !m.recovered
	m.recovered = true
	m.mu.Unlock()
	if !first {
		return nil
	}
	held := map[mps.Key]map[string]mps.Terms{}
	for _, g := range grants {
		key, terms := mps.Of(g, nil)
		if held[key] == nil {
			held[key] = map[string]mps.Terms{}
		}
		held[key][g.ID] = terms
	}
	return m.sup.Recover(ctx, held)
}

// probe tells whether MPS can hold shares of a GPU: whether a daemon comes up on it. Ask only where the configuration
// lists MPS, since it changes the GPU's compute mode for a moment.
func (m *mpsDaemons) probe(ctx context.Context, g sharing.GPU) choice.Support {
	switch {
	case m.missing != nil:
		return choice.Support{Answer: choice.NotSupported, Reason: m.missing.Error()}
	case g.MIG:
		return choice.Support{Answer: choice.NotSupported, Reason: "MPS does not run on a GPU in MIG mode",
			Remedy: "switch MIG mode off"}
	}
	for _, st := range m.sup.States() {
		if st.Key.GPU == g.UUID && st.Condition == mps.Ready {
			return choice.Support{Answer: choice.Supported}
		}
	}
	m.mu.Lock()
	last, again := m.tried[g.UUID]
	m.mu.Unlock()
	if !again || time.Since(last.at) >= mpsTryEvery {
		key := mps.Key{GPU: g.UUID, Domain: mpsTryDomain}
		_, err := m.sup.Acquire(ctx, key, mpsTryDomain, mps.Terms{Memory: sharing.GiB})
		last = try{time.Now(), errors.Join(err, m.sup.Release(ctx, key, mpsTryDomain))}
		m.mu.Lock()
		m.tried[g.UUID] = last
		m.mu.Unlock()
	}
	if last.err != nil {
		return choice.Support{Reason: last.err.Error(), Remedy: "see the daemon's log"}
	}
	return choice.Support{Answer: choice.Supported}
}

// modeRule is what becomes of the compute mode of a GPU on which MPS enforces shares.
func (s *Session) modeRule(sharing.GPUID) mps.ModeRule {
	switch {
	case s.Options.ReadOnly():
		return mps.ReadMode
	case s.Runtime.Settings().Pool().MPSComputeMode == config.MPSComputeModeUnchanged:
		return mps.ModeUnchanged
	}
	return mps.ManageMode
}

// LeaveMPSGroup removes the cgroup of daemons if there is none.
func LeaveMPSGroup(groups cgroup.Hierarchy, parent string) {
	if group, err := groups.Open(filepath.Join(groups.Mount, node.DaemonsOf(parent)), 0); err == nil {
		_ = group.Remove() // it stays while there are daemons
	}
}
