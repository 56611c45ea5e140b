// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package mps

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/kerf-gpu/kerf/internal/atomicfile"
	"github.com/kerf-gpu/kerf/sharing"
)

const (
	// plainRecord is the name of a daemon's record of version 1, in the daemon's folder.
	plainRecord, modeName = "daemon.json", "mode.json"
	plainVersion          = 1
	recordVersion         = 2
	modeVersion           = 1
	// recordSuffix follows the name of the folder in that of the record. The record lies outside the folder, where no
	// client can change it.
	recordSuffix = ".json"
	private      = 0o600
)

// daemonRecord is what is written down of a daemon.
type daemonRecord struct {
	Version int           `json:"version"`
	BootID  string        `json:"bootID"`
	GPU     sharing.GPUID `json:"gpu"`
	Domain  string        `json:"domain"`
	// Contained is Key's.
	Contained bool   `json:"contained,omitempty"`
	PID       int    `json:"pid"` // 0: it does not run yet
	Start     uint64 `json:"start"`
}

func (r daemonRecord) key() Key { return Key{GPU: r.GPU, Domain: r.Domain, Contained: r.Contained} }

// modeRecord is what is written down of a GPU before its mode is changed.
type modeRecord struct {
	Version int           `json:"version"`
	BootID  string        `json:"bootID"`
	GPU     sharing.GPUID `json:"gpu"`
	Before  string        `json:"before"`
}

// gpuDir is short, because sockets' addresses are: the first 48 bits of the UUID. The record distinguishes two GPUs of
// a node that share them.
func gpuDir(gpu sharing.GPUID) string {
	name := strings.TrimPrefix(string(gpu), "GPU-")
	return name[:min(len(name), 13)]
}

func (o Options) gpuPath(gpu sharing.GPUID) string { return filepath.Join(o.Dir, gpuDir(gpu)) }

// record is the path of a place's record.
func (p place) record() string {
	if p.plain {
		return filepath.Join(p.dir, plainRecord)
	}
	return p.dir + recordSuffix
}

// found is a daemon that is written down.
type found struct {
	daemonRecord
	place place
}

// records reads what is written down of daemons. What cannot be read is of none.
func (s *Supervisor) records() (map[Key]found, error) {
	now, err1 := filepath.Glob(filepath.Join(s.opt.Dir, "*", "*"+recordSuffix))
	plain, err2 := filepath.Glob(filepath.Join(s.opt.Dir, "*", "*", plainRecord))
	if err := errors.Join(err1, err2); err != nil {
		return nil, fmt.Errorf("look for MPS daemons: %w", err)
	}
	var errs []error
	all := map[Key]found{}
	for _, p := range append(plain, now...) {
		f := found{}
		version, name := recordVersion, strings.TrimSuffix(filepath.Base(p), recordSuffix)
		switch filepath.Base(p) {
		case modeName:
			continue
		case plainRecord:
			version, name = plainVersion, filepath.Base(filepath.Dir(p))
		}
		err := load(p, &f.daemonRecord)
		if err == nil && f.Version != version {
			err = fmt.Errorf("version %d: %w", f.Version, sharing.ErrInvalid)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("record of an MPS daemon %q is of no use: %w", p,
				errors.Join(err, sharing.ErrInvalid)))
			continue
		}
		f.place = s.opt.placeAt(f.key(), name)
		f.place.plain = version == plainVersion
		all[f.key()] = f
	}
	return all, errors.Join(errs...)
}

func save(path string, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("write %q: %w", path, err)
	}
	return atomicfile.Write(path, append(data, '\n'), private)
}

// load reads a record; sharing.ErrNotFound when there is none, sharing.ErrInvalid when it is none.
func load(path string, v any) error {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("read %q: %w", path, sharing.ErrNotFound)
	}
	if err != nil {
		return fmt.Errorf("read %q: %w (%w)", path, err, sharing.ErrUnavailable)
	}
	if err := json.Unmarshal(data, v); err != nil {
		return fmt.Errorf("read %q: %w (%w)", path, err, sharing.ErrInvalid)
	}
	return nil
}
