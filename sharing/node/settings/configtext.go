// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package settings

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/config"
	"github.com/kerf-gpu/kerf/sharing/config/change"
)

// LastGood is the copy of the last applied config, for an agent that starts while the config is bad.
const LastGood = "config.last-good.yaml"

// readFiles reads a config from a file, or from all files of a folder.
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
		return nil, fmt.Errorf("folder %q has no config file: %w", path, fs.ErrNotExist)
	}
	return files, nil
}

// fileCandidate checks the config that --config names.
func (s *Source) fileCandidate() change.Candidate {
	files, err := readFiles(s.Options.Source.File)
	if err != nil {
		return change.Candidate{From: s.Options.Source.File, Hash: "unreadable", Err: err}
	}
	return s.candidate(s.Options.Source.File, files)
}

// First applies the config that --config names at once, or the last known good one if that has errors. It returns the
// hash of what it read.
func (s *Source) First() string {
	if s.Options.Source.File == "" && s.Options.Source.Map == "" {
		return ""
	}
	c := change.Candidate{From: s.Options.Source.File, Err: fmt.Errorf("configmap %s has not been read yet: %w",
		s.Options.Source.Map, sharing.ErrUnavailable)}
	if s.Options.Source.File != "" {
		c = s.fileCandidate()
	}
	if c.Err == nil {
		s.useConfig(c)
		return c.Hash
	}
	s.refuseConfig(c, true)
	return c.Hash
}

// idleRule is a warning of a rule for compute that no backend of the pool enforces. The same for a rule for some of its
// GPUs.
func idleRule(c config.Config, pool config.Pool) string {
	if pool.ComputePolicy != config.ComputeStrict || pool.Mode == config.ModeWhole {
		return ""
	}
	who := ""
	if slices.ContainsFunc(c.BackendsOf(pool, ""), sharing.Backend.LimitsTime) {
		i := slices.IndexFunc(pool.GPURules, func(r config.GPURule) bool {
			own := r.Settings.Backends.List()
			return own != nil && !slices.ContainsFunc(own, sharing.Backend.LimitsTime)
		})
		if i < 0 {
			return ""
		}
		who = fmt.Sprintf("its gpuRules[%d] ", i)
	}
	return fmt.Sprintf("pool %q says computePolicy: strict, and %slists no backend that holds a share of a GPU to its "+
		"percent of time: libkerf and mps do", pool.Name, who)
}

// mpsRule is a warning of a pool that lists MPS on a node where it holds no pods; why is empty where it does.
func mpsRule(c config.Config, pool config.Pool, why string) string {
	if why == "" || pool.Mode == config.ModeWhole || !c.ListsMPS(pool) {
		return ""
	}
	return fmt.Sprintf("pool %q lists mps, which holds no pods here, so that the next backend does: %s; run the "+
		"agent as a service of the node (deploy/service/kerf-agent.service)", pool.Name, why)
}

// refuseConfig reports every error, and keeps or restores the last known good config.
func (s *Source) refuseConfig(c change.Candidate, first bool) {
	mistakes := strings.Split(c.Err.Error(), "\n")
	for _, m := range mistakes {
		s.Log.Error("config rejected", "from", c.From, "error", m)
	}
	s.Events.ConfigRefused()
	if first {
		kept := filepath.Join(s.State, LastGood)
		data, err := os.ReadFile(kept) // #nosec G304 -- below --run-dir or --state-dir
		if err == nil {
			good := s.candidate(kept, config.Current([]config.File{{Name: LastGood, Data: data}}))
			if err = good.Err; err == nil {
				s.apply(good)
			}
		}
		if err == nil {
			s.Log.Warn("kept the last known good config", "file", kept)
			first = false
		} else if !errors.Is(err, os.ErrNotExist) {
			mistakes = append(mistakes, fmt.Sprintf("%s: %v", kept, err))
		}
	}
	s.Runtime.Conditions.RejectConfig(mistakes, first)
	s.Runtime.Notify.Audit.Config("", "", "", mistakes)
	s.configNews.refused(mistakes)
}
