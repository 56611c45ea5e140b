// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kerf-gpu/kerf/internal/nvml"
	"github.com/kerf-gpu/kerf/monitor/collect"
	"github.com/kerf-gpu/kerf/monitor/exposition"
	"github.com/kerf-gpu/kerf/sharing"
)

// environment is what main read from the process's environment: defaults of flags.
type environment struct {
	// again starts this very program again in its place; it returns only an error.
	again                                func() error
	libraryPath, dir, nodeName, hostname string
}

// settings are the monitor's flags, checked.
type settings struct {
	dir, group, http, fieldsFile, nodeName, logLevel, dcgmEngine string

	interval time.Duration
	dcgm     bool
	// hostCgroups says that this is a container, from which the machine's cgroups are to be seen.
	hostCgroups bool
	libraries   []string
	fields      []collect.FieldInfo
	// others are fields of the file that the monitor does not have.
	others []string
}

func command(env environment) *cobra.Command {
	s := settings{libraries: nvml.DefaultLibraryPaths(env.libraryPath)}
	c := &cobra.Command{
		Use:           "kerf-monitor --dir DIR",
		Short:         "Kerf's monitor: what is used of this machine's GPUs, and by whom",
		Version:       version,
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := s.check(); err != nil {
				return err
			}
			log, err := logger(c.ErrOrStderr(), s.logLevel)
			if err != nil {
				return err
			}
			m := &monitor{settings: s, log: log, again: env.again}
			return m.run(c.Context())
		},
	}
	f := c.Flags()
	f.StringVar(&s.dir, "dir", or(env.dir, "/run/kerf"), "directory of the agent's sockets")
	f.StringVar(&s.group, "group", "kerf", "group whose members may watch the stream; root alone may where there is no such group")
	f.StringVar(&s.http, "http", "127.0.0.1:9446", "serve /metrics and /healthz on this TCP address; empty: not at all")
	f.DurationVar(&s.interval, "interval", collect.DefaultInterval, "time between two samples, 100ms to 1m; streams may ask for shorter ones")
	f.StringVar(&s.fieldsFile, "fields", "", "file of dcgm-exporter's form that chooses the DCGM_FI_* series; empty for all")
	f.BoolVar(&s.hostCgroups, "host-cgroups", false, "in a container: join the host's cgroup namespace, so that the cgroups of processes can be told")
	f.BoolVar(&s.dcgm, "dcgm", true, "use NVIDIA's DCGM where its library is found; NVML alone tells where it is not")
	f.StringVar(&s.dcgmEngine, "dcgm-engine", engineAuto, "DCGM's host engine: auto (the one at "+localEngine+" if one runs, else one in this process), embedded, HOST:PORT, or unix://PATH")
	f.StringVar(&s.nodeName, "node-name", or(env.nodeName, env.hostname), "the label hostname of the DCGM_FI_* series")
	f.StringVar(&s.logLevel, "log-level", "info", "debug, info, warn or error")
	return c
}

// check completes the settings and refuses what cannot be used.
func (s *settings) check() error {
	abs, err := filepath.Abs(s.dir)
	if s.dir == "" || err != nil {
		return sharing.Invalid("--dir", s.dir, "name the directory of the agent's sockets", "is not a directory's path")
	}
	s.dir = abs
	if s.interval < collect.ShortestInterval || s.interval > time.Minute {
		return sharing.Invalid("--interval", s.interval.String(), "write 100ms to 1m", "is not an interval that is kept")
	}
	if e := s.dcgmEngine; e != engineAuto && e != engineEmbedded && !strings.Contains(e, ":") {
		return sharing.Invalid("--dcgm-engine", e, "write auto, embedded, HOST:PORT or unix://PATH", "is no host engine")
	}
	if s.fieldsFile == "" {
		return nil
	}
	data, err := os.ReadFile(s.fieldsFile)
	if err != nil {
		return fmt.Errorf("--fields: %w", err)
	}
	if s.fields, s.others, err = exposition.ParseFields(string(data)); err != nil {
		return fmt.Errorf("--fields %q: %w", s.fieldsFile, err)
	}
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
