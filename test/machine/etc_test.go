// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package machine_test

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// withEtc runs it where another folder is /etc.
func withEtc(folder string) how {
	return func(c *exec.Cmd) {
		script := `mount --bind "$0" /etc && exec "$@"`
		c.Args = append([]string{"unshare", "-m", "sh", "-c", script, folder, c.Path}, c.Args[1:]...)
		c.Path = "/usr/bin/unshare"
	}
}

// etcCopy is a copy of /etc without the loader's file, and its entries.
func etcCopy(t *testing.T, work string) (folder string, entries []string) {
	t.Helper()
	folder = filepath.Join(work, "etc")
	if out, err := exec.Command("cp", "-a", "/etc", folder).CombinedOutput(); err != nil {
		t.Fatalf("copy /etc: %v\n%s", err, out)
	}
	if err := os.Remove(filepath.Join(folder, "ld.so.preload")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return folder, entriesOf(t, folder)
}

func entriesOf(t *testing.T, folder string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// On a machine without the loader's file, a command is still held to its cap whatever it does to its environment, and
// the machine's /etc stays as it is.
func TestRunLeavesEtcAlone(t *testing.T) {
	t.Parallel()
	m := newPreloading(t, "")
	etc, before := etcCopy(t, m.work)
	argv := append([]string{"env", "-u", "LD_PRELOAD"}, load("--alloc 3GiB --step 256MiB --hold 1h")...)
	r := m.run(flags("--memory 2GiB --name quiet"), argv, withEtc(etc))
	wantLoad(t, r.loads(1)[0], oom, 2*gib-contextT4-256*mib, 2*gib)
	if s := r.granted(); s.Level != "userspace" || strings.Contains(s.LevelReason, "LD_PRELOAD") {
		t.Errorf("level %q: %q", s.Level, s.LevelReason)
	}
	if during := entriesOf(t, etc); !slices.Equal(during, before) {
		t.Errorf("while it runs, /etc has %q, and had %q before", during, before)
	}
	seen := m.run(flags("--memory 1GiB --name seen"), []string{"sh", "-c", "ls -A /etc"}, withEtc(etc))
	got := seen.wait()
	want := slices.Sorted(slices.Values(append(slices.Clone(before), "ld.so.preload")))
	if names := strings.Fields(got.out); got.code != 0 || !slices.Equal(slices.Sorted(slices.Values(names)), want) {
		t.Errorf("%v: the command sees %q, want %q", got, names, want)
	}
	if after := entriesOf(t, etc); !slices.Equal(after, before) {
		t.Errorf("afterwards /etc has %q, and had %q before", after, before)
	}
}
