// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package service

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/user"
	"path/filepath"
	"strconv"

	"github.com/kerf-gpu/kerf/internal/cgroup"
	"github.com/kerf-gpu/kerf/internal/nodeclient"
	"github.com/kerf-gpu/kerf/internal/process"
	"github.com/kerf-gpu/kerf/internal/serve"
	"github.com/kerf-gpu/kerf/internal/serve/limit"
	"github.com/kerf-gpu/kerf/monitor/collect"
	"github.com/kerf-gpu/kerf/monitor/stream"
	"github.com/kerf-gpu/kerf/sharing"
)

// listeners are what the monitor answers on. The web is nil without --metrics-bind-address.
type listeners struct{ web, group, pods net.Listener }

// open opens all listeners, or none.
func (m *monitor) open() (l listeners, err error) {
	defer func() {
		if err == nil {
			return
		}
		for _, opened := range []net.Listener{l.web, l.group} {
			if opened != nil {
				err = errors.Join(err, opened.Close())
			}
		}
	}()
	if m.HTTP != "" {
		if l.web, err = net.Listen("tcp", m.HTTP); err != nil {
			return l, fmt.Errorf("--metrics-bind-address %q: %w", m.HTTP, err)
		}
		m.Log.Info("started serving metrics", "address", l.web.Addr().String())
	}
	if l.group, err = m.listen(); err != nil {
		return l, err
	}
	l.pods, err = m.listenForPods()
	return l, err
}

// listen opens the telemetry socket, for root and one group.
func (m *monitor) listen() (net.Listener, error) {
	return listenOn(nodeclient.TelemetryPath(m.Dir), 0o660, m.give)
}

// listenForPods opens the containers' socket for all users. The kernel identifies the caller, which gets only its
// pod's numbers.
func (m *monitor) listenForPods() (net.Listener, error) {
	return listenOn(filepath.Join(m.Dir, podFolder, podSocket), 0o666, func(string) error { return nil })
}

// podFolder is what the agent mounts into containers, in its directory, and podSocket what the monitor puts there.
const (
	podFolder = "pods"
	podSocket = "telemetry.sock"
)

// listenOn opens a unix socket. It replaces an existing one unless a process answers on it.
func listenOn(path string, mode fs.FileMode, give func(path string) error) (net.Listener, error) {
	if c, err := net.Dial("unix", path); err == nil {
		return nil, errors.Join(fmt.Errorf("another monitor listens on %s: %w", path, sharing.ErrConflict), c.Close())
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
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
	err = errors.Join(os.Chmod(temp, 0o600), give(temp), os.Chmod(temp, mode), os.Rename(temp, path))
	if err != nil {
		return nil, errors.Join(fmt.Errorf("set up socket %s: %w", path, err), l.Close())
	}
	return l, nil
}

// give lets the group have the socket, where there is one.
func (m *monitor) give(path string) error {
	g, err := user.LookupGroup(m.Group)
	if err != nil {
		m.Log.Info("restricted the stream to this user", "reason", err.Error())
		return nil
	}
	gid, err := strconv.Atoi(g.Gid)
	if err != nil {
		return fmt.Errorf("group %q has no numeric id: %w", m.Group, sharing.ErrInvalid)
	}
	return os.Chown(path, -1, gid)
}

// askers finds out which cgroup the process at the other end of a connection is in.
type askers struct {
	hierarchy cgroup.Hierarchy
	hub       *collect.Broadcaster
}

// identify names the tenant at the other end of a connection, and returns what answers it. All who have no grant are
// one peer.
func (a askers) identify(c net.Conn) (peer string, handler any, err error) {
	if dir, err := a.cgroupOf(c); err == nil {
		return stream.Tenant(a.hub, dir), stream.Own(a.hub, dir), nil
	}
	return "", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "your process cannot be identified", http.StatusForbidden)
	}), nil
}

// answer lets each connection's own handler answer.
func answer(w http.ResponseWriter, r *http.Request) {
	if h, ok := serve.ConnOf(r.Context()).Value().(http.Handler); ok {
		h.ServeHTTP(w, r)
	}
}

func (a askers) cgroupOf(c net.Conn) (string, error) {
	unix, ok := c.(*net.UnixConn)
	if !ok {
		return "", fmt.Errorf("a connection of type %T: %w", c, sharing.ErrInvalid)
	}
	peer, err := process.PeerOf(unix)
	if err != nil {
		return "", err
	}
	defer peer.Process.Close()
	dir, err := a.hierarchy.OfProcess(peer.PID)
	if err == nil && !peer.Process.Alive() { // its pid may have been another's when the cgroup was read
		err = fmt.Errorf("process %d has ended: %w", peer.PID, sharing.ErrNotFound)
	}
	return dir, err
}

const (
	// reservedFiles are the file descriptors that no connection uses: for the driver's libraries and the processes on
	// GPUs.
	reservedFiles = 256
	// scrapesAtOnce is how many expositions are made at a time.
	scrapesAtOnce = 2
)

// The names of the monitor's Shares.
const (
	shareStream = "telemetry"
	sharePods   = "telemetry-pods"
	shareWeb    = "http"
)

// listenerShares are what the monitor's listeners may have. docs/reference/limits.md has the same numbers.
func listenerShares() []limit.Share {
	const mib = 1 << 20
	return []limit.Share{
		{Name: shareStream, Bounds: limit.Bounds{
			Conns: 192, PeerConns: 160, Requests: 16, PeerRequests: 8, Streams: 160, PeerStreams: 128, Bytes: 16 * mib,
			PeerBytes: 8 * mib,
		}},
		{Name: sharePods, Bounds: limit.Bounds{Conns: 256, PeerConns: 16, Requests: 256, PeerRequests: 16,
			Bytes: 8 * mib, PeerBytes: 4 * mib}},
		{Name: shareWeb, Bounds: limit.Bounds{Conns: 96, PeerConns: 48, Requests: 64, PeerRequests: 32, Bytes: 8 * mib,
			PeerBytes: 4 * mib}},
	}
}
