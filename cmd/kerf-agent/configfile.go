// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/kerf-gpu/kerf/internal/atomicfile"
	"github.com/kerf-gpu/kerf/sharing/config"
	"github.com/kerf-gpu/kerf/sharing/node"
)

// configEvery is how often the document is read again. A mounted ConfigMap changes by a swapped link, which
// file events tell of only in part; reading a few kilobytes costs nothing.
const configEvery = 2 * time.Second

// lastGood is the copy of the last document in force, for an agent that starts while the document is bad.
const lastGood = "config.last-good.yaml"

// followConfig reads the document again and again; seen is the hash of what was read before.
func (a *agent) followConfig(ctx context.Context, seen string) error {
	if a.config == "" {
		return nil
	}
	t := time.NewTicker(configEvery)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-t.C:
			seen = a.loadConfig(seen)
		}
	}
}

// loadConfig reads the document, and puts it in force if it is new and has no mistake. It returns the hash
// of what it read. The first call (seen empty) falls back to the last good copy.
func (a *agent) loadConfig(seen string) string {
	if a.config == "" {
		return ""
	}
	data, err := os.ReadFile(a.config)
	hash := "unreadable"
	if err == nil {
		sum := sha256.Sum256(data)
		hash = hex.EncodeToString(sum[:])
	}
	if hash == seen {
		return seen
	}
	if err == nil {
		err = a.useConfig(data, hash)
	}
	if err == nil {
		if err := atomicfile.Write(filepath.Join(a.dir, lastGood), data, 0o600); err != nil {
			a.log.Warn("last good configuration not kept", "error", err.Error())
		}
		a.log.Info("configuration in force", "file", a.config, "sha256", hash)
		return hash
	}
	a.refuseConfig(err, seen == "")
	return hash
}

func (a *agent) useConfig(data []byte, hash string) error {
	c, err := config.Decode(data)
	if err != nil {
		return err
	}
	pool, err := c.PoolFor(a.labels)
	if err != nil {
		return err
	}
	a.pool.Store(&pool)
	prices := c.Prices()
	a.prices.Store(&prices)
	a.runtime.SetWarning("compute", idleRule(c, pool))
	if a.kubernetes {
		without := mpsRule(c, pool, noMPSForPods())
		a.runtime.SetWarning("mps", without)
		if without != "" {
			a.log.Warn("pods are not held by mps", "reason", without)
		}
	}
	a.runtime.SetConfig(c, pool, node.ConfigSource{File: a.config, SHA256: hash})
	return nil
}

// idleRule is a warning of a rule for compute that no backend of the pool carries out.
func idleRule(c config.Config, pool config.Pool) string {
	carries := func(b config.Backend) bool { return b == config.BackendLibkerf || b == config.BackendMPS }
	if pool.Compute != config.ComputeStrict || pool.Mode == config.ModeWhole || slices.ContainsFunc(c.BackendsOf(pool, ""), carries) {
		return ""
	}
	return fmt.Sprintf("pool %q says compute: strict, and lists no backend that holds a share of a GPU to its percent of time: libkerf and mps do", pool.Name)
}

// mpsRule is a warning of a pool that lists MPS on a node where it holds no pods; why is empty where it does.
func mpsRule(c config.Config, pool config.Pool, why string) string {
	if why == "" || pool.Mode == config.ModeWhole || !slices.Contains(c.BackendsOf(pool, ""), config.BackendMPS) {
		return ""
	}
	return fmt.Sprintf("pool %q lists mps, which holds no pods here, so that the next backend does: %s; run the agent as a service of the node (deploy/service/kerf-agent.service)", pool.Name, why)
}

// refuseConfig tells every mistake, and keeps or brings back the last good document.
func (a *agent) refuseConfig(err error, first bool) {
	mistakes := strings.Split(err.Error(), "\n")
	for _, m := range mistakes {
		a.log.Error("configuration refused", "file", a.config, "mistake", m)
	}
	a.events.ConfigRefused()
	if first {
		kept := filepath.Join(a.dir, lastGood)
		data, rerr := os.ReadFile(kept)
		if rerr == nil {
			sum := sha256.Sum256(data)
			rerr = a.useConfig(data, hex.EncodeToString(sum[:]))
		}
		if rerr == nil {
			a.log.Warn("the last good configuration stays in force", "file", kept)
			first = false
		} else if !errors.Is(rerr, os.ErrNotExist) {
			mistakes = append(mistakes, fmt.Sprintf("%s: %v", kept, rerr))
		}
	}
	a.runtime.RefuseConfig(mistakes, first)
}
