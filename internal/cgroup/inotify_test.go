// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"bufio"
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// inotifyEnv makes the test program watch cgroups under a limit of inotify. Its value is the limit, then the
// cgroups as INODE:DIR.
const inotifyEnv = "KERF_TEST_INOTIFY"

// watchUnderLimit sets a limit in its own user namespace. Then it prints each cgroup that becomes empty.
func watchUnderLimit(task string) error {
	fields := strings.Fields(task)
	name, value, _ := strings.Cut(fields[0], "=")
	if err := os.WriteFile(path.Join("/proc/sys/user", name), []byte(value), 0); err != nil {
		return err
	}
	h, err := Default()
	if err != nil {
		return err
	}
	w := NewWatcher(5*time.Millisecond, slog.New(slog.NewTextHandler(os.Stdout, nil)))
	for _, field := range fields[1:] {
		inode, dir, _ := strings.Cut(field, ":")
		n, err := strconv.ParseUint(inode, 10, 64)
		if err != nil {
			return err
		}
		g, err := h.Open(dir, n)
		if err != nil {
			return err
		}
		w.Add(g)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	left := len(fields) - 1
	return w.Run(ctx, func(g Group) {
		fmt.Println("empty", path.Base(g.Dir))
		if left--; left == 0 {
			cancel()
		}
	})
}

// The kernel's own limits of inotify leave polling: a group that is not marked is found empty all the same.
func TestWatcherUnderLimits(t *testing.T) {
	for limit, want := range map[string]string{
		"max_inotify_instances=0": "too many open files",
		"max_inotify_watches=1":   "no space left on device",
	} {
		t.Run(limit, func(t *testing.T) {
			h, base := scratch(t)
			task := limit
			var end []func()
			for _, name := range []string{"one", "two"} {
				g, err := h.Create(base + "/" + name)
				if err != nil {
					t.Fatal(err)
				}
				pid, stop := sleeper(t)
				if err := g.Add(pid); err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() {
					stop()
					emptied(t, g)
					if err := g.Remove(); err != nil {
						t.Error(err)
					}
				})
				task, end = fmt.Sprintf("%s %d:%s", task, g.Inode, g.Dir), append(end, stop)
			}
			lines := underLimit(t, task)
			warned, empty := 0, []string{}
			for line := range lines {
				if strings.Contains(line, "will poll") && strings.Contains(line, want) {
					if warned++; warned == 1 {
						end[0]()
						end[1]()
					}
				} else if name, ok := strings.CutPrefix(line, "empty "); ok {
					empty = append(empty, name)
				} else {
					t.Error(line)
				}
			}
			if warned != 1 || len(empty) != 2 {
				t.Errorf("%d warnings, empty: %q", warned, empty)
			}
		})
	}
}

// underLimit runs watchUnderLimit in a separate user namespace, whose limits affect no other process, and returns its
// lines.
func underLimit(t *testing.T, task string) <-chan string {
	t.Helper()
	root := []syscall.SysProcIDMap{{Size: 1}}
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), inotifyEnv+"="+task)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER, UidMappings: root, GidMappings: root}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = cmd.Stdout
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := make(chan string)
	go func() {
		defer close(lines)
		for scan := bufio.NewScanner(out); scan.Scan(); {
			lines <- scan.Text()
		}
		if err := cmd.Wait(); err != nil {
			lines <- err.Error()
		}
	}()
	return lines
}
