// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/node/cluster"
	"github.com/kerf-gpu/kerf/sharing/node/session"
	"github.com/kerf-gpu/kerf/sharing/node/settings"
)

// The state of an earlier agent moves to a folder that survives a reboot. The old name leads to it, so that an older
// agent goes on with it.
func TestStateOutlivesAReboot(t *testing.T) {
	for _, c := range []struct {
		name string
		// below and there are what lies in --run-dir and in --state-dir; nil where the directory is not there.
		below, there, want map[string]string
		link               string
	}{
		{name: "the first start", want: map[string]string{}},
		{
			name: "after an older agent", below: map[string]string{"mig/GPU-1.json": "new", "mig/GPU-2.json": "b",
				settings.LastGood: "rules", cluster.CordonsFile: "cordons"},
			want: map[string]string{"mig/GPU-1.json": "new", "mig/GPU-2.json": "b", settings.LastGood: "rules",
				cluster.CordonsFile: "cordons"},
		},
		{
			name:  "cut off while it was moved, or an older one without the links since",
			below: map[string]string{"mig/GPU-1.json": "new", settings.LastGood: "new rules"},
			there: map[string]string{"mig/GPU-1.json": "old", "mig/GPU-2.json": "b", settings.LastGood: "old rules",
				cluster.CordonsFile: "cordons"},
			want: map[string]string{"mig/GPU-1.json": "new", "mig/GPU-2.json": "b", settings.LastGood: "new rules",
				cluster.CordonsFile: "cordons"},
		},
		{name: "after a reboot", there: map[string]string{"mig/GPU-1.json": "a", settings.LastGood: "rules"},
			want: map[string]string{"mig/GPU-1.json": "a", settings.LastGood: "rules"}},
		{name: "links elsewhere", link: "/nowhere", there: map[string]string{"mig/GPU-1.json": "a",
			settings.LastGood: "rules"}, want: map[string]string{"mig/GPU-1.json": "a", settings.LastGood: "rules"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			root := t.TempDir()
			dir, state := filepath.Join(root, "run"), filepath.Join(root, "lib", "state")
			if err := os.Mkdir(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			put(t, dir, map[string]string{"record.json": "stays"})
			put(t, dir, c.below)
			put(t, state, c.there)
			if c.link != "" {
				for _, name := range lasting() {
					if err := os.Symlink(c.link, filepath.Join(dir, name)); err != nil {
						t.Fatal(err)
					}
				}
			}
			for range 2 { // a second start changes nothing
				got, err := stateDirectory(dir, state)
				if err != nil || got != state {
					t.Fatalf("state in %q (%v), want %q", got, err, state)
				}
				if err := takeState(dir, state); err != nil {
					t.Fatal(err)
				}
				for _, in := range []string{state, dir} {
					if diff := cmp.Diff(c.want, contents(t, in)); diff != "" {
						t.Errorf("in %s (-want +got):\n%s", in, diff)
					}
				}
			}
			if got, err := stateDirectory(dir, ""); err != nil || got != dir {
				t.Errorf("without --state-dir: %q (%v)", got, err)
			}
			if text, err := os.ReadFile(filepath.Join(dir, "record.json")); err != nil || string(text) != "stays" {
				t.Errorf("what need not outlive a reboot: %q (%v)", text, err)
			}
		})
	}
}

// The directory that is named may be the one that there is, by that name or another.
func TestStateWhereItIs(t *testing.T) {
	dir := t.TempDir()
	other := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(dir, other); err != nil {
		t.Fatal(err)
	}
	for _, named := range []string{dir, other} {
		if got, err := stateDirectory(dir, named); err != nil || got != dir {
			t.Errorf("%s: %q (%v)", named, got, err)
		}
	}
}

// What tells Kerf's instances from another's is read from no place that others may write.
func TestStateOfOthersIsRefused(t *testing.T) {
	state := t.TempDir()
	if err := os.Chmod(state, 0o777); err != nil {
		t.Fatal(err)
	}
	if _, err := stateDirectory(t.TempDir(), state); !errors.Is(err, sharing.ErrInvalid) ||
		!strings.Contains(err.Error(), "--state-dir") {
		t.Errorf("a directory into which others may write: %v", err)
	}
}

// put makes files, named relative to dir.
func put(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// contents are the lasting files that are found below dir, also through links.
func contents(t *testing.T, dir string) map[string]string {
	t.Helper()
	journals, err := filepath.Glob(filepath.Join(dir, session.MIGDir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for _, path := range append(journals, filepath.Join(dir, settings.LastGood),
		filepath.Join(dir, cluster.CordonsFile)) {
		data, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			t.Fatal(err)
		}
		files[name] = string(data)
	}
	return files
}
