// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/user"
	"strconv"

	"github.com/kerf-gpu/kerf/internal/nodeclient"
	"github.com/kerf-gpu/kerf/sharing"
)

// listen opens the telemetry socket, for root and one group. A socket that is there already is a dead monitor's, unless
// somebody answers on it.
func (m *monitor) listen() (net.Listener, error) {
	path := nodeclient.TelemetryPath(m.dir)
	if c, err := net.Dial("unix", path); err == nil {
		return nil, errors.Join(fmt.Errorf("another monitor listens on %s: %w", path, sharing.ErrConflict), c.Close())
	}
	if err := os.MkdirAll(m.dir, 0o755); err != nil {
		return nil, fmt.Errorf("make directory of the socket: %w", err)
	}
	// Made under another name and moved into place once owner and mode are right.
	temp := path + ".new"
	for _, p := range []string{path, temp} {
		if err := os.Remove(p); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("remove old socket: %w", err)
		}
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: temp, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	l.SetUnlinkOnClose(false)
	err = errors.Join(os.Chmod(temp, 0o600), m.give(temp), os.Chmod(temp, 0o660), os.Rename(temp, path))
	if err != nil {
		return nil, errors.Join(fmt.Errorf("set up socket %s: %w", path, err), l.Close())
	}
	return l, nil
}

// give lets the group have the socket, where there is one.
func (m *monitor) give(path string) error {
	g, err := user.LookupGroup(m.group)
	if err != nil {
		m.log.Info("only this user may watch the stream", "reason", err.Error())
		return nil
	}
	gid, err := strconv.Atoi(g.Gid)
	if err != nil {
		return fmt.Errorf("group %q has no numeric id: %w", m.group, sharing.ErrInvalid)
	}
	return os.Chown(path, -1, gid)
}
