// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"slices"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/config"
	"github.com/kerf-gpu/kerf/sharing/config/change"
)

// SetConfig puts a validated document and the node's pool of it in force for new claims. Grants that run
// keep what they have, and GPUs that are in use what holds their fractions by the pool's rules.
func (r *Runtime) SetConfig(c config.Config, pool config.Pool, source ConfigSource) {
	r.mu.Lock()
	r.keepRuled()
	r.config, r.pool, r.configSource = c, pool, source
	r.conditions.ApplyConfig()
	r.mu.Unlock()
	r.notify.Audit.Config(pool.Name, source.File, source.SHA256, nil)
	r.changed.announce()
}

// RefuseConfig tells that a newer document has mistakes. What is in force stays. When nothing was in force
// yet, nothing is granted: a default is never guessed in place of a document that someone wrote.
func (r *Runtime) RefuseConfig(mistakes []string, first bool) {
	r.conditions.RejectConfig(mistakes, first)
	r.notify.Audit.Config("", "", "", mistakes)
	r.changed.announce()
}

// lastGood is the text of the document in force while a newer one is refused, and empty otherwise. It needs the lock.
func (r *Runtime) lastGood() string {
	if len(r.conditions.ConfigErrors()) == 0 || r.configSource.SHA256 == "" {
		return ""
	}
	text, err := r.config.Encode()
	if err != nil {
		return "" // what cannot be written is not told
	}
	return string(text)
}

// SetExcluded tells which GPUs the pool leaves to others.
func (r *Runtime) SetExcluded(gpus []sharing.GPU) {
	r.mu.Lock()
	same := slices.EqualFunc(r.excluded, gpus, func(a, b sharing.GPU) bool { return a.UUID == b.UUID && a.Index == b.Index })
	r.excluded = slices.Clone(gpus)
	r.mu.Unlock()
	if !same {
		r.changed.announce()
	}
}

// SetWaiting tells which settings of which GPUs wait for whom.
func (r *Runtime) SetWaiting(steps []change.Step) {
	r.mu.Lock()
	same := slices.EqualFunc(r.waiting, steps, func(a, b change.Step) bool {
		return a.GPU == b.GPU && slices.Equal(a.What, b.What) && slices.Equal(a.For, b.For)
	})
	r.waiting = steps
	r.mu.Unlock()
	if !same {
		r.changed.announce()
	}
}

// Lists reports whether the pool, a rule of it that is in force for a GPU in use, or a profile lists a backend.
func (r *Runtime) Lists(b sharing.Backend) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.config.Lists(r.pool, b) {
		return true
	}
	for _, was := range r.ruled {
		if slices.Contains(was.backends.List(), b) {
			return true
		}
	}
	return slices.ContainsFunc(r.config.Profiles(), func(p config.Profile) bool { return slices.Contains(p.Backends, b) })
}
