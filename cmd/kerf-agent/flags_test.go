// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/test/clitest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestBadFlagsAreRefusedByName(t *testing.T) {
	tests := map[string]struct {
		args []string
		env  environment
		want string
	}{
		"stray argument":  {args: []string{"x"}, want: "x"},
		"unknown flag":    {args: []string{"--memory", "1"}, want: "--memory"},
		"empty dir":       {args: []string{"--run-dir", ""}, want: "--run-dir"},
		"dir too long":    {args: []string{"--run-dir", "/tmp/" + strings.Repeat("x", 120)}, want: "--run-dir"},
		"bad log level":   {args: []string{"--run-dir", "/tmp/kerf-none", "--log-level", "loud"}, want: "--log-level"},
		"label without =": {args: []string{"--node-label", "gpu"}, want: "node-label"},
		"no such failpoint": {args: []string{"--run-dir", "/tmp/kerf-none"},
			env: environment{failpoints: "no-such=error(x)"}, want: "no-such"},
		"bad failpoint": {args: []string{"--run-dir", "/tmp/kerf-none"}, env: environment{failpoints: "x=explode"},
			want: "KERF_FAILPOINTS"},
		"file for a dir": {args: []string{"--run-dir", "/dev/null"}, want: "--run-dir"},
		"no node name":   {args: []string{"--run-dir", "/tmp/kerf-none", "--kubernetes"}, want: "--node-name"},
		"no such map": {args: []string{"--run-dir", "/tmp/kerf-none", "--config-map", "kerf-config", "--kubernetes",
			"--node-name", "n"}, want: "--config-map"},
		"no such setting": {args: []string{"--run-dir", "/tmp/kerf-none", "--driver-access", "both"},
			want: "--driver-access"},
		"map, no cluster": {args: []string{"--run-dir", "/tmp/kerf-none", "--config-map", "a/b"},
			want: "--config-map"},
		"others may write": {args: []string{"--run-dir", "/tmp"}, want: "--run-dir"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if os.Geteuid() != 0 && strings.Contains(name, "dir") {
				t.Skip("the agent requests root before it looks at the directory:", sharing.ErrDenied)
			}
			c := command(tc.env, func(string) { t.Error("killed") })
			c.SetArgs(tc.args)
			c.SetErr(io.Discard)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			err := c.ExecuteContext(ctx)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%v, want it to name %s", err, tc.want)
			}
		})
	}
}

func TestHelp(t *testing.T) { clitest.CheckHelp(t, command(environment{}, nil)) }
