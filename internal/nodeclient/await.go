// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package nodeclient

import (
	"context"
	"errors"
	"io/fs"
	"time"
)

// Await waits until the agent of directory dir listens, at most for window, and reports whether it had to
// wait. Without a socket it returns at once: nobody is about to come back there. Errors are those of a
// call that could not connect.
func Await(ctx context.Context, dir string, window time.Duration) (waited bool, err error) {
	const pause = 100 * time.Millisecond
	l := &link{dir: dir, path: SocketPath(dir)}
	deadline := time.Now().Add(window)
	for {
		conn, err := connect(ctx, l.path)
		if err == nil {
			return waited, conn.Close()
		}
		if ctx.Err() != nil {
			return waited, context.Cause(ctx)
		}
		// One that comes back takes the old socket away before it makes its own.
		comesBack := refused(err) || waited && errors.Is(err, fs.ErrNotExist)
		if !comesBack || time.Now().Add(pause).After(deadline) {
			return waited, l.explain(err)
		}
		waited = true
		select {
		case <-ctx.Done():
			return waited, context.Cause(ctx)
		case <-time.After(pause):
		}
	}
}
