// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sim/control"
)

const (
	// maxSocketPath is the longest path that a socket's address holds.
	maxSocketPath = 107
	// longestName is the longest of the sockets' names beneath the directory.
	longestName = "/dev/nvidiactl"
	// ctl stands for nvidiactl where a minor is expected.
	ctl = -1

	deviceMode  = 0o666 // any tenant that is shown the socket may use it, as with a device file
	controlMode = 0o600
)

// server is a listener and what serves its connections.
type server struct {
	l     *net.UnixListener
	serve func(context.Context, *net.UnixConn)
}

// CheckDir refuses a directory whose path is too long for the sockets in it.
func CheckDir(dir string) error {
	if most := maxSocketPath - len(longestName); len(dir) > most {
		return sharing.Invalid("--dir", dir, fmt.Sprintf("take one whose absolute path has at most %d bytes", most),
			"has %d bytes, too long for the sockets in it", len(dir))
	}
	return nil
}

// listen clears away what a killed daemon has left and binds all sockets.
func (d *Daemon) listen() error {
	if err := CheckDir(d.opts.Dir); err != nil {
		return err
	}
	dev := filepath.Join(d.opts.Dir, "dev")
	if err := os.MkdirAll(dev, 0o755); err != nil { // #nosec G301 -- tenants look for GPUs in it
		return fmt.Errorf("make the device directory: %w", err)
	}
	if err := Clean(d.opts.Dir); err != nil {
		return err
	}
	for minor := ctl; minor < len(d.opts.Machine.GPUs); minor++ {
		name := "nvidiactl"
		if minor != ctl {
			name = "nvidia" + strconv.Itoa(minor)
		}
		serve := func(ctx context.Context, conn *net.UnixConn) { d.serveDevice(ctx, conn, minor) }
		if err := d.bind("unixpacket", filepath.Join(dev, name), deviceMode, serve); err != nil {
			return err
		}
	}
	// The last, so that a daemon which answers here has all its devices.
	return d.bind("unix", control.SocketPath(d.opts.Dir), controlMode, d.serveControl)
}

func (d *Daemon) bind(network, path string, mode os.FileMode, serve func(context.Context, *net.UnixConn)) error {
	l, err := net.ListenUnix(network, &net.UnixAddr{Name: path, Net: network})
	if err != nil {
		return fmt.Errorf("bind %q: %w", path, err)
	}
	d.servers = append(d.servers, server{l: l, serve: serve})
	if err := os.Chmod(path, mode); err != nil {
		return fmt.Errorf("bind %q: %w", path, err)
	}
	return nil
}

// closeListeners ends accepting and removes the sockets.
func (d *Daemon) closeListeners() error {
	var errs []error
	for _, s := range d.servers {
		if err := s.l.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
			errs = append(errs, fmt.Errorf("close %q: %w", s.l.Addr(), err))
		}
	}
	return errors.Join(errs...)
}

// accept serves each connection in a separate goroutine, until the listener is closed.
func (d *Daemon) accept(ctx context.Context, s server) {
	for {
		conn, err := s.l.AcceptUnix()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // too many open files, for one: wait until something may have changed
			d.log.Warn("cannot accept", "socket", s.l.Addr().String(), "error", err)
			if pause(ctx) != nil {
				return
			}
			continue
		}
		d.wg.Go(func() { s.serve(ctx, conn) })
	}
}
