// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package ui

import (
	"strings"
	"testing"

	"github.com/kerf-gpu/kerf/internal/cli/command"
	"github.com/kerf-gpu/kerf/test/clitest"
)

func TestHelp(t *testing.T) { clitest.CheckHelp(t, clitest.New(nil).App.Root(Commands)) }

func TestWrongPort(t *testing.T) {
	p := clitest.New(nil)
	code, _ := p.App.Run(p.App.Root(Commands), strings.Fields("ui --port 70000"))
	if code != command.ExitUsage || !strings.Contains(p.ErrOut.String(), "is no port") {
		t.Errorf("status %d: %s", code, p.ErrOut.String())
	}
}
