// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package settings

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kerf-gpu/kerf/internal/atomicfile"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/config"
	"github.com/kerf-gpu/kerf/sharing/config/change"
	"github.com/kerf-gpu/kerf/sharing/node/conditions"
	"github.com/kerf-gpu/kerf/sharing/node/settings/gpumode"
)

const (
	// rulesFile has what holds for the GPUs, so that an agent that starts knows what those in use have.
	rulesFile = "gpu-rules.json"
	// rulesEvery is how often it is looked whether a GPU that waits for its settings is idle, even if nothing was announced.
	rulesEvery = 2 * time.Second
)

// Rules owns the applied settings of the node's GPUs.
type Rules struct {
	Deps
	pool     func() config.Pool
	excluded atomic.Pointer[map[sharing.GPUID]bool]

	mu  sync.Mutex
	now map[sharing.GPUID]config.GPUSettings
}

// NewRules reads which settings the GPUs had before; those of another boot do not count. pool returns
// the node's pool.
func NewRules(d Deps, pool func() config.Pool) *Rules {
	r := &Rules{Deps: d, pool: pool}
	r.load(d.Boot)
	return r
}

// Now are the applied settings.
func (r *Rules) Now() map[sharing.GPUID]config.GPUSettings {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.now)
}

// Apply gives idle GPUs the settings of the pool.
func (r *Rules) Apply(all []sharing.GPU) { r.take(r.plan(all)) }

// rulesOnDisk is the form on disk.
type rulesOnDisk struct {
	Boot string                               `json:"boot"`
	GPUs map[sharing.GPUID]config.GPUSettings `json:"gpus"`
}

// load reads what held before; what is of another boot holds for nothing that runs.
func (r *Rules) load(boot string) {
	r.now = map[sharing.GPUID]config.GPUSettings{}
	data, err := os.ReadFile(filepath.Join(r.Options.Dirs.Dir, rulesFile))
	var f rulesOnDisk
	if err == nil {
		err = json.Unmarshal(data, &f)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		r.Log.Warn("settings of the GPUs of before not known", "error", err.Error())
	case f.Boot == boot && f.GPUs != nil:
		r.now = f.GPUs
	}
}

// plan says what the pool changes for the GPUs now.
func (r *Rules) plan(gpus []sharing.GPU) change.Plan {
	users := r.Runtime.Users()
	r.mu.Lock()
	defer r.mu.Unlock()
	uses := make([]change.Use, 0, len(gpus))
	for _, g := range gpus {
		u := change.Use{GPU: g, Users: users[g.UUID]}
		if s, ok := r.now[g.UUID]; ok {
			if len(u.Users) > 0 { // the runtime gave each claim what it knew to hold then
				is := r.Runtime.SettingsOf(g)
				s.Backends, s.MinLevel = is.Backends, is.MinLevel
			}
			u.Now = &s
		}
		uses = append(uses, u)
	}
	return change.Settle(r.pool(), uses)
}

// take stores the settings of a plan, and logs what changes. Other parts read them from here.
func (r *Rules) take(p change.Plan) {
	r.mu.Lock()
	changed := !maps.Equal(r.now, p.Next)
	r.now = maps.Clone(p.Next)
	r.mu.Unlock()
	r.Runtime.SetWaiting(p.Waits)
	if !changed {
		return
	}
	for _, s := range p.Now {
		r.Log.Info("settings of a GPU change", "gpu", string(s.GPU), "what", s.What)
	}
	data, err := json.Marshal(rulesOnDisk{Boot: r.Boot, GPUs: p.Next})
	if err == nil {
		err = atomicfile.Write(filepath.Join(r.Options.Dirs.Dir, rulesFile), data, 0o600)
	}
	if err != nil {
		r.Log.Warn("settings of the GPUs not kept", "error", err.Error())
	}
}

// setting is the applied one of a GPU.
func (r *Rules) setting(id sharing.GPUID) config.GPUSettings {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.now[id]
}

// Admit leaves out the GPUs that are left to others, takes the reserve of the others off what can be granted, and says how
// often it may be.
func (r *Rules) Admit(all []sharing.GPU) []sharing.GPU {
	excluded := map[sharing.GPUID]bool{}
	var out, left []sharing.GPU
	for _, g := range all {
		s := r.setting(g.UUID)
		if s.Exclude {
			excluded[g.UUID] = true
			left = append(left, g)
			continue
		}
		if reserved, err := g.Reserved.Add(s.MemoryReserve); err == nil {
			g.Reserved = min(reserved, g.Memory)
		}
		g.Overcommit = s.Overcommit
		out = append(out, g)
	}
	r.excluded.Store(&excluded)
	r.Runtime.SetExcluded(left)
	return out
}

// Excluded are the GPUs that are left to others.
func (r *Rules) Excluded() map[sharing.GPUID]bool {
	if m := r.excluded.Load(); m != nil {
		return *m
	}
	return nil
}

// Follow gives GPUs the settings of the pool as they become idle, until ctx ends. It returns ErrRescan if the settings change
// which GPUs there are, or how much of them.
func (r *Rules) Follow(ctx context.Context, all []sharing.GPU) error {
	t := time.NewTicker(rulesEvery)
	defer t.Stop()
	for {
		changed := r.Runtime.Changed()
		if err := r.step(all); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		case <-t.C:
		}
	}
}

func (r *Rules) step(all []sharing.GPU) error {
	p := r.plan(all)
	if !r.otherStock(p) {
		r.take(p)
		return nil
	}
	// Nobody gets a claim from here on, so that who is idle stays so.
	r.Runtime.Conditions().Set(conditions.Rescan, "the rules for the node's GPUs have changed")
	p = r.plan(all)
	again := r.otherStock(p)
	r.take(p)
	if !again {
		r.Runtime.Conditions().Set(conditions.Rescan, "")
		return nil
	}
	return fmt.Errorf("the rules for the node's GPUs have changed: %w", ErrRescan)
}

// otherStock reports whether a plan changes which GPUs there are, or how much of them.
func (r *Rules) otherStock(p change.Plan) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for id, next := range p.Next {
		if now := r.now[id]; now.Exclude != next.Exclude || now.MemoryReserve != next.MemoryReserve || now.Overcommit != next.Overcommit {
			return true
		}
	}
	return false
}

// modes is what a GPU is to have of what is set on it.
func (r *Rules) modes(id sharing.GPUID) gpumode.Want {
	s := r.setting(id)
	return gpumode.Want{TimeSlice: s.TimeSlice, ComputeMode: s.ComputeMode, PowerLimit: uint32(s.PowerLimitWatts) * 1000} //nolint:gosec // at most config.MaxPowerWatts
}
