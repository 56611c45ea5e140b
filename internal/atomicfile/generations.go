// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package atomicfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// The steps of Generations.Write, for crash tests. Each is reached when what its name says is done.
const (
	StepTemporary = "temporary" // the new content is in a temporary file, flushed
	StepPrevious  = "previous"  // the present content also is the previous one
	StepPlaced    = "placed"    // the new content is the present one
)

// Generations is a file that is kept with its content of before.
type Generations struct {
	// Path has the newest content, and Previous the one before. Both lie in one directory.
	Path, Previous string
	// At is called at each step, and may return an error to end the write there. It may be nil.
	At func(step string) error
}

// Write makes data the newest content, as the function Write does, and keeps what was there as the previous content. A
// crash at any step leaves either the two contents of before, or the new one and the newest of before.
func (g Generations) Write(data []byte, mode fs.FileMode) error {
	return write(generations{Generations: g}, g.Path, data, mode)
}

// generations is the real filesystem, in which a rename onto a path keeps what was there.
type generations struct {
	system
	Generations
}

func (g generations) rename(from, to string) error {
	if err := g.at(StepTemporary); err != nil {
		return err
	}
	if err := keep(to, g.Previous); err != nil {
		return fmt.Errorf("keep as %q: %w", filepath.Base(g.Previous), err)
	}
	if err := g.at(StepPrevious); err != nil {
		return err
	}
	if err := g.system.rename(from, to); err != nil {
		return err
	}
	return g.at(StepPlaced)
}

func (g generations) at(step string) error {
	if g.At == nil {
		return nil
	}
	return g.At(step)
}

// keep makes previous another name of path, so that the content has a name at each instant. Where the filesystem has no
// links, the content moves.
func keep(path, previous string) error {
	temp := filepath.Join(filepath.Dir(previous), tempPrefix+filepath.Base(previous))
	if err := os.Remove(temp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	err := os.Link(path, temp)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil // there was nothing
	case errors.Is(err, syscall.EPERM), errors.Is(err, syscall.EOPNOTSUPP), errors.Is(err, syscall.EMLINK):
		return os.Rename(path, previous)
	case err != nil:
		return err
	}
	return os.Rename(temp, previous)
}
