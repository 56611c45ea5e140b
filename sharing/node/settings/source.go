// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package settings applies the configuration of a node, and gives each GPU the settings that follow from it.
//
// It promises that a configuration with errors changes nothing, and that a GPU in use keeps its settings until it is
// idle.
package settings

import (
	"log/slog"
	"sync/atomic"

	"github.com/kerf-gpu/kerf/sharing/config"
	"github.com/kerf-gpu/kerf/sharing/config/change"
	"github.com/kerf-gpu/kerf/sharing/node"
	"github.com/kerf-gpu/kerf/sharing/node/options"
)

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
	// State is the folder of what outlives a reboot.
	State string
	// NoMPSForPods is why MPS can hold no pod here; empty if it can.
	NoMPSForPods string
}

// Source finds configurations, and applies those without errors.
type Source struct {
	Deps
	// found has each new content of the ConfigMap, and configNews writes the node's events about it.
	found      chan change.Candidate
	configNews configNews
	// apiSilent is true while the ConfigMap cannot be read.
	apiSilent atomic.Bool
	// own are the labels of the node's object, nil if there is none. relabelled gets a value when they change.
	own        atomic.Pointer[map[string]string]
	relabelled chan struct{}
	// applied is the applied configuration. Only Watch uses it.
	applied change.Candidate
}

// NewSource has found nothing yet.
func NewSource(d Deps) *Source {
	return &Source{Deps: d, found: make(chan change.Candidate), relabelled: make(chan struct{})}
}

// Prices are those of the applied configuration.
func (s *Source) Prices() config.Prices {
	c := s.Runtime.Settings()
	return c.Config().PricesIn(c.Pool())
}
