// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package settings

import (
	"context"
	"strings"
	"sync"

	"github.com/kerf-gpu/kerf/internal/kube"
	"github.com/kerf-gpu/kerf/sharing"
)

// The reasons of events about the configuration.
const (
	// reasonConfigRefused of the node: a config was rejected, with all its errors.
	reasonConfigRefused = "SharingConfigRefused"
	// reasonConfigInForce of the node: a new config was applied, with its hash.
	reasonConfigInForce = "SharingConfigInForce"
)

// configNews says in the node's events which document is in force, and why one is not.
type configNews struct {
	mu      sync.Mutex
	tell    func(reason, message string, warning bool)
	pending func()
	hash    string
}

// to sets who is told, and tells what was said last.
func (n *configNews) to(ctx context.Context, api *kube.Client) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.tell = func(reason, message string, warning bool) {
		api.Event(ctx, sharing.ContainerRef{}, reason, message, warning)
	}
	if n.pending != nil {
		n.pending()
	}
}

// applied tells of a document that came into force after another one.
func (n *configNews) applied(hash string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	before := n.hash
	n.hash, n.pending = hash, nil
	if n.tell != nil && before != "" && before != hash {
		n.tell(reasonConfigInForce, "the sharing configuration with sha256 "+hash+" is in force", false)
	}
}

// refused tells why a document was not taken.
func (n *configNews) refused(mistakes []string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.pending = func() {
		n.tell(reasonConfigRefused, "the sharing configuration has mistakes and is not taken: "+strings.Join(mistakes, "; "), true)
	}
	if n.tell != nil {
		n.pending()
	}
}

// Announce writes events of the node about documents from now on, until ctx ends.
func (s *Source) Announce(ctx context.Context, api *kube.Client) { s.configNews.to(ctx, api) }
