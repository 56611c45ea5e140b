// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/kerf-gpu/kerf/internal/atomicfile"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/config"
	"github.com/kerf-gpu/kerf/sharing/config/change"
	"github.com/kerf-gpu/kerf/sharing/node"
)

// lastGood is the copy of the last document in force, for an agent that starts while the document is bad.
const lastGood = "config.last-good.yaml"

// readFiles reads a document from a file, or from all files of a folder.
func readFiles(path string) ([]config.File, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err //nolint:wrapcheck // it names the path
	}
	if !info.IsDir() {
		data, err := os.ReadFile(path) // #nosec G304 -- the path is a flag
		return []config.File{{Name: filepath.Base(path), Data: data}}, err
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, err //nolint:wrapcheck // it names the path
	}
	var files []config.File
	for _, e := range entries {
		if !config.IsFile(e.Name()) || strings.HasPrefix(e.Name(), ".") {
			continue
		}
		data, err := os.ReadFile(filepath.Join(path, e.Name())) // #nosec G304 -- the path is a flag
		if err != nil {
			return nil, err //nolint:wrapcheck // it names the path
		}
		files = append(files, config.File{Name: e.Name(), Data: data})
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("folder %q has no file of a document: %w", path, fs.ErrNotExist)
	}
	return files, nil
}

// candidate checks a document.
func (a *agent) candidate(from string, files []config.File) change.Candidate {
	c := change.Candidate{From: from, Hash: config.Hash(files), Files: files}
	if c.Config, c.Err = config.DecodeFiles(files...); c.Err != nil {
		return c
	}
	c.Pool, c.Err = c.Config.PoolFor(a.poolLabels())
	return c
}

// fileCandidate checks the document that --config names.
func (a *agent) fileCandidate() change.Candidate {
	files, err := readFiles(a.opt.Source.File)
	if err != nil {
		return change.Candidate{From: a.opt.Source.File, Hash: "unreadable", Err: err}
	}
	return a.candidate(a.opt.Source.File, files)
}

// firstConfig puts the document that --config names in force at once, or the last good one where that has mistakes. It
// returns the hash of what it read.
func (a *agent) firstConfig() string {
	if a.opt.Source.File == "" && a.opt.Source.Map == "" {
		return ""
	}
	c := change.Candidate{From: a.opt.Source.File, Err: fmt.Errorf("configmap %s has not been read yet: %w", a.opt.Source.Map, sharing.ErrUnavailable)}
	if a.opt.Source.File != "" {
		c = a.fileCandidate()
	}
	if c.Err == nil {
		a.useConfig(c)
		return c.Hash
	}
	a.refuseConfig(c, true)
	return c.Hash
}

// useConfig puts a valid document in force, and keeps a copy of it.
func (a *agent) useConfig(c change.Candidate) {
	a.keepGood(c) // first: whoever sees it in force may end the agent, and the next one is to find it
	a.putInForce(c)
	a.log.Info("configuration in force", "from", c.From, "sha256", c.Hash)
}

// keepGood writes the document down, for a start with one that has mistakes.
func (a *agent) keepGood(c change.Candidate) {
	data := c.Files[0].Data
	if len(c.Files) > 1 {
		text, err := c.Config.Encode()
		if err != nil {
			a.log.Warn("last good configuration not kept", "error", err.Error())
			return
		}
		data = text
	}
	if err := atomicfile.Write(filepath.Join(a.state, lastGood), data, 0o600); err != nil {
		a.log.Warn("last good configuration not kept", "error", err.Error())
	}
}

func (a *agent) putInForce(c change.Candidate) {
	pool := c.Pool
	a.inForce = c
	a.events.ConfigApplied()
	a.pool.Store(&pool)
	prices := c.Config.PricesIn(pool)
	a.prices.Store(&prices)
	a.runtime.SetWarning("compute", idleRule(c.Config, pool))
	if a.opt.Cluster.Serve {
		without := mpsRule(c.Config, pool, noMPSForPods())
		a.runtime.SetWarning("mps", without)
		if without != "" {
			a.log.Warn("pods are not held by mps", "reason", without)
		}
	}
	a.runtime.SetConfig(c.Config, pool, node.ConfigSource{File: c.From, SHA256: c.Hash})
	a.configNews.inForce(c.Hash)
}

// idleRule is a warning of a rule for compute that no backend of the pool, or of a rule for some of its GPUs, carries out.
func idleRule(c config.Config, pool config.Pool) string {
	carries := func(b config.Backend) bool { return b == config.BackendLibkerf || b == config.BackendMPS }
	if pool.Compute != config.ComputeStrict || pool.Mode == config.ModeWhole {
		return ""
	}
	who := ""
	if slices.ContainsFunc(c.BackendsOf(pool, ""), carries) {
		i := slices.IndexFunc(pool.GPUs, func(r config.GPURule) bool {
			own := r.Settings.Backends.List()
			return own != nil && !slices.ContainsFunc(own, carries)
		})
		if i < 0 {
			return ""
		}
		who = fmt.Sprintf("its gpus[%d] ", i)
	}
	return fmt.Sprintf("pool %q says compute: strict, and %slists no backend that holds a share of a GPU to its percent of time: libkerf and mps do", pool.Name, who)
}

// mpsRule is a warning of a pool that lists MPS on a node where it holds no pods; why is empty where it does.
func mpsRule(c config.Config, pool config.Pool, why string) string {
	if why == "" || pool.Mode == config.ModeWhole || !c.Lists(pool, config.BackendMPS) {
		return ""
	}
	return fmt.Sprintf("pool %q lists mps, which holds no pods here, so that the next backend does: %s; run the agent as a service of the node (deploy/service/kerf-agent.service)", pool.Name, why)
}

// refuseConfig tells every mistake, and keeps or brings back the last good document.
func (a *agent) refuseConfig(c change.Candidate, first bool) {
	mistakes := strings.Split(c.Err.Error(), "\n")
	for _, m := range mistakes {
		a.log.Error("configuration refused", "from", c.From, "mistake", m)
	}
	a.events.ConfigRefused()
	if first {
		kept := filepath.Join(a.state, lastGood)
		data, err := os.ReadFile(kept) // #nosec G304 -- below --dir or --state-dir
		if err == nil {
			good := a.candidate(kept, []config.File{{Name: lastGood, Data: data}})
			if err = good.Err; err == nil {
				a.putInForce(good)
			}
		}
		if err == nil {
			a.log.Warn("the last good configuration stays in force", "file", kept)
			first = false
		} else if !errors.Is(err, os.ErrNotExist) {
			mistakes = append(mistakes, fmt.Sprintf("%s: %v", kept, err))
		}
	}
	a.runtime.RefuseConfig(mistakes, first)
	a.configNews.refused(mistakes)
}
