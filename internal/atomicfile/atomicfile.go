// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package atomicfile replaces a file's content atomically. A reader, and the machine after a crash, sees either all of
// the old content or all of the new.
//
// Covered: a crash or kill of the writer at any step, a full disk, and a reader that opens the file meanwhile. A power
// loss is covered, too: file and directory are flushed before Write returns nil. A symlink at the path is replaced,
// never followed. After an error the old file stands, with one exception that the error names. When only the last step,
// flushing the directory, fails, the new content is in place, but a power loss may bring the old one back.
//
// Not covered: two writers of one path. Each leaves a whole file, and the later rename wins; a caller that cares holds
// a lock. Also not covered are a disk that lies about flushing, and ownership and extended attributes of the old file.
//
// containerd's pkg/atomicfile cannot replace this package. It does not flush the directory. Its temporary files have no
// prefix by which CleanTemp could know them. It has no step between flush and rename, which Generations needs.
package atomicfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/kerf-gpu/kerf/sharing"
)

// tempPrefix begins the name of every temporary file, so that CleanTemp can tell them from all others.
const tempPrefix = ".kerf-tmp-"

// Write makes data the content of path, with exactly the permission bits of mode, whatever the umask. The
// directory must exist. Errors wrap sharing.ErrUnavailable (no space, I/O), sharing.ErrDenied or
// sharing.ErrNotFound (no such directory), and the system's own error.
func Write(path string, data []byte, mode fs.FileMode) error {
	return write(system{}, path, data, mode)
}

// CleanTemp removes from dir what writers that were killed left behind. Call it at start, while no Write to
// dir can be in flight (under the lock that makes the caller the only writer). Only regular files are
// removed.
func CleanTemp(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("list directory %q: %w", dir, classify(err))
	}
	var errs []error
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), tempPrefix) || !e.Type().IsRegular() {
			continue
		}
		if err := os.Remove(filepath.Join(dir, e.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, fmt.Errorf("remove leftover %q: %w", e.Name(), classify(err)))
		}
	}
	return errors.Join(errs...)
}

// write is Write over a filesystem that tests can make fail.
func write(sys filesystem, path string, data []byte, mode fs.FileMode) (err error) {
	dir, base := filepath.Split(path)
	if base == "" || base == "." || base == ".." {
		return fmt.Errorf("write file %q: not a file name: %w", path, sharing.ErrInvalid)
	}
	if dir == "" {
		dir = "."
	}
	f, err := sys.create(dir, tempPrefix+base+"-*")
	if err != nil {
		return fmt.Errorf("create temporary file for %q: %w", path, classify(err))
	}
	open, placed := true, false
	defer func() {
		if open {
			err = errors.Join(err, f.Close())
		}
		if !placed {
			// The error that brought us here matters more than a leftover, which CleanTemp removes.
			_ = sys.remove(f.Name())
		}
	}()
	// The name is opened to others only when the content is whole; the temporary file is 0600 until here.
	if _, err := f.Write(data); err != nil {
		return fmt.Errorf("write temporary file for %q: %w", path, classify(err))
	}
	if err := f.Chmod(mode.Perm()); err != nil {
		return fmt.Errorf("set mode of %q: %w", path, classify(err))
	}
	if err := f.Sync(); err != nil {
		return fmt.Errorf("flush %q: %w", path, classify(err))
	}
	open = false
	if err := f.Close(); err != nil {
		return fmt.Errorf("close temporary file for %q: %w", path, classify(err))
	}
	if err := sys.rename(f.Name(), path); err != nil {
		return fmt.Errorf("rename onto %q: %w", path, classify(err))
	}
	placed = true
	if err := sys.syncDir(dir); err != nil {
		return fmt.Errorf("flush directory of %q (new content is in place, but may not survive a power loss): %w", path,
			classify(err))
	}
	return nil
}

// classify adds the word of the vocabulary that the system's error means. It keeps what happened and not where. The
// temporary file has another name each time, and an error that lasts must have the same text.
func classify(err error) error {
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		err = errno
	}
	word := sharing.ErrUnavailable
	switch {
	case errors.Is(err, fs.ErrNotExist):
		word = sharing.ErrNotFound
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):
		word = sharing.ErrDenied
	}
	return fmt.Errorf("%w (%w)", err, word)
}

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
	err := os.Link(path, temp)
	if errors.Is(err, fs.ErrExist) { // a crash left it
		if err := os.Remove(temp); err != nil {
			return err
		}
		err = os.Link(path, temp)
	}
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

// filesystem is the part of the operating system that Write uses.
type filesystem interface {
	create(dir, pattern string) (file, error)
	rename(from, to string) error
	remove(path string) error
	syncDir(dir string) error
}

// file is the part of *os.File that Write uses.
type file interface {
	Name() string
	Write([]byte) (int, error)
	Chmod(fs.FileMode) error
	Sync() error
	Close() error
}

// system is the real one.
type system struct{}

func (system) create(dir, pattern string) (file, error) {
	f, err := os.CreateTemp(dir, pattern)
	if err != nil {
		return nil, err // a nil *os.File must not become a non-nil file
	}
	return f, nil
}

func (system) rename(from, to string) error { return os.Rename(from, to) }

func (system) remove(path string) error { return os.Remove(path) }

func (system) syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
