// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package filelock keeps a second kerf-agent away from a folder or a GPU, with an flock on a file. The kernel releases
// it when the process ends, however it ends.
package filelock

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kerf-gpu/kerf/sharing"
)

// patience is how long an agent that was killed may take to end. The kernel releases its locks then.
const patience = 3 * time.Second

// Lock is held until Release, or the end of this process.
type Lock struct{ file *os.File }

// Take locks file, and makes it and its folder if they are missing. It waits up to 3 s for a lock of another process.
// Errors name the locked thing as what; holder is written into the file for the error of another agent. Errors:
// sharing.ErrConflict if another process still has the lock; the error names it.
func Take(ctx context.Context, file, what, holder string) (*Lock, error) {
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return nil, fmt.Errorf("lock %s: %w", what, err)
	}
	f, err := os.OpenFile(file, os.O_RDWR|os.O_CREATE|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock %s: %w", what, err)
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			break
		}
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return nil, errors.Join(fmt.Errorf("lock %s: %w", what, err), f.Close())
		}
		select {
		case <-ctx.Done():
			who, _ := io.ReadAll(io.LimitReader(f, 512))
			err = fmt.Errorf(
				"%s is managed by another kerf-agent (%s); one agent per machine, so stop that one first: %w",
				what, strings.TrimSpace(string(who)), sharing.ErrConflict)
			return nil, errors.Join(err, f.Close())
		case <-time.After(50 * time.Millisecond):
		}
	}
	// It only names the holder for people: a full disk, on which it fails, keeps no agent from its work.
	text := fmt.Sprintf("pid %d, --run-dir %s\n", os.Getpid(), holder)
	if n, err := f.WriteAt([]byte(text), 0); err == nil {
		_ = f.Truncate(int64(n))
	}
	return &Lock{file: f}, nil
}

// Release gives the lock back. The file stays: removing it would let two processes lock two files of one name.
func (l *Lock) Release() { _ = l.file.Close() }
