// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package run

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	nodeapi "github.com/kerf-gpu/kerf/api/node/v1alpha1"
	"github.com/kerf-gpu/kerf/internal/atomicfile"
	"github.com/kerf-gpu/kerf/internal/present"
	"github.com/kerf-gpu/kerf/sharing"
)

// runStatus is the content of --status-file. Error is null while the command runs.
type runStatus struct {
	State       string   `json:"state"`
	ID          string   `json:"id"`
	Name        string   `json:"name"`
	GPUs        []string `json:"gpus"`
	MemoryBytes uint64   `json:"memoryBytes"`
	Percent     uint32   `json:"percent"`
	Level       string   `json:"level"`
	LevelReason string   `json:"levelReason"`
	Backend     string   `json:"backend"`
	Cgroup      string   `json:"cgroup"`
	PID         int      `json:"pid"`
	Error       *string  `json:"error"`
}

// statusFile is where a run says what became of it; without a path it says nothing.
type statusFile struct{ path string }

// writable refuses a path that cannot be written later, when a grant would hang on it.
func (f *statusFile) writable() error {
	bad := func(err error) error {
		return sharing.Invalid("--status-file", f.path, "name a file in a directory that you may write to",
			"cannot be written: %v", err)
	}
	if f.path == "" {
		return nil
	}
	switch st, err := os.Lstat(f.path); {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return bad(err)
	case !st.Mode().IsRegular():
		return bad(errors.New("it is there and is no regular file"))
	}
	if base := filepath.Base(f.path); base == "." || base == ".." || os.IsPathSeparator(f.path[len(f.path)-1]) {
		return bad(errors.New("it is a directory"))
	}
	// Permissions do not tell all: on some file systems (proc) and on a full disk only trying does.
	probe, err := os.CreateTemp(filepath.Dir(f.path), ".kerf-probe-*")
	if err != nil {
		return bad(err)
	}
	if err := errors.Join(probe.Close(), os.Remove(probe.Name())); err != nil {
		return bad(err)
	}
	return nil
}

// clear removes what an earlier run left, so that a reader who finds the file finds this run's.
func (f *statusFile) clear() error {
	if f.path == "" {
		return nil
	}
	if err := os.Remove(f.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("clear status file: %w", err)
	}
	return nil
}

// running says that the command is about to run on g.
func (f *statusFile) running(g *nodeapi.Grant) error { return f.write("running", g, os.Getpid(), nil) }

// runningAs says that the command runs on g, as another process than this.
func (f *statusFile) runningAs(g *nodeapi.Grant, pid int) error {
	return f.write("running", g, pid, nil)
}

// refused writes why there is no grant. It does not write to a status file that is itself the error.
func (f *statusFile) refused(why error) error {
	if f.writable() == nil {
		return f.write("refused", nil, os.Getpid(), why)
	}
	return nil
}

func (f *statusFile) write(state string, grant *nodeapi.Grant, pid int, why error) error {
	if f.path == "" {
		return nil
	}
	g := present.FromGrant(grant)
	s := runStatus{
		State: state, ID: g.ID, Name: g.Name, GPUs: g.GPUs, MemoryBytes: g.MemoryBytes, Percent: g.Percent,
		Level: g.Level, LevelReason: g.LevelReason, Backend: g.Backend, Cgroup: g.Cgroup, PID: pid,
	}
	if why != nil {
		text := why.Error()
		s.Error = &text
	}
	b, err := present.JSON(s, true)
	if err != nil {
		return err
	}
	if err := atomicfile.Write(f.path, b, 0o644); err != nil {
		return fmt.Errorf("write status file: %w", err)
	}
	return nil
}
