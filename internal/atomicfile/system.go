// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package atomicfile

import (
	"errors"
	"io/fs"
	"os"
)

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
