// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package ui is the command kerf ui, which serves the web console to the user of this machine.
package ui

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/kerf-gpu/kerf/internal/cli/command"
	"github.com/kerf-gpu/kerf/internal/console"
	"github.com/kerf-gpu/kerf/internal/console/auth"
	"github.com/kerf-gpu/kerf/internal/console/source"
	"github.com/kerf-gpu/kerf/sharing"
)

// Commands are the commands of this package.
func Commands(a *command.App) []*cobra.Command { return []*cobra.Command{uiCommand(a)} }

func uiCommand(a *command.App) *cobra.Command {
	var port int
	var prometheus string
	c := &cobra.Command{
		Use:   "ui",
		Short: "Show the web console in a browser",
		Long: `Serve the web console on 127.0.0.1 until you press Ctrl-C. The command prints an
address with a one-time token: open it in a browser of this machine. The console
is read-only, and shows what you may read: the agent of this machine, or the
cluster of your kubeconfig. KERF_PROMETHEUS or --prometheus names a Prometheus
that scrapes kerf-monitor, for usage over time and costs.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if port < 0 || port > 65535 {
				return command.Misused(sharing.Invalid("--port", fmt.Sprint(port), "write a port, or 0 for a free one",
					"is no port"))
			}
			if prometheus == "" {
				prometheus = a.Getenv("KERF_PROMETHEUS")
			}
			return command.Interruptible(c.Context(), func(ctx context.Context) error {
				err := serve(ctx, a, a.Remote(c), port, prometheus)
				if _, ok := errors.AsType[*command.InterruptedError](context.Cause(ctx)); ok {
					return nil // ctrl-C is how it ends
				}
				return command.Fail(err)
			})
		},
	}
	c.Flags().IntVar(&port, "port", 0, "port on 127.0.0.1 (default: a free one)")
	c.Flags().StringVar(&prometheus, "prometheus", "",
		"address of a Prometheus that scrapes kerf-monitor (environment: KERF_PROMETHEUS)")
	return c
}

// serve serves the console until ctx ends.
func serve(ctx context.Context, a *command.App, remote bool, port int, prometheus string) error {
	from, done, err := sourceOf(a, remote, prometheus)
	if err != nil {
		return err
	}
	defer done()
	var listen net.ListenConfig
	l, err := listen.Listen(ctx, "tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		return fmt.Errorf("listen for the console: %w", err)
	}
	local := auth.NewLocal(time.Now)
	s := console.New(console.Options{Source: from, Auth: local, Hosts: []string{l.Addr().String()},
		Log: slog.New(slog.NewTextHandler(a.ErrOut, nil))})
	_, _ = fmt.Fprintf(a.Out, "Open http://%s/login?token=%s\n", l.Addr(), local.Token())
	return s.Run(ctx, l)
}

// sourceOf is the cluster, or the agent of this machine.
func sourceOf(a *command.App, remote bool, prometheus string) (source.Source, func(), error) {
	if !remote {
		name, err := os.Hostname()
		if err != nil {
			name = "this machine"
		}
		return source.NewMachine(a.Dir, name), func() {}, nil
	}
	api, err := a.Cluster()
	if err != nil {
		return nil, nil, err
	}
	return source.NewCluster(api, api.Namespace, prometheus), api.Close, nil
}
