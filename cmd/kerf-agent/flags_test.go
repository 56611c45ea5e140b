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
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestBadFlagsAreRefusedByName(t *testing.T) {
	tests := map[string]struct {
		args []string
		env  environment
		want string
	}{
		"stray argument":    {args: []string{"x"}, want: "x"},
		"unknown flag":      {args: []string{"--memory", "1"}, want: "--memory"},
		"empty dir":         {args: []string{"--dir", ""}, want: "--dir"},
		"dir too long":      {args: []string{"--dir", "/tmp/" + strings.Repeat("x", 120)}, want: "--dir"},
		"bad log level":     {args: []string{"--dir", "/tmp/kerf-none", "--log-level", "loud"}, want: "--log-level"},
		"label without =":   {args: []string{"--node-label", "gpu"}, want: "node-label"},
		"no such failpoint": {args: []string{"--dir", "/tmp/kerf-none"}, env: environment{failpoints: "no-such=error(x)"}, want: "no-such"},
		"bad failpoint":     {args: []string{"--dir", "/tmp/kerf-none"}, env: environment{failpoints: "x=explode"}, want: "KERF_FAILPOINTS"},
		"file for a dir":    {args: []string{"--dir", "/dev/null"}, want: "--dir"},
		"no node name":      {args: []string{"--dir", "/tmp/kerf-none", "--kubernetes"}, want: "--node-name"},
		"no such map":       {args: []string{"--dir", "/tmp/kerf-none", "--config-map", "kerf-config", "--kubernetes", "--node-name", "n"}, want: "--config-map"},
		"no such setting":   {args: []string{"--dir", "/tmp/kerf-none", "--driver-by", "both"}, want: "--driver-by"},
		"map, no cluster":   {args: []string{"--dir", "/tmp/kerf-none", "--config-map", "a/b"}, want: "--config-map"},
		"others may write":  {args: []string{"--dir", "/tmp"}, want: "--dir"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if os.Geteuid() != 0 && strings.Contains(name, "dir") {
				t.Skip("the agent asks for root before it looks at the directory:", sharing.ErrDenied)
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
