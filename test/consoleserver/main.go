// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Command consoleserver serves the console with an invented cluster, for browser tests, screenshots and load tests. It
// prints its address with the one-time token, and runs until it is stopped.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"runtime"
	"runtime/pprof"
	"syscall"
	"time"

	"github.com/kerf-gpu/kerf/internal/console"
	"github.com/kerf-gpu/kerf/internal/console/auth"
	"github.com/kerf-gpu/kerf/internal/console/model"
)

func main() {
	nodes := flag.Int("nodes", 14, "number of nodes")
	hostile := flag.Bool("hostile", false, "put markup into every text that a tenant controls")
	changes := flag.Int("changes", 0, "nodes that change each second")
	open := flag.Bool("open", false, "need no token, for load tests")
	heap := flag.String("heap", "", "say how large the live heap is at the end, and write its profile to this file")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := serve(ctx, *nodes, *changes, *hostile, *open, *heap); err != nil {
		fmt.Fprintln(os.Stderr, "consoleserver:", err)
	}
}

// profile says how much is live, and writes of what.
func profile(file string) error {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	fmt.Printf("heap %d\n", m.HeapAlloc>>20)
	out, err := os.Create(file)
	if err != nil {
		return err
	}
	return errors.Join(pprof.Lookup("heap").WriteTo(out, 0), out.Close())
}

func serve(ctx context.Context, nodes, changes int, hostile, open bool, heap string) error {
	var listen net.ListenConfig
	l, err := listen.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	local := auth.NewLocal(time.Now)
	var who auth.Authenticator = local
	if open {
		who = everyone{}
	}
	s := console.New(console.Options{Source: &invented{nodes: nodes, changes: changes, hostile: hostile}, Auth: who,
		Hosts: []string{l.Addr().String()}, Log: slog.Default()})
	fmt.Printf("http://%s/login?token=%s\n", l.Addr(), local.Token())
	err = s.Run(ctx, l)
	if heap != "" {
		err = errors.Join(err, profile(heap))
		runtime.KeepAlive(s)
	}
	return err
}

// everyone lets each request see everything.
type everyone struct{}

func (everyone) Viewer(*http.Request) *auth.Viewer {
	all := func(context.Context, []string) (model.Scope, error) { return model.Scope{All: true}, nil }
	events := func(context.Context, string) (bool, error) { return true, nil }
	return &auth.Viewer{Scope: all, Events: events}
}

func (everyone) Login(w http.ResponseWriter, r *http.Request) {
	http.Redirect(w, r, "/", http.StatusSeeOther)
}
