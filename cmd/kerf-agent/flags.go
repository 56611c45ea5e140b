// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kerf-gpu/kerf/internal/failpoint"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/node"
)

// environment is what main read from the process's environment: defaults of flags, and the switch of the
// crash tests.
type environment struct {
	libraryPath, devRoot, config, dir, failpoints string
}

// settings are the agent's flags, checked.
type settings struct {
	dir, config, devRoot, lockDir, group, http, logLevel string
	labels                                               map[string]string
	libraries                                            []string
	failpoints                                           *failpoint.Set
}

func command(env environment, kill func(point string)) *cobra.Command {
	s := settings{}
	c := &cobra.Command{
		Use:           "kerf-agent --dir DIR",
		Short:         "Kerf's node agent: claims, caps and keeps fragments of this machine's GPUs",
		Version:       version,
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := s.check(env, kill); err != nil {
				return err
			}
			log, err := logger(c.ErrOrStderr(), s.logLevel)
			if err != nil {
				return err
			}
			a := &agent{settings: s, log: log}
			return a.run(c.Context())
		},
	}
	f := c.Flags()
	f.StringVar(&s.dir, "dir", or(env.dir, "/run/kerf"), "directory of the sockets and the record")
	f.StringVar(&s.config, "config", env.config, "SharingConfig document; empty for the built-in default")
	f.StringToStringVar(&s.labels, "node-label", nil, "label of this node, by which its pool is chosen (key=value, repeatable)")
	f.StringVar(&s.devRoot, "dev-root", or(env.devRoot, "/"), "directory that holds dev/nvidiaN")
	f.StringVar(&s.lockDir, "lock-dir", "/run/kerf/locks", "directory of the locks that keep a second agent off a GPU; the same for all agents of a machine")
	f.StringVar(&s.group, "group", "kerf", "group whose members may use the node socket; root alone may where there is no such group")
	f.StringVar(&s.http, "http", "", "also serve /metrics, /healthz and /readyz on this TCP address, such as 127.0.0.1:9445")
	f.StringVar(&s.logLevel, "log-level", "info", "debug, info, warn or error")
	return c
}

// check completes the settings and refuses what cannot be used.
func (s *settings) check(env environment, kill func(point string)) error {
	for _, p := range []struct {
		flag string
		path *string
	}{{"--dir", &s.dir}, {"--dev-root", &s.devRoot}, {"--lock-dir", &s.lockDir}} {
		if *p.path == "" {
			return sharing.Invalid(p.flag, "", "name a directory", "is empty")
		}
		abs, err := filepath.Abs(*p.path)
		if err != nil {
			return fmt.Errorf("%s %q: %w", p.flag, *p.path, err)
		}
		*p.path = abs
	}
	// A unix socket's path has 108 bytes, the terminating zero among them.
	if longest := filepath.Join(s.dir, "kerf.sock"); len(longest) > 107 {
		return sharing.Invalid("--dir", s.dir, "name a directory with a shorter path", "makes socket paths of %d bytes; 107 are possible", len(longest))
	}
	for _, d := range filepath.SplitList(env.libraryPath) {
		if d != "" {
			s.libraries = append(s.libraries, filepath.Join(d, "libnvidia-ml.so.1"))
		}
	}
	points, err := failpoint.Parse(env.failpoints, failpoint.Actions{Exit: kill})
	if err == nil {
		err = points.Check(node.Failpoints()...)
	}
	if err != nil {
		return fmt.Errorf("KERF_FAILPOINTS: %w", err)
	}
	s.failpoints = points
	return nil
}

func logger(w io.Writer, level string) (*slog.Logger, error) {
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err != nil || strings.ContainsAny(level, "+-") {
		return nil, sharing.Invalid("--log-level", level, "write debug, info, warn or error", "is not a level")
	}
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: l})), nil
}

func or(a, b string) string {
	if a != "" {
		return a
	}
	return b
}
