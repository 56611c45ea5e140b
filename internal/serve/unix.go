// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
)

// ListenUnix listens on a socket that root and one group may use. The lock on the directory is held, so a
// socket that is there already is a dead agent's.
func ListenUnix(path string, gid int) (net.Listener, error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("remove old socket: %w", err)
	}
	// Made under another name and moved into place once owner and mode are right, so that nobody connects
	// before, and a client never sees a socket on which nobody listens.
	temp := path + ".new"
	if err := os.Remove(temp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("remove old socket: %w", err)
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: temp, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	l.SetUnlinkOnClose(false)
	err = errors.Join(os.Chmod(temp, 0o600), os.Chown(temp, 0, gid), os.Chmod(temp, 0o660), os.Rename(temp, path))
	if err != nil {
		return nil, errors.Join(fmt.Errorf("set up socket %s: %w", path, err), l.Close())
	}
	return l, nil
}
