// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package applied

import (
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"os"

	"github.com/kerf-gpu/kerf/internal/atomicfile"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/config"
)

// File is the name of the file with what each GPU has: an agent that starts reads there what GPUs in use keep.
const File = "gpu-rules.json"

// file is where it is, and what it holds. An empty path is no file.
type file struct {
	path string
	onDisk
}

// onDisk is the form on disk.
type onDisk struct {
	Boot string                               `json:"boot"`
	GPUs map[sharing.GPUID]config.GPUSettings `json:"gpus"`
}

// Load reads what the GPUs had before, and keeps the file from then on. A file of another boot does not count. Call
// Load before Apply.
func (s *Settings) Load(path, boot string) {
	s.saving.Lock()
	defer s.saving.Unlock()
	s.file = file{path, onDisk{Boot: boot}}
	data, err := os.ReadFile(path) // #nosec G304 -- below --run-dir
	var f onDisk
	if err == nil {
		err = json.Unmarshal(data, &f)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		s.log.Warn("failed to read GPU settings of the last run", "error", err.Error())
	case f.Boot == boot && f.GPUs != nil:
		s.file.GPUs = f.GPUs
		s.mu.Lock()
		s.has = maps.Clone(f.GPUs)
		s.mu.Unlock()
	}
}

// save writes the file if the GPUs have other settings than it says.
func (s *Settings) save() {
	s.saving.Lock()
	defer s.saving.Unlock()
	s.mu.Lock()
	has := maps.Clone(s.has)
	s.mu.Unlock()
	if s.file.path == "" || maps.Equal(has, s.file.GPUs) {
		return
	}
	data, err := json.Marshal(onDisk{s.file.Boot, has})
	if err == nil {
		err = atomicfile.Write(s.file.path, data, 0o600)
	}
	if err != nil {
		s.log.Warn("failed to save GPU settings", "error", err.Error())
		return
	}
	s.file.GPUs = has
}
