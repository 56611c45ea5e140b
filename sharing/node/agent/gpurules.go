// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package agent

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
	"time"

	"github.com/kerf-gpu/kerf/internal/atomicfile"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/caps/gpumode"
	"github.com/kerf-gpu/kerf/sharing/config"
	"github.com/kerf-gpu/kerf/sharing/config/change"
)

const (
	// rulesFile has what holds for the GPUs, so that an agent that starts knows what those in use have.
	rulesFile = "gpu-rules.json"
	// rulesEvery is how often it is looked whether a GPU that waits for its settings is idle, even if nothing was announced.
	rulesEvery = 2 * time.Second
)

// gpuRules are the settings in force of the node's GPUs.
type gpuRules struct {
	mu  sync.Mutex
	now map[sharing.GPUID]config.GPUSettings
}

// rulesOnDisk is the form on disk.
type rulesOnDisk struct {
	Boot string                               `json:"boot"`
	GPUs map[sharing.GPUID]config.GPUSettings `json:"gpus"`
}

// loadRules reads what held before; what is of another boot holds for nothing that runs.
func (a *agent) loadRules(boot string) {
	a.rules.now = map[sharing.GPUID]config.GPUSettings{}
	data, err := os.ReadFile(filepath.Join(a.opt.Dirs.Dir, rulesFile))
	var f rulesOnDisk
	if err == nil {
		err = json.Unmarshal(data, &f)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		a.log.Warn("settings of the GPUs of before not known", "error", err.Error())
	case f.Boot == boot && f.GPUs != nil:
		a.rules.now = f.GPUs
	}
}

// planRules says what the pool in force changes for the GPUs now.
func (a *agent) planRules(gpus []sharing.GPU) change.Plan {
	users := a.runtime.Users()
	a.rules.mu.Lock()
	defer a.rules.mu.Unlock()
	uses := make([]change.Use, 0, len(gpus))
	for _, g := range gpus {
		u := change.Use{GPU: g, Users: users[g.UUID]}
		if s, ok := a.rules.now[g.UUID]; ok {
			if len(u.Users) > 0 { // the runtime gave each claim what it knew to hold then
				is := a.runtime.SettingsOf(g)
				s.Backends, s.MinLevel = is.Backends, is.MinLevel
			}
			u.Now = &s
		}
		uses = append(uses, u)
	}
	return change.Settle(*a.pool.Load(), uses)
}

// takeRules puts a plan in force, as far as it is carried out from here: the rest reads what is in force.
func (a *agent) takeRules(p change.Plan) {
	a.rules.mu.Lock()
	changed := !maps.Equal(a.rules.now, p.Next)
	a.rules.now = maps.Clone(p.Next)
	a.rules.mu.Unlock()
	a.runtime.SetWaiting(p.Waits)
	if !changed {
		return
	}
	for _, s := range p.Now {
		a.log.Info("settings of a GPU change", "gpu", string(s.GPU), "what", s.What)
	}
	data, err := json.Marshal(rulesOnDisk{Boot: a.boot, GPUs: p.Next})
	if err == nil {
		err = atomicfile.Write(filepath.Join(a.opt.Dirs.Dir, rulesFile), data, 0o600)
	}
	if err != nil {
		a.log.Warn("settings of the GPUs not kept", "error", err.Error())
	}
}

// setting is what is in force for a GPU.
func (a *agent) setting(id sharing.GPUID) config.GPUSettings {
	a.rules.mu.Lock()
	defer a.rules.mu.Unlock()
	return a.rules.now[id]
}

// admit leaves out the GPUs that are left to others, takes the reserve of the others off what can be granted, and says how
// often it may be.
func (a *agent) admit(all []sharing.GPU) []sharing.GPU {
	excluded := map[sharing.GPUID]bool{}
	var out, left []sharing.GPU
	for _, g := range all {
		s := a.setting(g.UUID)
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
	a.excluded.Store(&excluded)
	a.runtime.SetExcluded(left)
	return out
}

// isExcluded are the GPUs that are left to others.
func (a *agent) isExcluded() map[sharing.GPUID]bool {
	if m := a.excluded.Load(); m != nil {
		return *m
	}
	return nil
}

// followRules gives GPUs the settings of the pool in force as they become idle, until ctx ends, or until stock is to be taken
// anew (errRescan) because of what is left out or kept back of them.
func (a *agent) followRules(ctx context.Context, all []sharing.GPU) error {
	t := time.NewTicker(rulesEvery)
	defer t.Stop()
	for {
		changed := a.runtime.Changed()
		if err := a.stepRules(all); err != nil {
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

func (a *agent) stepRules(all []sharing.GPU) error {
	p := a.planRules(all)
	if !a.otherStock(p) {
		a.takeRules(p)
		return nil
	}
	// Nobody gets a claim from here on, so that who is idle stays so.
	a.runtime.SetBlocked("rescan", "the rules for the node's GPUs have changed")
	p = a.planRules(all)
	again := a.otherStock(p)
	a.takeRules(p)
	if !again {
		a.runtime.SetBlocked("rescan", "")
		return nil
	}
	return fmt.Errorf("the rules for the node's GPUs have changed: %w", errRescan)
}

// otherStock reports whether a plan changes which GPUs there are, or how much of them.
func (a *agent) otherStock(p change.Plan) bool {
	a.rules.mu.Lock()
	defer a.rules.mu.Unlock()
	for id, next := range p.Next {
		if now := a.rules.now[id]; now.Exclude != next.Exclude || now.MemoryReserve != next.MemoryReserve || now.Overcommit != next.Overcommit {
			return true
		}
	}
	return false
}

// modes is what a GPU is to have of what is set on it.
func (a *agent) modes(id sharing.GPUID) gpumode.Want {
	s := a.setting(id)
	return gpumode.Want{TimeSlice: s.TimeSlice, ComputeMode: s.ComputeMode, PowerLimit: uint32(s.PowerLimitWatts) * 1000} //nolint:gosec // at most config.MaxPowerWatts
}
