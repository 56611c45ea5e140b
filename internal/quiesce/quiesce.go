// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package quiesce lets one process ask others to let go of a GPU for a moment. The agent does so before a MIG instance
// or a MIG mode ends. The monitor has handles that the driver may take for a use.
//
// A folder has two files for each GPU, on which flock(2) is taken; their content means nothing. A reader has a shared
// lock on "<UUID>.use" while it reads the GPU. A program that needs the GPU alone takes an exclusive lock on
// "<UUID>.ask", and then waits for one on "<UUID>.use". Before each read, a reader checks "ask": if it is locked, the
// reader releases its lock and reads nothing. Do not remove the files: readers would lock a file that no other program
// sees.
//
// Library stands for all GPUs at once, and for any use of the driver's library. A program that resets a GPU asks for
// it, because a reset needs more than that no program reads.
//
// It promises that no ended process blocks others: locks end with their process. It does not promise that a reader
// releases its lock: Ask names the lock that is still taken, and its caller decides. Nothing from a tenant reaches the
// folder.
package quiesce

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kerf-gpu/kerf/sharing"
)

// Dir is the folder. It need not exist before Quiesce; without it, no request exists for readers.
type Dir string

// Library is asked for like a GPU: until it is given back, no reader has the driver's library open.
const Library = sharing.GPUID("library")

// poll is how often a lock that is taken is tried again.
const poll = 20 * time.Millisecond

// Quiesce waits until the readers of the GPU have released it. They read nothing of it until the call of release. The
// error wraps sharing.ErrUnavailable if one has not released it by the end of ctx, or if another program asks.
func (d Dir) Quiesce(ctx context.Context, gpu sharing.GPUID) (release func(), err error) {
	if err := os.MkdirAll(string(d), 0o700); err != nil {
		return nil, fmt.Errorf("quiesce gpu %q: %w (%w)", string(gpu), err, sharing.ErrUnavailable)
	}
	ask, err := d.open(gpu, "ask")
	if err != nil {
		return nil, err
	}
	use, err := d.open(gpu, "use")
	if err != nil {
		return nil, errors.Join(err, ask.Close())
	}
	release = func() { _ = errors.Join(use.Close(), ask.Close()) }
	for _, f := range []*os.File{ask, use} {
		if err := lock(ctx, f); err != nil {
			release()
			return nil, fmt.Errorf("quiesce gpu %q: another process has locked %s: %w", string(gpu), f.Name(), err)
		}
	}
	return release, nil
}

func asked(gpu sharing.GPUID) error {
	return fmt.Errorf("read gpu %q: kerf-agent changes its MIG instances: %w", string(gpu), sharing.ErrUnavailable)
}

func (d Dir) open(gpu sharing.GPUID, kind string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(string(d), filepath.Base(string(gpu))+"."+kind), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock of gpu %q: %w (%w)", string(gpu), err, sharing.ErrUnavailable)
	}
	return f, nil
}

// lock takes the lock alone.
func lock(ctx context.Context, f *os.File) error {
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		switch {
		case err == nil:
			return nil
		case !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR):
			return fmt.Errorf("%w (%w)", err, sharing.ErrUnavailable)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w (%w)", ctx.Err(), sharing.ErrUnavailable)
		case <-time.After(poll):
		}
	}
}
