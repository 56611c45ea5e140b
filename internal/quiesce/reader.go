// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package quiesce

import (
	"errors"
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/kerf-gpu/kerf/sharing"
)

// Reader reads GPUs of a folder's. It keeps the files open, so that a read costs two system calls or four. It is safe
// for concurrent use. Its owner closes it.
type Reader struct {
	dir Dir

	mu    sync.Mutex
	files map[sharing.GPUID]*files
}

// files are a GPU's. The lock on use is held while holds is above 0.
type files struct {
	use, ask *os.File
	holds    int
}

// Reader makes one that holds nothing.
func (d Dir) Reader() *Reader { return &Reader{dir: d, files: map[sharing.GPUID]*files{}} }

// Read begins to read a GPU, and done, which is called once, ends it. The error wraps sharing.ErrUnavailable while
// another program asks for the GPU. Then the caller must not read it, and must release what it has of it.
func (r *Reader) Read(gpu sharing.GPUID) (done func(), err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f, err := r.open(gpu)
	if err != nil {
		return nil, err
	}
	if f == nil {
		return func() {}, nil
	}
	if f.holds == 0 {
		if err := shared(f.use); err != nil {
			return nil, refused(gpu, err)
		}
	}
	// Who asks now waits for what is held, and is seen at the next read.
	err = shared(f.ask)
	if err == nil {
		err = unix.Flock(int(f.ask.Fd()), unix.LOCK_UN)
	}
	if err != nil {
		if f.holds == 0 {
			err = errors.Join(err, unix.Flock(int(f.use.Fd()), unix.LOCK_UN))
		}
		return nil, refused(gpu, err)
	}
	f.holds++
	return func() { r.done(f) }, nil
}

// shared takes a shared lock, or fails at once.
func shared(f *os.File) error { return unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB) }

// refused says why a GPU is not read.
func refused(gpu sharing.GPUID, err error) error {
	if errors.Is(err, unix.EWOULDBLOCK) {
		return asked(gpu)
	}
	return fmt.Errorf("lock of gpu %q: %w (%w)", string(gpu), err, sharing.ErrUnavailable)
}

func (r *Reader) done(f *files) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if f.holds--; f.holds == 0 {
		_ = unix.Flock(int(f.use.Fd()), unix.LOCK_UN) // of a file that is closed nothing is held
	}
}

// open finds a GPU's files; there are none while there is no folder.
func (r *Reader) open(gpu sharing.GPUID) (*files, error) {
	if f := r.files[gpu]; f != nil {
		return f, nil
	}
	if _, err := os.Stat(string(r.dir)); errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	use, err := r.dir.open(gpu, "use")
	if err != nil {
		return nil, err
	}
	ask, err := r.dir.open(gpu, "ask")
	if err != nil {
		return nil, errors.Join(err, use.Close())
	}
	f := &files{use: use, ask: ask}
	r.files[gpu] = f
	return f, nil
}

// Close lets go of all.
func (r *Reader) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	var errs []error
	for gpu, f := range r.files {
		errs = append(errs, f.use.Close(), f.ask.Close())
		delete(r.files, gpu)
	}
	return errors.Join(errs...)
}
