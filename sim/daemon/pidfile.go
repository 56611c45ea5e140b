// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/kerf-gpu/kerf/sharing"
)

// PIDFile is the claim of a running daemon on its directory: a lock, which ends with the process, on a file
// that holds its process id.
type PIDFile struct {
	f *os.File
}

func pidPath(dir string) string { return filepath.Join(dir, "gpusim.pid") }

// lockTries is how often a lock that is held is tried again: someone may only have looked at it.
const lockTries = 4

// Lock takes the directory for this process. It is sharing.ErrConflict when a daemon runs there.
func Lock(ctx context.Context, dir string) (*PIDFile, error) {
	for try := 0; ; try++ {
		f, err := os.OpenFile(pidPath(dir), os.O_RDWR|os.O_CREATE, 0o644) // #nosec G302 -- a process id is no secret
		if err != nil {
			return nil, fmt.Errorf("lock %q: %w", dir, err)
		}
		ours, err := lockFile(f)
		if errors.Is(err, sharing.ErrConflict) && try < lockTries && pause(ctx) == nil {
			_ = f.Close() // nothing was written
			continue
		}
		if err != nil {
			pid := readPID(f)
			err = fmt.Errorf("a simulated driver runs in %q already, as process %d: %w", dir, pid, err)
			return nil, errors.Join(err, f.Close())
		}
		if !ours { // another has ended and removed the file in between
			_ = f.Close() // nothing was written
			continue
		}
		p := &PIDFile{f: f}
		text := strconv.Itoa(os.Getpid()) + "\n"
		if err := errors.Join(f.Truncate(0), writeAt(f, text)); err != nil {
			return nil, errors.Join(fmt.Errorf("lock %q: %w", dir, err), p.Unlock())
		}
		return p, nil
	}
}

func writeAt(f *os.File, text string) error {
	_, err := f.WriteAt([]byte(text), 0)
	return err
}

// lockFile locks f and reports whether it is still the file of that name.
func lockFile(f *os.File) (bool, error) {
	if err := flock(f, unix.LOCK_EX); err != nil {
		return false, err
	}
	open, err := f.Stat()
	if err != nil {
		return false, fmt.Errorf("lock: %w", err)
	}
	named, err := os.Stat(f.Name())
	return err == nil && os.SameFile(open, named), nil
}

func flock(f *os.File, how int) error {
	err := unix.Flock(int(f.Fd()), how|unix.LOCK_NB) // #nosec G115 -- a descriptor
	if errors.Is(err, unix.EWOULDBLOCK) {
		return fmt.Errorf("locked: %w", sharing.ErrConflict)
	}
	return err
}

func readPID(f io.ReaderAt) int {
	var b [24]byte
	n, _ := f.ReadAt(b[:], 0) // what is there counts, a short file is the rule
	pid, err := strconv.Atoi(strings.TrimSpace(string(b[:n])))
	if err != nil || pid < 1 {
		return 0
	}
	return pid
}

// Unlock removes the file and gives the directory up.
func (p *PIDFile) Unlock() error {
	return errors.Join(os.Remove(p.f.Name()), p.f.Close())
}

// Owner returns the process id of the daemon that runs in dir, 0 when none does. The id was written by the
// holder of the lock, so it is not that of a process which came later.
func Owner(dir string) (int, error) {
	f, err := os.Open(pidPath(dir))
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("look for a simulated driver in %q: %w", dir, err)
	}
	defer f.Close()
	err = flock(f, unix.LOCK_SH)
	switch {
	case err == nil: // released by Close
		return 0, nil
	case !errors.Is(err, sharing.ErrConflict):
		return 0, fmt.Errorf("look for a simulated driver in %q: %w", dir, err)
	}
	if pid := readPID(f); pid > 0 {
		return pid, nil
	}
	return 0, fmt.Errorf("a simulated driver is starting in %q: %w", dir, sharing.ErrUnavailable)
}

// Clean removes what a killed daemon has left in dir. The caller has locked the directory, or no daemon uses it.
func Clean(dir string) error {
	stale, err := filepath.Glob(filepath.Join(escapeGlob(dir), "dev", "nvidia*"))
	if err != nil {
		return fmt.Errorf("clean %q: %w", dir, err)
	}
	errs := []error{cleanCaps(dir)}
	for _, p := range append(stale, filepath.Join(dir, "control.sock")) {
		info, err := os.Lstat(p)
		if err != nil || info.Mode().Type() != os.ModeSocket {
			continue // gone, or not ours: binding will say so
		}
		if err := os.Remove(p); err != nil && !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, fmt.Errorf("clean %q: %w", dir, err))
		}
	}
	return errors.Join(errs...)
}

// escapeGlob makes a path a pattern that matches only itself.
func escapeGlob(p string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(p)
}
