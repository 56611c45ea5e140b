// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package settings

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"github.com/kerf-gpu/kerf/internal/kube"
	"github.com/kerf-gpu/kerf/sharing"
)

// The reasons of events about the configuration.
const (
	// reasonConfigRejected of the node: a config was rejected, with all its errors.
	reasonConfigRejected = "SharingConfigRejected"
	// reasonConfigApplied of the node: a new config was applied, with its hash.
	reasonConfigApplied = "SharingConfigApplied"
)

// configNews says in the node's events which config is applied, and why one is not.
type configNews struct {
	mu      sync.Mutex
	tell    func(reason, message string, warning bool)
	pending func()
	hash    string
}

// to sets the API server, and sends it the last message.
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

// applied reports a config that replaced another one.
func (n *configNews) applied(hash string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	before := n.hash
	n.hash, n.pending = hash, nil
	if n.tell != nil && before != "" && before != hash {
		n.tell(reasonConfigApplied, "The agent applied the config with SHA-256 "+hash+".", false)
	}
}

// refused reports why a config was rejected.
func (n *configNews) refused(mistakes []string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.pending = func() {
		n.tell(reasonConfigRejected, fmt.Sprintf("The agent rejected the config because of %d errors: %s",
			len(mistakes), strings.Join(mistakes, "; ")), true)
	}
	if n.tell != nil {
		n.pending()
	}
}

// Announce writes events of the node about documents from now on, until ctx ends.
func (s *Source) Announce(ctx context.Context, api *kube.Client) { s.configNews.to(ctx, api) }
