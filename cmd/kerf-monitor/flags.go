// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
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
	"github.com/kerf-gpu/kerf/monitor/service"
	"github.com/kerf-gpu/kerf/monitor/source"
	"github.com/kerf-gpu/kerf/sharing"
)

// environment is what main read from the process's environment: defaults of flags.
type environment struct {
	// again starts this very program again in its place; it returns only an error.
	again                                func() error
	libraryPath, dir, nodeName, hostname string
}

// flags are the monitor's options, and what only the command line needs.
type flags struct {
	service.Options
	fieldsFile, logLevel string
}

func command(env environment) *cobra.Command {
	s := flags{Options: service.Options{Libraries: nvml.DefaultLibraryPaths(env.libraryPath), Version: version, Again: env.again}}
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
			var err error
			if s.Log, err = logger(c.ErrOrStderr(), s.logLevel); err != nil {
				return err
			}
			return service.Run(c.Context(), s.Options)
		},
	}
	f := c.Flags()
	f.StringVar(&s.Dir, "dir", cmp.Or(env.dir, "/run/kerf"), "directory of the agent's sockets")
	f.StringVar(&s.Group, "group", "kerf", "group whose members may watch the stream; root alone may where there is no such group")
	f.StringVar(&s.HTTP, "http", "127.0.0.1:9446", "serve /metrics and /healthz on this TCP address; empty: not at all")
	f.DurationVar(&s.Interval, "interval", collect.DefaultInterval, "time between two samples, 100ms to 1m; streams may ask for shorter ones")
	f.StringVar(&s.fieldsFile, "fields", "", "file of dcgm-exporter's form that chooses the DCGM_FI_* series; empty for all")
	f.BoolVar(&s.HostCgroups, "host-cgroups", false, "in a container: join the host's cgroup namespace, so that the cgroups of processes can be told")
	f.BoolVar(&s.DCGM, "dcgm", true, "use NVIDIA's DCGM where its library is found; NVML alone tells where it is not")
	f.StringVar(&s.DCGMEngine, "dcgm-engine", source.EngineAuto, "DCGM's host engine: auto (the one at "+source.LocalEngine+" if one runs, else one in this process), embedded, HOST:PORT, or unix://PATH")
	f.StringVar(&s.NodeName, "node-name", cmp.Or(env.nodeName, env.hostname), "the label hostname of the DCGM_FI_* series")
	f.StringVar(&s.logLevel, "log-level", "info", "debug, info, warn or error")
	return c
}

// check completes the settings and refuses what cannot be used.
func (s *flags) check() error {
	abs, err := filepath.Abs(s.Dir)
	if s.Dir == "" || err != nil {
		return sharing.Invalid("--dir", s.Dir, "name the directory of the agent's sockets", "is not a directory's path")
	}
	s.Dir = abs
	if s.Interval < collect.ShortestInterval || s.Interval > time.Minute {
		return sharing.Invalid("--interval", s.Interval.String(), "write 100ms to 1m", "is not an interval that is kept")
	}
	if e := s.DCGMEngine; e != source.EngineAuto && e != source.EngineEmbedded && !strings.Contains(e, ":") {
		return sharing.Invalid("--dcgm-engine", e, "write auto, embedded, HOST:PORT or unix://PATH", "is no host engine")
	}
	if s.fieldsFile == "" {
		return nil
	}
	data, err := os.ReadFile(s.fieldsFile)
	if err != nil {
		return fmt.Errorf("--fields: %w", err)
	}
	if s.Fields, s.Others, err = exposition.ParseFields(string(data)); err != nil {
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
