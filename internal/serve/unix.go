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

// ListenUnix listens on a socket for root and one group. It replaces a socket that is there, so the caller must hold the lock on
// its folder.
func ListenUnix(path string, gid int) (net.Listener, error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("remove old socket: %w", err)
	}
	// The socket gets its name once owner and mode are right: no client connects before, or meets a socket without a listener.
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
