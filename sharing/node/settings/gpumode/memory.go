// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package gpumode

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/kerf-gpu/kerf/internal/atomicfile"
	"github.com/kerf-gpu/kerf/sharing"
)

const schema = 1

// memory is the file: what the GPUs had before.
type memory struct {
	Schema int    `json:"schema"`
	Boot   string `json:"boot"`
	// GPUs has, for each GPU, an entry for each setting that was changed.
	GPUs map[sharing.GPUID]map[string]*change `json:"gpus"`
}

// change is one setting of one GPU.
type change struct {
	// Before is what was there.
	Before string `json:"before"`
	// SetByKerf is all that was set here since.
	SetByKerf []string `json:"ours"`
}

// load reads the file. What is of another boot is gone from the GPUs, too. A file that cannot be read is put aside:
// what it said is lost, and nothing is put back.
func (k *Manager) load() error {
	k.memory = memory{Schema: schema, Boot: k.boot, GPUs: map[sharing.GPUID]map[string]*change{}}
	data, err := os.ReadFile(k.path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read what GPUs had before: %w (%w)", err, sharing.ErrUnavailable)
	}
	var m memory
	if err := json.Unmarshal(data, &m); err != nil || m.Schema != schema {
		k.log.Error("failed to read previous GPU settings", "file", k.path, "error", fmt.Sprint(err), "schema",
			m.Schema)
		if err := os.Rename(k.path, k.path+".damaged"); err != nil {
			return fmt.Errorf("put a damaged file aside: %w (%w)", err, sharing.ErrUnavailable)
		}
		return nil
	}
	if m.Boot == k.boot && m.GPUs != nil {
		k.memory = m
	}
	return nil
}

// save writes the file.
func (k *Manager) save() error {
	data, err := json.MarshalIndent(k.memory, "", "  ")
	if err == nil {
		err = atomicfile.Write(k.path, append(data, '\n'), 0o600)
	}
	if err != nil {
		return fmt.Errorf("note what GPUs had before: %w", err)
	}
	return nil
}

// of returns what is remembered of a GPU's setting, or nil.
func (m *memory) of(id sharing.GPUID, setting string) *change { return m.GPUs[id][setting] }

// note remembers what was there, unless it is known already, and what is about to be set; it tells whether that is
// new.
func (m *memory) note(id sharing.GPUID, setting, before, want string) bool {
	c := m.of(id, setting)
	if c == nil {
		c = &change{Before: before}
		if m.GPUs[id] == nil {
			m.GPUs[id] = map[string]*change{}
		}
		m.GPUs[id][setting] = c
	}
	if slices.Contains(c.SetByKerf, want) {
		return false
	}
	c.SetByKerf = append(c.SetByKerf, want)
	return true
}

// forget drops what is remembered of a GPU's setting.
func (m *memory) forget(id sharing.GPUID, setting string) {
	delete(m.GPUs[id], setting)
	if len(m.GPUs[id]) == 0 {
		delete(m.GPUs, id)
	}
}
