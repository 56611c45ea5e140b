// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/kerf-gpu/kerf/internal/cli/command"
	"github.com/kerf-gpu/kerf/sharing/doctor/preset"
	"github.com/kerf-gpu/kerf/test/clitest"
)

// The program of the Job of kubectl kerf doctor --node writes one line of JSON, with the links of the node followed.
func TestNodeFiles(t *testing.T) {
	root := t.TempDir()
	clitest.WriteFile(t, root, "os-release", "PRETTY_NAME=\"A <system>\"\n", 0o600)
	if err := os.MkdirAll(filepath.Join(root, "etc"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/os-release", filepath.Join(root, "etc/os-release")); err != nil {
		t.Fatal(err)
	}
	p := clitest.New(nil)
	code, err := p.App.Execute([]string{"node-files", "--root=" + root, "--", "/etc/os-release", "/opt/kerf"}, Commands)
	var found preset.Files
	if unread := json.Unmarshal(p.Out.Bytes(), &found); code != command.ExitOK || err != nil || unread != nil {
		t.Fatalf("status %d, %v, %v: %s", code, err, unread, p.Out.String())
	}
	// A folder that is no root folder has unknown file systems.
	if found.OSImage != "A <system>" || found.Paths["/etc/os-release"] != (preset.Path{Kind: preset.File}) ||
		found.Paths["/opt/kerf"] != (preset.Path{}) || found.MountProblem == "" {
		t.Errorf("%+v", found)
	}
}
