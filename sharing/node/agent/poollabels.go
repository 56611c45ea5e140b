// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package agent

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
)

const (
	// ownLabels are the labels that the node's object had last, for an agent that starts while the API server is away.
	ownLabels = "node-labels.json"
	// labelsFirst is how long the start waits for them, and labelsEvery how often they are asked for.
	labelsFirst = 10 * time.Second
	labelsEvery = 10 * time.Second
)

// poolLabels are those by which the node's pool is chosen: of its object, and over them what --node-label says.
func (a *agent) poolLabels() map[string]string {
	out := map[string]string{}
	if own := a.own.Load(); own != nil {
		maps.Copy(out, *own)
	}
	maps.Copy(out, a.opt.Source.Labels)
	return out
}

// firstLabels learns the labels of the node's object before its first document is read: else the node would be of another
// pool for a moment, and offer what that one does. ask asks the API server; where it does not answer, those of before count.
func (a *agent) firstLabels(ctx context.Context, ask func(context.Context) (map[string]string, error)) {
	ctx, cancel := context.WithTimeout(ctx, labelsFirst)
	defer cancel()
	for {
		labels, err := ask(ctx)
		if err == nil {
			a.takeLabels(labels)
			return
		}
		if sleep.For(ctx, time.Second); ctx.Err() == nil {
			continue
		}
		a.labelsUnknown(err)
		data, err := os.ReadFile(filepath.Join(a.opt.Dirs.Dir, ownLabels))
		if err == nil {
			err = json.Unmarshal(data, &labels)
		}
		if err == nil {
			a.own.Store(&labels)
		} else if !errors.Is(err, fs.ErrNotExist) {
			a.log.Warn("labels of the node of before not known", "error", err.Error())
		}
		return
	}
}

// followLabels keeps them, and has the pool chosen anew when they change, until ctx ends.
func (a *agent) followLabels(ctx context.Context, ask func(context.Context) (map[string]string, error)) {
	for sleep.For(ctx, labelsEvery); ctx.Err() == nil; sleep.For(ctx, labelsEvery) {
		labels, err := ask(ctx)
		if err != nil {
			a.labelsUnknown(err)
			continue
		}
		if !a.takeLabels(labels) {
			continue
		}
		select {
		case a.relabelled <- struct{}{}:
		case <-ctx.Done():
		}
	}
}

func (a *agent) labelsUnknown(err error) {
	a.runtime.SetWarning("pool-labels", "the node's pool is chosen by labels of before: "+err.Error())
}

// takeLabels reports whether they are others than before.
func (a *agent) takeLabels(labels map[string]string) bool {
	a.runtime.SetWarning("pool-labels", "")
	if own := a.own.Load(); own != nil && maps.Equal(*own, labels) {
		return false
	}
	labels = maps.Clone(labels)
	a.own.Store(&labels)
	data, err := json.Marshal(labels)
	if err == nil {
		err = atomicfile.Write(filepath.Join(a.opt.Dirs.Dir, ownLabels), data, 0o600)
	}
	if err != nil {
		a.log.Warn("labels of the node not kept", "error", err.Error())
	}
	return true
}

// choosePool puts the document in force anew where it has another pool for the node's labels now.
func (a *agent) choosePool() {
	if len(a.inForce.Files) == 0 {
		return
	}
	c := a.candidate(a.inForce.From, a.inForce.Files)
	switch {
	case c.Err != nil:
		a.refuseConfig(c, false)
	case c.Pool.Name != a.pool.Load().Name:
		a.log.Info("the node is of another pool, because its labels have changed", "pool", c.Pool.Name)
		a.useConfig(c)
	}
}
