// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/kerf-gpu/kerf/internal/serve"
	"github.com/kerf-gpu/kerf/sharing/node"
)

// socketGroup is the id of the group that may use the sockets, 0 (root) where there is no such group.
func (a *agent) socketGroup() int {
	g, err := user.LookupGroup(a.opt.Access.Group)
	if err != nil {
		a.log.Info("restricted the node socket to root", "reason", err.Error(), "remedy", "make the group (groupadd "+
			a.opt.Access.Group+") and start the agent again")
		return 0
	}
	gid, err := strconv.Atoi(g.Gid)
	if err != nil {
		a.log.Warn("group has no numeric ID, restricted the node socket to root", "group", a.opt.Access.Group, "gid",
			g.Gid)
		return 0
	}
	return gid
}

func (a *agent) httpListeners(gid int) ([]*serve.Listener, error) {
	l, err := serve.ListenUnix(filepath.Join(a.opt.Dirs.Dir, "http.sock"), gid)
	if err != nil {
		return nil, err
	}
	out := []*serve.Listener{a.shares[shareLocal].Listen(l, serve.Rules{})}
	if a.opt.Access.HTTP != "" {
		tcp, err := net.Listen("tcp", a.opt.Access.HTTP)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("--metrics-bind-address %q: %w", a.opt.Access.HTTP, err), l.Close(),
				os.Remove(filepath.Join(a.opt.Dirs.Dir, "http.sock")))
		}
		out = append(out, a.shares[shareWeb].Listen(tcp, serve.Rules{}))
	}
	return out, nil
}

// scrapesAtOnce is how many expositions are made at a time.
const scrapesAtOnce = 2

// probes are further checks of /healthz and /readyz; each may be nil.
type probes struct {
	// unready is what else keeps a pod that is bound to this node now from being served.
	unready func() []string
	// stuck is the reason if only a new process can recover, else empty.
	stuck func() string
	// usage answers what grants used.
	usage http.Handler
}

// serveHTTP answers /metrics, /usage, /healthz and /readyz on l until ctx ends. It changes nothing. Ready means that a
// pod which is bound to this node now is served.
func serveHTTP(ctx context.Context, l *serve.Listener, r *node.Runtime, reg *prometheus.Registry, p probes) error {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", serve.Rendered(promhttp.HandlerFor(reg, promhttp.HandlerOpts{}), scrapesAtOnce))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		r.NotReady() // takes the runtime's lock: a runtime that hangs lets the probe time out
		if p.stuck != nil {
			if why := p.stuck(); why != "" {
				http.Error(w, why, http.StatusServiceUnavailable)
				return
			}
		}
		_, _ = fmt.Fprintln(w, "ok")
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		why := r.PodsNotReady()
		if p.unready != nil {
			why = append(why, p.unready()...)
		}
		if len(why) > 0 {
			http.Error(w, strings.Join(why, "\n"), http.StatusServiceUnavailable)
			return
		}
		_, _ = fmt.Fprintln(w, "ok")
	})
	if p.usage != nil {
		mux.Handle("GET /usage", p.usage)
	}
	return serve.HTTP(ctx, l, mux)
}
