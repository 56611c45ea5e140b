// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package mps

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/kerf-gpu/kerf/internal/mountns"
	"github.com/kerf-gpu/kerf/internal/mps"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/backend"
)

// leaveTime bounds the end of one grant.
const leaveTime = 20 * time.Second

// Backend enforces the caps of grants with the limits that daemons of MPS give to their clients.
type Backend struct {
	backend.None
	daemons *Supervisor
	log     *slog.Logger

	mu sync.Mutex
	// grants are those that may use a daemon, by ID: when a grant is released, only its ID may be known.
	grants map[string]backend.Grant
	// leaving are grants that ended, and whose daemon does not know of it yet.
	leaving []backend.Grant
}

var _ backend.Backend = (*Backend)(nil)

// NewBackend has no grants yet.
func NewBackend(daemons *Supervisor, log *slog.Logger) *Backend {
	return &Backend{daemons: daemons, log: log, grants: map[string]backend.Grant{}}
}

// Of is the daemon of a grant on one GPU, and the terms for these caps; nil are all of the grant.
func Of(g backend.Grant, caps sharing.Placement) (Key, Terms) {
	if len(g.Placement) != 1 { // of a damaged checkpoint: no daemon serves it
		return Key{}, Terms{}
	}
	f := g.Placement[0]
	k := Key{GPU: f.GPU.UUID, Domain: g.Domain, Contained: g.Pod}
	if len(caps) == 1 {
		f = caps[0]
	}
	return k, Terms{Memory: f.Memory, Percent: f.Percent}
}

// Prepare implements backend.Backend. Processes need no daemon before they are activated.
func (b *Backend) Prepare(ctx context.Context, g backend.Grant, _ sharing.Placement) error {
	if !g.Pod {
		return nil
	}
	b.note(g)
	key, terms := Of(g, nil)
	return b.daemons.AddUser(ctx, key, g.ID, terms)
}

// Enforce implements backend.Backend. It returns once the daemon serves. A process with private mounts sees the folder
// of the daemon then.
func (b *Backend) Enforce(ctx context.Context, g backend.Grant, caps sharing.Placement) error {
	b.note(g)
	key, terms := Of(g, caps)
	if _, err := b.daemons.Acquire(ctx, key, g.ID, terms); err != nil || g.Pod || g.PID == 0 {
		return err
	}
	places, err := b.daemons.Places(key)
	if err == nil {
		err = mountns.Show(places.Own, g.PID)
	}
	if err != nil {
		return errors.Join(err, b.daemons.Release(context.WithoutCancel(ctx), key, g.ID))
	}
	return nil
}

// Resize implements backend.Backend. The new caps are those of processes that start after it.
func (b *Backend) Resize(ctx context.Context, g backend.Grant, caps sharing.Placement) error {
	key, terms := Of(g, caps)
	_, err := b.daemons.Acquire(ctx, key, g.ID, terms)
	return err
}

// Injection implements backend.Backend. It makes programs clients of the daemon, whether that runs yet or not.
func (b *Backend) Injection(g backend.Grant, caps sharing.Placement) (backend.Injection, error) {
	key, terms := Of(g, caps)
	places, err := b.daemons.Places(key)
	if err != nil {
		return backend.Injection{}, err
	}
	list, err := mps.ClientEnv(places.Pipe, terms.Memory, terms.Percent)
	if err != nil {
		return backend.Injection{}, err
	}
	in := backend.Injection{Env: map[string]string{}}
	for _, e := range list {
		name, value, _ := strings.Cut(e, "=")
		in.Env[name] = value
	}
	if key.Contained {
		// The pipe directory keeps its path, which the daemon has passed to its server, too. Read-only: sockets work,
		// and no container puts a file where the daemon, which is root on the node, writes.
		in.Mounts = []sharing.Mount{{Source: places.Source, Target: places.Pipe, ReadOnly: true},
			{Source: places.Shm, Target: mps.SharedMemory}}
	}
	return in, nil
}

// Check implements backend.Backend.
func (b *Backend) Check(g backend.Grant) backend.Fault {
	key, _ := Of(g, nil)
	st, ok := b.daemons.State(key)
	switch {
	case !ok:
		return backend.Fault{Unknown: "no MPS daemon is known for it"}
	case st.Condition != Ready:
		return backend.Fault{Unknown: "its MPS daemon does not serve: " + st.Reason}
	}
	return backend.Fault{}
}

func (b *Backend) note(g backend.Grant) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.grants[g.ID] = g
}

// Recover implements backend.Backend. The supervisor finds the daemons once a driver answers.
func (b *Backend) Recover(g backend.Grant) bool {
	b.note(g)
	return false
}

// Release implements backend.Backend.
func (b *Backend) Release(g backend.Grant) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if known, ok := b.grants[g.ID]; ok {
		g = known
	}
	delete(b.grants, g.ID)
	if len(g.Placement) > 0 {
		b.leaving = append(b.leaving, g)
	}
}

// Clean implements backend.Backend. The supervisor ends later a daemon that it cannot end now.
func (b *Backend) Clean(ctx context.Context) {
	b.mu.Lock()
	all := b.leaving
	b.leaving = nil
	b.mu.Unlock()
	for _, g := range all {
		key, _ := Of(g, nil)
		one, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveTime)
		if err := b.daemons.Release(one, key, g.ID); err != nil {
			b.log.Warn("failed to release MPS daemon", "grant", g.ID, "gpu", string(key.GPU), "error", err.Error())
		}
		cancel()
	}
}
