// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package run

import (
	"strings"
	"testing"

	"github.com/kerf-gpu/kerf/test/clitest"
)

func TestRunRefusesFlagsOfTheOther(t *testing.T) {
	f := clitest.StartCluster(t, Commands)
	if _, errOut, code := f.Call("run", "--memory", "1GiB", "--image", "i", "-v", "/a:/b"); code != exitRefused ||
		!strings.Contains(errOut, "--volume is for one machine alone") {
		t.Errorf("in a cluster: status %d: %s", code, errOut)
	}
	p := clitest.New(nil)
	if code, _ := p.App.Execute([]string{"run", "--run-dir", t.TempDir(), "--memory", "1GiB", "--keep", "--", "a"},
		Commands); code != exitRefused || !strings.Contains(p.ErrOut.String(), "--keep is for a cluster alone") {
		t.Errorf("on a machine: status %d: %s", code, p.ErrOut.String())
	}
}
