// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package settings

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"time"

	"github.com/kerf-gpu/kerf/internal/atomicfile"
	"github.com/kerf-gpu/kerf/internal/sleep"
	"github.com/kerf-gpu/kerf/sharing/node/conditions"
)

const (
	// ownLabels are the labels that the node's object had last, for an agent that starts while the API server is away.
	ownLabels = "node-labels.json"
	// labelsFirst is how long the start waits for them, and labelsEvery how often they are asked for.
	labelsFirst = 10 * time.Second
	labelsEvery = 10 * time.Second
)

// Labels are those by which the node's pool is chosen: of its object, and over them what --node-label says.
func (s *Source) Labels() map[string]string {
	out := map[string]string{}
	if own := s.own.Load(); own != nil {
		maps.Copy(out, *own)
	}
	maps.Copy(out, s.Options.Source.Labels)
	return out
}

// FirstLabels reads the labels of the node's object before the first config. Else the node would be of another pool for
// a moment, and advertise that pool's resources. The function ask asks the API server; if it does not answer, the
// earlier labels count.
func (s *Source) FirstLabels(ctx context.Context, ask func(context.Context) (map[string]string, error)) {
	ctx, cancel := context.WithTimeout(ctx, labelsFirst)
	defer cancel()
	for {
		labels, err := ask(ctx)
		if err == nil {
			s.takeLabels(labels)
			return
		}
		if sleep.For(ctx, time.Second); ctx.Err() == nil {
			continue
		}
		s.labelsUnknown(err)
		data, err := os.ReadFile(filepath.Join(s.Options.Dirs.Dir, ownLabels))
		if err == nil {
			err = json.Unmarshal(data, &labels)
		}
		if err == nil {
			s.own.Store(&labels)
		} else if !errors.Is(err, fs.ErrNotExist) {
			s.Log.Warn("failed to read node labels of the last run", "error", err.Error())
		}
		return
	}
}

// WatchLabels keeps them, and has the pool chosen again when they change, until ctx ends.
func (s *Source) WatchLabels(ctx context.Context, ask func(context.Context) (map[string]string, error)) {
	for sleep.For(ctx, labelsEvery); ctx.Err() == nil; sleep.For(ctx, labelsEvery) {
		labels, err := ask(ctx)
		if err != nil {
			s.labelsUnknown(err)
			continue
		}
		if !s.takeLabels(labels) {
			continue
		}
		select {
		case s.relabelled <- struct{}{}:
		case <-ctx.Done():
		}
	}
}

func (s *Source) labelsUnknown(err error) {
	s.Runtime.Conditions.Set(conditions.PoolLabels, "the node's pool is chosen by labels of before: "+err.Error())
}

// takeLabels reports whether they are others than before.
func (s *Source) takeLabels(labels map[string]string) bool {
	s.Runtime.Conditions.Set(conditions.PoolLabels, "")
	if own := s.own.Load(); own != nil && maps.Equal(*own, labels) {
		return false
	}
	labels = maps.Clone(labels)
	s.own.Store(&labels)
	data, err := json.Marshal(labels)
	if err == nil {
		err = atomicfile.Write(filepath.Join(s.Options.Dirs.Dir, ownLabels), data, 0o600)
	}
	if err != nil {
		s.Log.Warn("failed to save node labels", "error", err.Error())
	}
	return true
}

// choosePool applies the config again if it has another pool for the node's labels now.
func (s *Source) choosePool() {
	if len(s.applied.Files) == 0 {
		return
	}
	c := s.candidate(s.applied.From, s.applied.Files)
	switch {
	case c.Err != nil:
		s.refuseConfig(c, false)
	case c.Pool.Name != s.Runtime.Settings().Pool().Name:
		s.Log.Info("node changed its pool because of new labels", "pool", c.Pool.Name)
		s.useConfig(c)
	}
}
