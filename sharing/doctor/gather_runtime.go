// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/kerf-gpu/kerf/internal/containerd"
	"github.com/kerf-gpu/kerf/sharing"
)

const (
	// runtimeTimeout bounds all questions to the container runtime.
	runtimeTimeout = 10 * time.Second
	// nriSocket is where runtimes take NRI plugins unless they are told otherwise.
	nriSocket = "/var/run/nri/nri.sock"
)

// runtimeSockets are where container runtimes listen, in the order in which they are looked for.
func runtimeSockets() []string {
	return []string{containerd.DefaultSocket, containerd.CRIOSocket, "/run/k3s/containerd/containerd.sock"}
}

// gatherRuntime asks the first runtime that there is.
func gatherRuntime(ctx context.Context, sockets []string, nri, toolkit string) Runtime {
	var r Runtime
	for _, s := range sockets {
		if _, err := os.Stat(s); err == nil {
			r.Socket = s
			break
		}
	}
	if r.Socket == "" {
		return r
	}
	ctx, cancel := context.WithTimeout(ctx, runtimeTimeout)
	defer cancel()
	client, err := containerd.Open(r.Socket)
	if err != nil {
		r.Problem = err.Error()
		return r
	}
	defer func() { _ = client.Close() }()
	if r.Report, err = client.Report(ctx); err != nil {
		r.Problem, r.Denied = err.Error(), errors.Is(err, sharing.ErrDenied)
		return r
	}
	if r.Report.NRI == containerd.Unknown {
		if r.Report.NRI = containerd.ProbeNRI(ctx, nri); r.Report.NRI == containerd.No {
			r.Report.Untold = append(r.Report.Untold, fmt.Sprintf("nothing listens at %q; where the runtime's NRI has another socket_path, that was not looked at", nri))
		}
	}
	r.Toolkit = containerd.ReadToolkit(toolkit)
	return r
}
