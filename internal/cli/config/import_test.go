// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"strings"
	"testing"

	"github.com/kerf-gpu/kerf/internal/cli/command"
	"github.com/kerf-gpu/kerf/sharing/config"
	"github.com/kerf-gpu/kerf/test/clitest"
)

func TestConfigImport(t *testing.T) {
	run := func(in string) (string, string, int) {
		p := clitest.New(nil)
		p.App.In = strings.NewReader(in)
		code, _ := p.App.Execute([]string{"config", "import", "-"}, Commands)
		return p.Out.String(), p.ErrOut.String(), code
	}
	out, errOut,
		code := run("version: v1\nsharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 4}]}}\n")
	c, err := config.Decode([]byte(out))
	if err != nil || code != command.ExitOK || len(c.Profiles()) != 1 ||
		!strings.Contains(errOut, "kerf config import: one of 4 replicas") {
		t.Errorf("status %d: %v: %s%s", code, err, out, errOut)
	}
	if out, errOut, code = run("version: v1\nimex: {channelIDs: [0]}\n"); code != command.ExitFailure || out != "" ||
		!strings.Contains(errOut, "line 2: imex.channelIDs[]") {
		t.Errorf("status %d: %s%s", code, out, errOut)
	}
}
