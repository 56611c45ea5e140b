// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package settings applies the configuration of a node, and gives each GPU the settings that follow from it.
//
// It promises that a configuration with errors changes nothing, and that a GPU in use keeps its settings until it is idle.
package settings

import (
	"errors"
	"log/slog"
	"sync/atomic"

	"github.com/kerf-gpu/kerf/sharing/config"
	"github.com/kerf-gpu/kerf/sharing/config/change"
	"github.com/kerf-gpu/kerf/sharing/node"
	"github.com/kerf-gpu/kerf/sharing/node/options"
)

// ErrRescan says that the inventory of GPUs has changed and must be read again.
var ErrRescan = errors.New("the inventory has changed")

// Events counts applied and rejected configurations.
type Events interface {
	ConfigApplied()
	ConfigRefused()
}

// Deps are what this package needs of the agent.
type Deps struct {
	Log     *slog.Logger
	Options *options.Options
	Runtime *node.Runtime
	Events  Events
	// State is the folder of what outlives a reboot, and Boot the kernel's boot ID.
	State, Boot string
	// NoMPSForPods is why MPS can hold no pod here; empty if it can.
	NoMPSForPods string
}

// Source owns the applied configuration: the SharingConfig, the node's pool, and its prices.
type Source struct {
	Deps
	pool   atomic.Pointer[config.Pool]
	prices atomic.Pointer[config.Prices]
	// found has each new content of the ConfigMap, and configNews writes the node's events about it.
	found      chan change.Candidate
	configNews configNews
	// apiSilent is true while the ConfigMap cannot be read.
	apiSilent atomic.Bool
	// own are the labels of the node's object, nil if there is none. relabelled gets a value when they change.
	own        atomic.Pointer[map[string]string]
	relabelled chan struct{}
	// applied is the applied configuration. Only Follow uses it.
	applied change.Candidate
}

// NewSource starts with a pool of the built-in configuration.
func NewSource(d Deps, pool config.Pool) *Source {
	s := &Source{Deps: d, found: make(chan change.Candidate), relabelled: make(chan struct{})}
	s.pool.Store(&pool)
	return s
}

// Pool is the node's pool in the applied configuration.
func (s *Source) Pool() config.Pool { return *s.pool.Load() }

// Prices are those of the applied configuration, or none.
func (s *Source) Prices() config.Prices {
	if p := s.prices.Load(); p != nil {
		return *p
	}
	return config.Prices{}
}
