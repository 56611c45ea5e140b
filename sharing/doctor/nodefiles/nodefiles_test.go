// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package nodefiles

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kerf-gpu/kerf/sharing/doctor/preset"
)

// prepared is the root folder of a node, with its files and links. It returns the mount table of a process that has
// the folder mounted read-only.
func prepared(t *testing.T) (root, own string) {
	t.Helper()
	// Sockets have at most 107 characters, which the folders of long test names exceed.
	root, err := os.MkdirTemp("", "node")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(root) })
	for name, text := range map[string]string{
		"usr/lib/os-release": "ID=x\nPRETTY_NAME=\"System \\\"1\\\"\"\n",
		"opt/file":           "",
		"proc/1/mountinfo": "28 1 8:1 / / rw - ext4 /dev/sda1 rw\n29 28 0:9 / /run rw,noexec - tmpfs tmpfs rw\n" +
			"30 28 8:2 / /usr rw - ext4 /dev/sda2 ro\n",
	} {
		write(t, filepath.Join(root, name), text)
	}
	for _, dir := range []string{"etc", "run/deep", "var"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for link, target := range map[string]string{"etc/os-release": "../../../usr/lib/os-release", "var/run": "/run",
		"var/loop": "loop", "var/lost": "/nowhere/x"} {
		if err := os.Symlink(target, filepath.Join(root, link)); err != nil {
			t.Fatal(err)
		}
	}
	own = filepath.Join(t.TempDir(), "own")
	write(t, own, "5 4 0:7 / / rw - overlay overlay rw\n6 5 8:1 / "+root+" ro - ext4 /dev/sda1 rw\n")
	return root, own
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func listen(t *testing.T, path string) *net.UnixListener {
	t.Helper()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// Examine follows the links of the node, and reads the flags of the node's file systems.
func TestExamine(t *testing.T) {
	root, own := prepared(t)
	listen(t, filepath.Join(root, "run/live.sock"))
	stale := listen(t, filepath.Join(root, "run/stale.sock"))
	stale.SetUnlinkOnClose(false)
	if err := stale.Close(); err != nil {
		t.Fatal(err)
	}
	plain, run := &preset.Mount{}, &preset.Mount{NoExec: true}
	want := preset.Files{OSImage: `System "1"`, Paths: map[string]preset.Path{
		"/var/run/live.sock": {Kind: preset.Socket, Listens: true, Mount: run},
		"/run/stale.sock":    {Kind: preset.Socket, Mount: run},
		"/var/run/deep":      {Kind: preset.Folder, Mount: run},
		"/opt/file":          {Kind: preset.File, Mount: plain},
		"/opt/kerf/new":      {Mount: plain},
		"/usr/new":           {Mount: &preset.Mount{ReadOnly: true}},
		"/var/lost":          {Mount: plain},
		"/":                  {Kind: preset.Folder, Mount: plain},
		"/var/loop":          {Problem: "examine path /var/loop: more than 40 links"},
		"/opt/file/x":        {Problem: "examine path /opt/file/x: lstat /opt/file/x: not a directory"},
	}}
	var paths []string
	for p := range want.Paths {
		paths = append(paths, p)
	}
	if diff := cmp.Diff(want, examine(t.Context(), root, own, paths)); diff != "" {
		t.Error(diff)
	}
}

// Flags of a table that is not the node's are unknown, and so are they without a table.
func TestExamineWithoutMounts(t *testing.T) {
	root, own := prepared(t)
	for name, tt := range map[string]struct{ table, want string }{
		"another root":     {"28 1 8:9 / / rw - ext4 /dev/sda9 rw\n", "not the root folder"},
		"a part of a disk": {"28 1 8:1 /part / rw - ext4 /dev/sda1 rw\n", "not the root folder"},
		"an empty table":   {"", "not the root folder"},
	} {
		write(t, filepath.Join(root, "proc/1/mountinfo"), tt.table)
		got := examine(t.Context(), root, own, []string{"/opt/file"})
		if got.Paths["/opt/file"] != (preset.Path{Kind: preset.File}) || !strings.Contains(got.MountProblem, tt.want) {
			t.Errorf("%s: %+v", name, got)
		}
	}
	if err := os.Remove(filepath.Join(root, "proc/1/mountinfo")); err != nil {
		t.Fatal(err)
	}
	if got := examine(t.Context(), root, own, nil); !strings.Contains(got.MountProblem, "no such file") {
		t.Errorf("no table: %+v", got)
	}
}

// A node without os-release has no name, and a missing root folder is a problem of each path.
func TestExamineNothing(t *testing.T) {
	got := Examine(t.Context(), filepath.Join(t.TempDir(), "missing"), []string{"/etc"})
	if got.OSImage != "" || !strings.Contains(got.Paths["/etc"].Problem, "no such file") {
		t.Errorf("%+v", got)
	}
	// This process has its own root folder at "/".
	if got := Examine(t.Context(), "/", []string{"/"}); got.Paths["/"].Kind != preset.Folder ||
		got.Paths["/"].Mount == nil || got.MountProblem != "" {
		t.Errorf("%+v", got)
	}
}

func TestPrettyName(t *testing.T) {
	for text, want := range map[string]string{
		"PRETTY_NAME=Plain": "Plain", "PRETTY_NAME='Single quotes'": "Single quotes", "NAME=x": "",
		"NAME=x\nPRETTY_NAME=\"Two words\"\nID=y": "Two words",
	} {
		if got := prettyName(strings.NewReader(text)); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}
