// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package settings

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/kerf-gpu/kerf/internal/kube"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/config"
	"github.com/kerf-gpu/kerf/sharing/config/change"
	"github.com/kerf-gpu/kerf/sharing/node/conditions"
)

const (
	// configEvery is how often the file is read again. A mounted ConfigMap changes by a swapped link, which
	// file events tell of only in part; reading a few kilobytes costs nothing.
	configEvery = 2 * time.Second
	// configQuiet is how long no further change must have come before one is carried out, and configMost how long is waited
	// for that.
	configQuiet = time.Second
	configMost  = 30 * time.Second
)

// The reasons of events about the configuration.
const (
	// reasonConfigRefused of the node: a document is not taken, with every mistake.
	reasonConfigRefused = "SharingConfigRefused"
	// reasonConfigInForce of the node: a document came into force after another one, with its hash.
	reasonConfigInForce = "SharingConfigInForce"
)

// Follow carries out the documents that are found, each once it has settled, until ctx ends. seen is the hash of what
// was found before.
func (s *Source) Follow(ctx context.Context, seen string) error {
	if s.Options.Source.File == "" && s.Options.Source.Map == "" {
		return nil
	}
	settling := change.Settling{Quiet: configQuiet, Most: configMost}
	settling.Seen(seen)
	look := time.NewTicker(configEvery)
	defer look.Stop()
	var file fallback
	for {
		good, bad, wait := settling.Due(time.Now())
		if good != nil {
			s.use(*good)
		}
		if bad != nil {
			s.refuseConfig(*bad, false)
		}
		due := time.NewTimer(max(wait, time.Millisecond))
		if wait == 0 {
			due.Stop()
		}
		select {
		case <-ctx.Done():
			due.Stop()
			return nil
		case <-s.relabelled:
			s.choosePool()
		case c := <-s.found:
			file.told = true
			settling.Offer(time.Now(), c)
		case <-look.C:
			if s.Options.Source.File == "" {
				break
			}
			if c := s.fileCandidate(); file.counts(c.Hash, s.apiSilent.Load()) {
				settling.Offer(time.Now(), c)
			}
		case <-due.C:
		}
		due.Stop()
	}
}

// fallback says when kubelet's copy of the ConfigMap counts: until the API server has told of it; and while that is silent again, once
// the copy changes. What it is at the beginning of the silence may be older than what the API server said last.
type fallback struct {
	// told is true since the API server has told.
	told bool
	// silent is true since it cannot be read, and at is the hash of the copy then.
	silent bool
	at     string
}

func (f *fallback) counts(hash string, silent bool) bool {
	if silent && !f.silent {
		f.at = hash
	}
	f.silent = silent
	return !f.told || silent && hash != f.at
}

// use puts a document in force that has settled, on the node as it is labelled now.
func (s *Source) use(c change.Candidate) {
	if c.Pool, c.Err = c.Config.PoolFor(s.Labels()); c.Err != nil {
		s.refuseConfig(c, false)
		return
	}
	s.useConfig(c)
}

// WatchConfigMap finds documents in the ConfigMap until ctx ends. While it cannot be read, the file counts.
func (s *Source) WatchConfigMap(ctx context.Context, api *kube.Client) {
	if s.Options.Source.Map == "" {
		return
	}
	namespace, name, _ := strings.Cut(s.Options.Source.Map, "/")
	api.FollowConfigMap(ctx, namespace, name, func(data map[string]string, err error) {
		text := ""
		switch {
		case err != nil:
			text = fmt.Sprintf("the configuration is read from the file, which is late, because configmap %s cannot be read: %v", s.Options.Source.Map, err)
		case data == nil:
			text = fmt.Sprintf("there is no configmap %s; what was in force stays", s.Options.Source.Map)
		}
		s.Runtime.Conditions().Set(conditions.ConfigMap, text)
		s.apiSilent.Store(err != nil)
		if text != "" {
			return
		}
		select {
		case s.found <- s.candidate("configmap "+s.Options.Source.Map, config.FilesOf(data)):
		case <-ctx.Done():
		}
	})
}

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
