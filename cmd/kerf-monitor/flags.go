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

	"github.com/kerf-gpu/kerf/internal/helptext"
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
	s := flags{Options: service.Options{Libraries: nvml.DefaultLibraryPaths(env.libraryPath), Version: version,
		Again: env.again}}
	c := &cobra.Command{
		Use:           "kerf-monitor --run-dir DIR",
		Short:         "Measure the usage of this machine's GPUs per grant",
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
	f.StringVar(&s.Dir, "run-dir", cmp.Or(env.dir, "/run/kerf"), "directory of the agent's sockets")
	f.StringVar(&s.Group, "group", "kerf",
		"group whose members may watch the stream; only root may if the group does not exist")
	f.StringVar(&s.HTTP, "metrics-bind-address", "127.0.0.1:9446",
		"TCP address of /metrics and /healthz; empty: none")
	f.DurationVar(&s.Interval, "interval", collect.DefaultInterval,
		"time between two samples, 100ms to 1m; a stream may request a shorter one")
	f.StringVar(&s.fieldsFile, "fields", "",
		"file in dcgm-exporter's format that selects the DCGM_FI_* series; empty: all")
	f.BoolVar(&s.HostCgroups, "host-cgroup-namespace", false,
		"in a container: join the host's cgroup namespace, to know the cgroup of each process")
	f.BoolVar(&s.DCGM, "dcgm", true, "use NVIDIA's DCGM if its library exists, else NVML only")
	f.StringVar(&s.DCGMEngine, "dcgm-engine", source.EngineAuto, "DCGM's host engine: auto (the one at "+
		source.LocalEngine+" if one runs, else one in this process), embedded, HOST:PORT, or unix://PATH")
	f.StringVar(&s.NodeName, "node-name", cmp.Or(env.nodeName, env.hostname),
		"the label hostname of the DCGM_FI_* series")
	f.StringVar(&s.logLevel, "log-level", "info", "least level of log lines: debug, info, warn or error")
	helptext.WrapFlags(c, 80)
	return c
}

// check completes the settings and refuses what cannot be used.
func (s *flags) check() error {
	abs, err := filepath.Abs(s.Dir)
	if s.Dir == "" || err != nil {
		return sharing.Invalid("--run-dir", s.Dir, "name the directory of the agent's sockets",
			"is not a directory's path")
	}
	s.Dir = abs
	if s.Interval < collect.ShortestInterval || s.Interval > time.Minute {
		return sharing.Invalid("--interval", s.Interval.String(), "write 100ms to 1m",
			"is not an interval that is kept")
	}
	if e := s.DCGMEngine; e != source.EngineAuto && e != source.EngineEmbedded && !strings.Contains(e, ":") {
		return sharing.Invalid("--dcgm-engine", e, "write auto, embedded, HOST:PORT or unix://PATH",
			"is no host engine")
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
