// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sim/control"
	"github.com/kerf-gpu/kerf/sim/daemon"
)

// How long a daemon may take to end after each way of asking.
const (
	askTime  = 2 * time.Second
	stopTime = 2 * time.Second
)

// Stop ends the daemon of a node and clears away what one that was killed has left. It returns the process that was
// ended, 0 when none ran. It asks the daemon first, then sends SIGTERM, then kills it.
func Stop(ctx context.Context, dir string) (int, error) {
	if _, err := os.Stat(dir); errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	pid, err := daemon.Owner(dir)
	if err != nil {
		return 0, err
	}
	if pid > 0 {
		if err := end(ctx, dir, pid); err != nil {
			return 0, fmt.Errorf("stop process %d: %w", pid, err)
		}
	}
	return pid, clean(ctx, dir)
}

// end ends process pid if it is the daemon of dir.
func end(ctx context.Context, dir string, pid int) error {
	fd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil // it has ended just now
	}
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	// What fd refers to is the daemon only if the daemon still had this id after fd was opened.
	if again, err := daemon.Owner(dir); err != nil || again != pid {
		return err
	}
	asking, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	// one that hangs gets the signals
	if control.Call(asking, dir, control.Request{Command: control.CmdStop}, nil) == nil {
		if err := waitEnd(ctx, fd); !errors.Is(err, errStillThere) {
			return err
		}
	}
	for _, sig := range []unix.Signal{unix.SIGTERM, unix.SIGKILL} {
		if err := unix.PidfdSendSignal(fd, sig, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
			return err
		}
		if err := waitEnd(ctx, fd); !errors.Is(err, errStillThere) {
			return err
		}
	}
	return fmt.Errorf("it does not end: %w", sharing.ErrUnavailable)
}

var errStillThere = errors.New("still there")

// waitEnd waits for the process behind a pidfd.
func waitEnd(ctx context.Context, fd int) error {
	const slice = 50 * time.Millisecond
	for range int(stopTime / slice) {
		// #nosec G115 -- a descriptor
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(slice/time.Millisecond))
		if err != nil && !errors.Is(err, unix.EINTR) {
			return err
		}
		if n > 0 {
			return nil
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	return errStillThere
}

// clean clears the directory under its lock, so that a daemon which starts just now keeps its sockets.
func clean(ctx context.Context, dir string) error {
	lock, err := daemon.Lock(ctx, dir)
	if errors.Is(err, sharing.ErrConflict) {
		return nil // a new one has it and has cleaned up
	}
	if err != nil {
		return err
	}
	return errors.Join(daemon.Clean(dir), lock.Unlock())
}
