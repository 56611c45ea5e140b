// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package conditions keeps what stops a node from granting, and what its users should know.
package conditions

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"sync"
)

// Kind is the subject of a condition. Sentences are listed in the order of the kinds.
type Kind uint8

// These kinds stop all grants. Record is last: it does not stop grants that exist.
const (
	Driver Kind = iota // no driver answers, or its caps are being verified
	NoGPU
	Config
	Leaving
	Orphan // of a cgroup
	Rescan
	DriverDrain // an administrator wants the driver released
	Record
)

// These kinds stop grants of pods only.
const (
	CDI Kind = iota + Record + 1
	Inventory
	NRI
	ContainerRuntime // of a kind of problem, too
	Units
)

// These kinds are warnings.
const (
	Audit  Kind = iota + Units + 1
	Claims      // ResourceClaims cannot be served
	Compute
	ConfigUnchanged // a new config was rejected, and the last good one stays
	ConfigMap
	ConfigVersion // the config has an old version
	RuntimeConfig
	Cordons
	Draining // of a grant
	DriverReleased
	Evict // of a grant
	GPUModes
	Idle     // of a grant
	Instance // of a MIG instance
	Kill
	LeavingUnknown
	LeftOut
	MIG // of a GPU
	Missed
	MPS
	NodeLabels
	NodeMark
	Over // of a grant
	PoolLabels
	Rejected       // of a grant
	RuntimeProblem // of a kind of problem
	SecondSource
	ModeSwitch
	Unaccounted
	Uncounted // of a grant
)

// Effect is what a condition does.
type Effect uint8

// The effects.
const (
	Warns Effect = iota
	StopsPods
	StopsGrants
)

func (k Kind) effect() Effect {
	switch {
	case k <= Record:
		return StopsGrants
	case k <= Units:
		return StopsPods
	}
	return Warns
}

type key struct {
	kind Kind
	of   string
}

// Set is all conditions of a node. Its lock is the innermost: it is safe to call with any other lock held.
type Set struct {
	changed func()

	mu        sync.Mutex
	sentences map[key]string
	mistakes  []string
}

// New returns an empty set, which calls changed after each change. A caller may hold locks meanwhile.
func New(changed func()) *Set { return &Set{changed: changed, sentences: map[key]string{}} }

// Set sets the sentence of a kind, or with an empty one removes it. It reports whether that is a change.
func (s *Set) Set(kind Kind, sentence string) bool { return s.SetOf(kind, "", sentence) }

// SetOf is Set for one grant, GPU or MIG instance.
func (s *Set) SetOf(kind Kind, of, sentence string) bool {
	if !s.set(key{kind, of}, sentence) {
		return false
	}
	s.changed()
	return true
}

// Replace sets the sentences of a kind, and removes all others of it.
func (s *Set) Replace(kind Kind, sentences map[string]string) {
	s.mu.Lock()
	was := len(s.sentences)
	maps.DeleteFunc(s.sentences, func(k key, _ string) bool { return k.kind == kind && sentences[k.of] == "" })
	changed := len(s.sentences) != was
	for of, sentence := range sentences {
		changed = changed || s.sentences[key{kind, of}] != sentence
		s.sentences[key{kind, of}] = sentence
	}
	s.mu.Unlock()
	if changed {
		s.changed()
	}
}

// Retain removes the conditions of a kind, except those of the given subjects.
func (s *Set) Retain(kind Kind, of map[string]string) {
	s.mu.Lock()
	was := len(s.sentences)
	maps.DeleteFunc(s.sentences, func(k key, _ string) bool { return k.kind == kind && of[k.of] == "" })
	changed := len(s.sentences) != was
	s.mu.Unlock()
	if changed {
		s.changed()
	}
}

func (s *Set) set(k key, sentence string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sentences[k] == sentence {
		return false
	}
	s.sentences[k] = sentence
	if sentence == "" {
		delete(s.sentences, k)
	}
	return true
}

// Has reports whether a condition without a subject is set.
func (s *Set) Has(kind Kind) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, has := s.sentences[key{kind: kind}]
	return has
}

// Sentences lists the conditions with an effect.
func (s *Set) Sentences(effect Effect) []string {
	return s.list(func(k Kind) bool { return k.effect() == effect })
}

// Unserved lists what stops grants that exist, too.
func (s *Set) Unserved() []string {
	return s.list(func(k Kind) bool { return k < Record })
}

func (s *Set) list(want func(Kind) bool) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []string
	for _, k := range slices.SortedFunc(maps.Keys(s.sentences), func(a, b key) int {
		return cmp.Or(cmp.Compare(a.kind, b.kind), strings.Compare(a.of, b.of))
	}) {
		if want(k.kind) {
			out = append(out, s.sentences[k])
		}
	}
	return out
}

// RejectConfig notes the errors of a rejected config. Without a config applied before, nothing is granted.
func (s *Set) RejectConfig(mistakes []string, first bool) {
	s.mu.Lock()
	s.mistakes = mistakes
	s.mu.Unlock()
	sentence := "the config has errors: " + strings.Join(mistakes, "; ")
	if first {
		s.Set(Config, sentence)
		return
	}
	s.Set(ConfigUnchanged, sentence+"; the last known good config stays applied")
}

// ApplyConfig notes that a config was applied.
func (s *Set) ApplyConfig() {
	s.mu.Lock()
	s.mistakes = nil
	s.mu.Unlock()
	s.Set(Config, "")
	s.Set(ConfigUnchanged, "")
}

// ConfigErrors are the errors of the config that was rejected last; nil after one was applied.
func (s *Set) ConfigErrors() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mistakes
}
