// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package kubectl

import (
	"strings"
	"testing"

	"github.com/kerf-gpu/kerf/internal/cli/command"
	"github.com/kerf-gpu/kerf/test/clitest"
)

func TestHelp(t *testing.T) { clitest.CheckHelp(t, clitest.New(nil).App.Root(Commands)) }

// Each command for a cluster is there, and works as in kerf.
func TestCommandsForACluster(t *testing.T) {
	root := Root(clitest.New(nil).App)
	for _, line := range []string{"status", "top", "describe pod", "usage", "doctor", "config plan", "config diff",
		"config validate", "config migrate", "config import", "simulate", "translate", "mig status", "mig import",
		"cordon", "uncordon", "drain", "run", "ui", "version"} {
		if c, rest, err := root.Find(strings.Fields(line)); err != nil || len(rest) != 0 || !c.Runnable() {
			t.Errorf("%s: found %v with %q left: %v", line, c, rest, err)
		}
	}
	f := clitest.StartCluster(t, Commands)
	if out, errOut, code := f.Call("status", "-o", "json"); code != command.ExitOK || !strings.Contains(out, "nodes") {
		t.Errorf("status: status %d: %s%s", code, out, errOut)
	}
}

func TestCommandsForAMachineNameTheirProgram(t *testing.T) {
	for _, line := range []string{"mig apply", "mig plan"} {
		p := clitest.New(nil)
		code, _ := p.App.Run(Root(p.App), strings.Fields(line))
		if code != command.ExitFailure || !strings.Contains(p.ErrOut.String(), "run kerf on the node") {
			t.Errorf("%s: status %d: %s", line, code, p.ErrOut.String())
		}
	}
	p := clitest.New(nil)
	if code, _ := p.App.Run(Root(p.App), []string{"oci", "patch", "x"}); code != command.ExitUsage {
		t.Errorf("oci: status %d: %s", code, p.ErrOut.String())
	}
}
