// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/kerf-gpu/kerf/sharing"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestQuoteSurvivesTheShell(t *testing.T) {
	for _, s := range []string{"", "/plain/path", "a b", "it's", `"$HOME" \ *`, "line\nend", "`id`", "~", "!!", "é"} {
		out, err := exec.Command("sh", "-c", "printf %s "+Quote(s)).Output()
		if err != nil || string(out) != s {
			t.Errorf("%q became %q, %v", s, out, err)
		}
	}
}

func FuzzQuote(f *testing.F) {
	f.Add("a b'c")
	f.Fuzz(func(t *testing.T, s string) {
		q := Quote(s)
		if q == s {
			return
		}
		// Outside of '...' there is nothing but \'.
		if got := strings.ReplaceAll(q[1:len(q)-1], `'\''`, "'"); got != s || q[0] != '\'' || q[len(q)-1] != '\'' {
			t.Fatalf("%q is quoted as %q", s, q)
		}
	})
}

func TestDirRefuses(t *testing.T) {
	for _, given := range []string{"", "/a:b", "/a;b", "/a$b", "/a\nb", "/" + strings.Repeat("x", 200)} {
		if dir, err := Dir(given); !errors.Is(err, sharing.ErrInvalid) || !strings.Contains(err.Error(), "--dir") {
			t.Errorf("%q: %q, %v", given, dir, err)
		}
	}
	if dir, err := Dir("a/../b"); err != nil || !filepath.IsAbs(dir) || filepath.Base(dir) != "b" {
		t.Errorf("a relative path: %q, %v", dir, err)
	}
	if _, err := ExistingDir(filepath.Join(t.TempDir(), "none")); !errors.Is(err, sharing.ErrNotFound) {
		t.Errorf("no directory: %v", err)
	}
}

// libraries makes a folder of libraries with those names. Each contains its path.
func libraries(t *testing.T, driver string, names ...string) string {
	t.Helper()
	dir := t.TempDir()
	for _, n := range names {
		p := filepath.Join(dir, driver, n)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(p), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestInstallReplacesAnotherDriver(t *testing.T) {
	node := t.TempDir()
	old := libraries(t, "r1", "libcuda.so.1", "libnvidia-ml.so.1", "libold.so")
	if err := Install(old, "r1", node); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(node, "lib", "notes.txt"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	from := libraries(t, "r2", "libcuda.so.1", "libnvidia-ml.so.1", "libnvidia-ml.so", "readme")
	if err := Install(from, "r2", node); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(filepath.Join(node, "lib"))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if d := cmp.Diff([]string{"libcuda.so.1", "libnvidia-ml.so", "libnvidia-ml.so.1", "notes.txt"}, names); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	p := filepath.Join(node, "lib", "libcuda.so.1")
	data, err := os.ReadFile(p)
	info, err2 := os.Stat(p)
	if err != nil || err2 != nil || string(data) != filepath.Join(from, "r2", "libcuda.so.1") ||
		info.Mode() != publicFile {
		t.Errorf("%q, %v, %v, %v", data, info, err, err2)
	}
}

func TestInstallNeedsTheLibraries(t *testing.T) {
	node := t.TempDir()
	from := libraries(t, "r1", "libcuda.so.1")
	for _, driver := range []string{"r1", "r2"} {
		err := Install(from, driver, node)
		if !errors.Is(err, sharing.ErrNotFound) || !strings.Contains(err.Error(), "--lib-dir") {
			t.Errorf("%s: %v", driver, err)
		}
	}
	if _, err := os.Stat(filepath.Join(node, "lib")); !os.IsNotExist(err) {
		t.Errorf("a refused install left something: %v", err)
	}
	if _, err := Env(node); !errors.Is(err, sharing.ErrNotFound) {
		t.Errorf("env of no node: %v", err)
	}
}

func TestEnvWorksInAShell(t *testing.T) {
	node := filepath.Join(t.TempDir(), "a b")
	if err := Make(node); err != nil {
		t.Fatal(err)
	}
	if err := Install(libraries(t, "r1", required()...), "r1", node); err != nil {
		t.Fatal(err)
	}
	text, err := Env(node)
	if err != nil {
		t.Fatal(err)
	}
	space, err := os.Readlink("/proc/self/ns/pid")
	if err != nil {
		t.Fatal(err)
	}
	for before, want := range map[string]string{"": node + "/lib", "/x y": node + "/lib:/x y"} {
		cmd := exec.Command("sh", "-c", text+
			`printf '%s|%s|pid:[%s]' "$LD_LIBRARY_PATH" "$NVIDIA_DEV_ROOT" "$KERF_TEST_PID_NAMESPACE"`)
		cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "LD_LIBRARY_PATH=" + before}
		out, err := cmd.Output()
		if err != nil || string(out) != want+"|"+node+"|"+space {
			t.Errorf("with %q: %q, %v", before, out, err)
		}
	}
}

func TestStopLeavesOtherProcesses(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	dir := t.TempDir()
	other := exec.Command("sleep", "60")
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	defer other.Wait()
	defer other.Process.Kill()
	// A daemon was killed, and its process id is another's now.
	pid := []byte(strconv.Itoa(other.Process.Pid) + "\n")
	if err := os.WriteFile(filepath.Join(dir, "gpusim.pid"), pid, 0o600); err != nil {
		t.Fatal(err)
	}
	if pid, err := Stop(ctx, dir); pid != 0 || err != nil {
		t.Errorf("%d, %v", pid, err)
	}
	if err := other.Process.Signal(syscall.Signal(0)); err != nil {
		t.Errorf("the other process is gone: %v", err)
	}
	if _, err := os.Stat(filepath.Join(dir, "gpusim.pid")); !os.IsNotExist(err) {
		t.Errorf("the stale file is left: %v", err)
	}
	if pid, err := Stop(ctx, filepath.Join(dir, "none")); pid != 0 || err != nil {
		t.Errorf("no directory: %d, %v", pid, err)
	}
}

func TestStartTellsWhyNot(t *testing.T) {
	script := func(body string) string {
		p := filepath.Join(t.TempDir(), "daemon.sh")
		if err := os.WriteFile(p, []byte("#!/bin/sh\n"+body+"\n"), 0o700); err != nil {
			t.Fatal(err)
		}
		return p
	}
	tests := map[string]struct {
		path, want string
		wait       time.Duration
	}{
		"says why":      {script("echo 'no room' >&3; exit 1"), "no room", time.Minute},
		"ends silently": {script("exit 3"), "gpusim.log", time.Minute},
		"hangs":         {script("exec sleep 60"), "does not become ready", 100 * time.Millisecond},
		"is not there":  {"/none", "no such file", time.Minute},
		"lies":          {script("echo ready >&3"), "no simulated driver runs", time.Minute},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(context.Background(), tt.wait)
			defer cancel()
			_, err := Start(ctx, t.TempDir(), Program{Path: tt.path})
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q in it", err, tt.want)
			}
		})
	}
}
