// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"github.com/kerf-gpu/kerf/internal/serve"
	"github.com/kerf-gpu/kerf/internal/serve/limit"
)

// reservedFiles are the file descriptors that no connection uses. Files in /proc and of cgroups need them, the driver's
// files, and grants' processes. So do the sockets of the API server, kubelet and the container runtime.
const reservedFiles = 384

// The names of the agent's Shares.
const (
	shareHook    = "hook"
	shareKubelet = "kubelet"
	shareNode    = "node"
	shareRoot    = "node-root"
	shareLocal   = "http-local"
	shareWeb     = "http"
)

// listenerShares are what the agent's listeners may have. docs/reference/limits.md has the same numbers.
func listenerShares() []limit.Share {
	const mib = 1 << 20
	return []limit.Share{
		// Two hooks for each of the 110 pods that a node starts at once. Who comes later waits in the socket's queue.
		{Name: shareHook, Fixed: true, Bounds: limit.Bounds{Conns: 256, PeerConns: 256}},
		// One connection for each resource, and another while kubelet registers it again.
		{Name: shareKubelet, Fixed: true, Bounds: limit.Bounds{
			Conns: 64, PeerConns: 64, Requests: 256, PeerRequests: 256, Streams: 64, PeerStreams: 64, Bytes: 8 * mib,
			PeerBytes: 8 * mib,
		}},
		{Name: shareNode, Bounds: limit.Bounds{
			Conns: 256, PeerConns: 96, Requests: 160, PeerRequests: 64, Streams: 64, PeerStreams: 16, Bytes: 8 * mib,
			PeerBytes: 4 * mib,
		}},
		{Name: shareRoot, Bounds: limit.Bounds{
			Conns: 192, PeerConns: 192, Requests: 128, PeerRequests: 128, Streams: 32, PeerStreams: 32, Bytes: 8 * mib,
			PeerBytes: 8 * mib,
		}},
		{Name: shareLocal, Bounds: limit.Bounds{Conns: 48, PeerConns: 24, Requests: 32, PeerRequests: 16,
			Bytes: 8 * mib, PeerBytes: 4 * mib}},
		{Name: shareWeb, Bounds: limit.Bounds{Conns: 96, PeerConns: 48, Requests: 64, PeerRequests: 32, Bytes: 8 * mib,
			PeerBytes: 4 * mib}},
	}
}

// planListeners makes the Shares, for as many open files as this process may have.
func planListeners() (map[string]*serve.Share, error) {
	return serve.Plan(listenerShares(), reservedFiles)
}
