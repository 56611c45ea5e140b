// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package service

import "github.com/kerf-gpu/kerf/internal/serve/limit"

const (
	// reservedFiles are the file descriptors that no connection uses: for the driver's libraries and the processes on GPUs.
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

// listenerShares are what the monitor's listeners may have. docs/limits.md has the same numbers.
func listenerShares() []limit.Share {
	const mib = 1 << 20
	return []limit.Share{
		{Name: shareStream, Bounds: limit.Bounds{
			Conns: 192, PeerConns: 160, Requests: 16, PeerRequests: 8, Streams: 160, PeerStreams: 128, Bytes: 16 * mib, PeerBytes: 8 * mib,
		}},
		{Name: sharePods, Bounds: limit.Bounds{Conns: 256, PeerConns: 16, Requests: 256, PeerRequests: 16, Bytes: 8 * mib, PeerBytes: 4 * mib}},
		{Name: shareWeb, Bounds: limit.Bounds{Conns: 96, PeerConns: 48, Requests: 64, PeerRequests: 32, Bytes: 8 * mib, PeerBytes: 4 * mib}},
	}
}
