// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package process

import (
	"bufio"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/kerf-gpu/kerf/sharing"
)

// TestBootOffsetOfAProcess asks the real kernel about a process in a time namespace, which reads its own start time.
func TestBootOffsetOfAProcess(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("making a time namespace needs root:", sharing.ErrDenied)
	}
	cmd := exec.Command("unshare", "-T", "--boottime", "5000", "--fork", "sh", "-c", "cat /proc/$$/stat; read end")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = in.Close(); _ = cmd.Wait() }()
	line, err := bufio.NewReader(out).ReadBytes('\n')
	if err != nil {
		t.Fatal(err)
	}
	own, err := parseStat(line)
	if err != nil {
		t.Fatal(err)
	}
	offset, err := BootOffset(own.pid)
	start, err2 := StartOf(own.pid)
	if err != nil || err2 != nil || offset != 5000*time.Second || own.start != start+5000*ticksPerSecond {
		t.Errorf("offset %s, started at %d, and by its own clock at %d: %v %v", offset, start, own.start, err, err2)
	}
	if offset, err := BootOffset(cmd.Process.Pid); err == nil && offset != 0 || err != nil &&
		!errors.Is(err, sharing.ErrUnsupported) {
		t.Errorf("of its parent: %s %v", offset, err)
	}
	if offset, err := BootOffset(os.Getpid()); offset != 0 || err != nil {
		t.Errorf("of this process: %s %v", offset, err)
	}
	if _, err := BootOffset(1 << 30); !errors.Is(err, sharing.ErrNotFound) {
		t.Errorf("of no process: %v", err)
	}
}

// TestBootOffset reads folders that look like /proc/PID.
func TestBootOffset(t *testing.T) {
	const offsets = "monotonic          1         0\nboottime         100 500000000\n"
	folder := func(space, children, text string) string {
		dir := t.TempDir()
		if space == "" {
			return dir // an old kernel
		}
		err := errors.Join(os.Mkdir(filepath.Join(dir, "ns"), 0o700),
			os.Symlink(space, filepath.Join(dir, timeSpaceFile)),
			os.Symlink(children, filepath.Join(dir, childrenSpaceFile)), os.WriteFile(filepath.Join(dir, offsetsFile),
				[]byte(text), 0o600))
		if err != nil {
			t.Fatal(err)
		}
		return dir
	}
	const zero = "monotonic 0 0\nboottime 0 0\n"
	for name, tt := range map[string]struct {
		own, other string
		want       time.Duration
		err        error
	}{
		"an old kernel": {folder("", "", ""), folder("", "", ""), 0, nil},
		"the same namespace": {folder("time:[1]", "time:[2]", ""), folder("time:[1]", "time:[3]", ""), 0,
			nil},
		"another": {folder("time:[1]", "time:[1]", zero), folder("time:[2]", "time:[2]", offsets),
			100*time.Second + 500*time.Millisecond, nil},
		"both have one": {folder("time:[1]", "time:[1]", "boottime 99 0\n"),
			folder("time:[2]", "time:[2]", offsets), 1500 * time.Millisecond, nil},
		"behind": {folder("time:[1]", "time:[1]", zero),
			folder("time:[2]", "time:[2]", "boottime -3 1\n"), -3*time.Second + 1, nil},
		"its children have another": {folder("time:[1]", "time:[1]", zero), folder("time:[2]", "time:[3]", offsets),
			0, sharing.ErrUnsupported},
		"it has ended": {folder("time:[1]", "time:[1]", zero), filepath.Join(t.TempDir(), "none"), 0,
			sharing.ErrNotFound},
		"no number": {folder("time:[1]", "time:[1]", zero),
			folder("time:[2]", "time:[2]", "boottime x 0\n"), 0, sharing.ErrUnavailable},
		"more seconds than there are": {folder("time:[1]", "time:[1]", zero),
			folder("time:[2]", "time:[2]", "boottime 99999999999 0\n"), 0, sharing.ErrUnavailable},
		"more nanoseconds than second": {folder("time:[1]", "time:[1]", zero),
			folder("time:[2]", "time:[2]", "boottime 1 1000000000\n"), 0, sharing.ErrUnavailable},
		"no boot clock": {folder("time:[1]", "time:[1]", zero), folder("time:[2]", "time:[2]", "monotonic 1 0\n"), 0,
			sharing.ErrUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := bootOffset(tt.own, tt.other)
			if !errors.Is(err, tt.err) || err == nil && got != tt.want {
				t.Errorf("%s, %v, want %s, %v", got, err, tt.want, tt.err)
			}
		})
	}
}
