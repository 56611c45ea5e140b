// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kerf-gpu/kerf/sharing"
)

// Journals of an agent before this one are moved to where a reboot leaves them, whatever was there, and are found by
// the old name too, so that an older agent goes on with them.
func TestJournalsOutliveAReboot(t *testing.T) {
	for _, c := range []struct {
		name string
		// below and there are what lies in mig below --dir and in --mig-dir; nil where the directory is not there.
		below, there, want map[string]string
		link               string
	}{
		{name: "the first start", want: map[string]string{}},
		{name: "after an older agent", below: map[string]string{"GPU-1.json": "new", "GPU-2.json": "b"}, want: map[string]string{"GPU-1.json": "new", "GPU-2.json": "b"}},
		{
			name: "cut off while they were moved, or an older one without the link since", below: map[string]string{"GPU-1.json": "new"},
			there: map[string]string{"GPU-1.json": "old", "GPU-2.json": "b"}, want: map[string]string{"GPU-1.json": "new", "GPU-2.json": "b"},
		},
		{name: "after a reboot", there: map[string]string{"GPU-1.json": "a"}, want: map[string]string{"GPU-1.json": "a"}},
		{name: "a link elsewhere", link: "/nowhere", there: map[string]string{"GPU-1.json": "a"}, want: map[string]string{"GPU-1.json": "a"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			root := t.TempDir()
			dir, lasting := filepath.Join(root, "run"), filepath.Join(root, "lib", "mig")
			if err := os.Mkdir(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			put(t, filepath.Join(dir, migDir), c.below)
			put(t, lasting, c.there)
			if c.link != "" {
				if err := os.Symlink(c.link, filepath.Join(dir, migDir)); err != nil {
					t.Fatal(err)
				}
			}
			for range 2 { // a second start changes nothing
				got, err := journals(dir, lasting)
				if err != nil || got != lasting {
					t.Fatalf("journals in %q (%v), want %q", got, err, lasting)
				}
				for _, in := range []string{lasting, filepath.Join(dir, migDir)} {
					if diff := cmp.Diff(c.want, contents(t, in)); diff != "" {
						t.Errorf("in %s (-want +got):\n%s", in, diff)
					}
				}
			}
			if below, err := journals(dir, ""); err != nil || below != filepath.Join(dir, migDir) {
				t.Errorf("without --mig-dir: %q (%v)", below, err)
			}
			if diff := cmp.Diff(c.want, contents(t, filepath.Join(dir, migDir))); diff != "" {
				t.Errorf("for an agent without --mig-dir (-want +got):\n%s", diff)
			}
		})
	}
}

// The directory that is named may be the one that there is.
func TestJournalsWhereTheyAre(t *testing.T) {
	dir := t.TempDir()
	below := filepath.Join(dir, migDir)
	put(t, below, map[string]string{"GPU-1.json": "a"})
	if got, err := journals(dir, below); err != nil || got != below {
		t.Fatalf("%q (%v)", got, err)
	}
	if diff := cmp.Diff(map[string]string{"GPU-1.json": "a"}, contents(t, below)); diff != "" {
		t.Error(diff)
	}
}

// What tells Kerf's instances from another's is read from no place that others may write.
func TestJournalsOfOthersAreRefused(t *testing.T) {
	lasting := t.TempDir()
	if err := os.Chmod(lasting, 0o777); err != nil {
		t.Fatal(err)
	}
	if _, err := journals(t.TempDir(), lasting); !errors.Is(err, sharing.ErrInvalid) || !strings.Contains(err.Error(), "--mig-dir") {
		t.Errorf("a directory into which others may write: %v", err)
	}
}

func put(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	if files == nil {
		return
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func contents(t *testing.T, dir string) map[string]string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for _, e := range entries {
		data, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		files[e.Name()] = string(data)
	}
	return files
}
