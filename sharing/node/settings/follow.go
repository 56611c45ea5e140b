// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package settings

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/kerf-gpu/kerf/internal/atomicfile"
	"github.com/kerf-gpu/kerf/internal/kube"
	"github.com/kerf-gpu/kerf/sharing/config"
	"github.com/kerf-gpu/kerf/sharing/config/change"
	"github.com/kerf-gpu/kerf/sharing/node/conditions"
	"github.com/kerf-gpu/kerf/sharing/node/settings/applied"
)

const (
	// configEvery is how often the file is read again. A mounted ConfigMap changes by a swapped link, which
	// file events tell of only in part; reading a few kilobytes costs nothing.
	configEvery = 2 * time.Second
	// configQuiet is how long no further change must have come before one is carried out, and configMost how long is
	// waited for that.
	configQuiet = time.Second
	configMost  = 30 * time.Second
)

// Watch applies the configs that are found, each once it has settled, until ctx ends. seen is the hash of what was
// found before.
func (s *Source) Watch(ctx context.Context, seen string) error {
	if s.Options.Source.File == "" && s.Options.Source.Map == "" {
		return nil
	}
	settling := change.Settling{StableFor: configQuiet, MaxWait: configMost}
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
			file.answered = true
			settling.Add(time.Now(), c)
		case <-look.C:
			if s.Options.Source.File == "" {
				break
			}
			if c := s.fileCandidate(); file.counts(c.Hash, s.apiSilent.Load()) {
				settling.Add(time.Now(), c)
			}
		case <-due.C:
		}
		due.Stop()
	}
}

// fallback says when kubelet's copy of the ConfigMap counts: until the API server has answered, and while it is silent
// again, once the copy changes. The copy at the beginning of the silence may be older than the API server's last
// answer.
type fallback struct {
	// answered is true since the API server has answered.
	answered bool
	// silent is true since it cannot be read, and at is the hash of the copy then.
	silent bool
	at     string
}

func (f *fallback) counts(hash string, silent bool) bool {
	if silent && !f.silent {
		f.at = hash
	}
	f.silent = silent
	return !f.answered || silent && hash != f.at
}

// use applies a config that has settled, on the node as it is labelled now.
func (s *Source) use(c change.Candidate) {
	if c.Pool, c.Err = c.Config.PoolFor(s.Labels()); c.Err != nil {
		s.refuseConfig(c, false)
		return
	}
	s.useConfig(c)
}

// useConfig applies a valid config, and keeps a copy of it.
func (s *Source) useConfig(c change.Candidate) {
	s.keepGood(c) // first: a reader who sees it applied may end the agent, and the next one is to find it
	s.apply(c)
	s.Log.Info("config applied", "from", c.From, "sha256", c.Hash)
}

// keepGood writes the config down, for a start with one that has errors.
func (s *Source) keepGood(c change.Candidate) {
	data := c.Files[0].Data
	if len(c.Files) > 1 {
		text, err := c.Config.Encode()
		if err != nil {
			s.Log.Warn("failed to save last known good config", "error", err.Error())
			return
		}
		data = text
	}
	data = config.ForRollback([]config.File{{Data: data}})[0].Data
	if err := atomicfile.Write(filepath.Join(s.State, LastGood), data, 0o600); err != nil {
		s.Log.Warn("failed to save last known good config", "error", err.Error())
	}
}

func (s *Source) apply(c change.Candidate) {
	pool := c.Pool
	s.applied = c
	s.Events.ConfigApplied()
	s.Runtime.Conditions.Set(conditions.Compute, idleRule(c.Config, pool))
	outdated := config.Warning(c.Files...)
	s.Runtime.Conditions.Set(conditions.ConfigVersion, outdated)
	if outdated != "" {
		s.Log.Warn("read config of an old version", "from", c.From, "version", config.OldAPIVersion, "remedy",
			"kerf config migrate")
	}
	if s.Options.Cluster.Serve {
		without := mpsRule(c.Config, pool, s.NoMPSForPods)
		s.Runtime.Conditions.Set(conditions.MPS, without)
		if without != "" {
			s.Log.Warn("disabled MPS for pods", "reason", without)
		}
	}
	s.Runtime.Settings().Apply(c.Config, pool, applied.Source{File: c.From, SHA256: c.Hash})
	s.Runtime.Conditions.ApplyConfig() // only now: it may have stopped all grants
	s.Runtime.Notify.Audit.Config(pool.Name, c.From, c.Hash, nil)
	s.configNews.applied(c.Hash)
}

// candidate checks a config.
func (s *Source) candidate(from string, files []config.File) change.Candidate {
	c := change.Candidate{From: from, Hash: config.Hash(files), Files: files}
	if c.Config, c.Err = config.DecodeFiles(files...); c.Err != nil {
		return c
	}
	c.Pool, c.Err = c.Config.PoolFor(s.Labels())
	return c
}

// WatchConfigMap finds documents in the ConfigMap until ctx ends. While it cannot be read, the file counts.
func (s *Source) WatchConfigMap(ctx context.Context, api *kube.Client) {
	if s.Options.Source.Map == "" {
		return
	}
	namespace, name, _ := strings.Cut(s.Options.Source.Map, "/")
	api.WatchConfigMap(ctx, namespace, name, func(data map[string]string, err error) {
		text := ""
		switch {
		case err != nil:
			text = fmt.Sprintf(
				"the configuration is read from the file, which is late, because configmap %s cannot be read: %v",
				s.Options.Source.Map, err)
		case data == nil:
			text = fmt.Sprintf("there is no configmap %s; the applied config stays", s.Options.Source.Map)
		}
		s.Runtime.Conditions.Set(conditions.ConfigMap, text)
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
