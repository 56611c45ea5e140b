// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/kerf-gpu/kerf/sharing"
)

func TestMain(m *testing.M) {
	if task := os.Getenv(inotifyEnv); task != "" {
		if err := watchUnderLimit(task); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// scratch returns the machine's hierarchy and a path in it that is this test's own and is removed after it.
func scratch(t *testing.T) (Hierarchy, string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("not root: cgroups cannot be made")
	}
	h, err := Default()
	if errors.Is(err, sharing.ErrUnsupported) {
		t.Skip("not supported:", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	base := fmt.Sprintf("kerf-test-%d-%s", os.Getpid(), strings.ReplaceAll(t.Name(), "/", "-"))
	g, err := h.Create(base)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		emptied(t, g)
		if err := g.Remove(); err != nil {
			t.Error("scratch group stays:", err)
		}
	})
	return h, base
}

// emptied waits until a group is empty: the kernel may let it go a little after its last process was reaped.
func emptied(t *testing.T, g Group) {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		if busy, err := g.Populated(); !busy || err != nil {
			return // what is wrong with it is for who removes it
		}
		if time.Now().After(end) {
			t.Errorf("%s is not empty", g.Dir)
			return
		}
	}
}

// noProcess is above the largest pid there is: that of a process that has ended may be another's by now, which would be
// moved.
const noProcess = 1 << 30

// sleeper starts a process that lives until the test ends or it is ended.
func sleeper(t *testing.T) (pid int, end func()) {
	t.Helper()
	cmd := exec.Command("sleep", "600")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var once sync.Once
	end = func() {
		once.Do(func() {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		})
	}
	t.Cleanup(end)
	return cmd.Process.Pid, end
}

func TestGroupLifeCycle(t *testing.T) {
	h, base := scratch(t)
	g, err := h.Create(base + "/a/b/job 1")
	if err != nil {
		t.Fatal(err)
	}
	if want := filepath.Join(h.Mount, base, "a/b/job 1"); g.Dir != want || g.Inode == 0 {
		t.Errorf("group %+v, want directory %q", g, want)
	}
	if _, err := h.Create(base + "/a/b/job 1"); !errors.Is(err, sharing.ErrConflict) {
		t.Errorf("second Create: %v, want ErrConflict", err)
	}
	top, err := h.Open(filepath.Join(h.Mount, base, "a"), 0)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := h.Children(base + "/a"); err != nil || !cmp.Equal(got, []string{"b"}) {
		t.Errorf("children %q, %v", got, err)
	}
	if busy, err := top.Populated(); busy || err != nil {
		t.Errorf("populated %v, %v before any process", busy, err)
	}

	pid, end := sleeper(t)
	if err := g.Add(pid); err != nil {
		t.Fatal(err)
	}
	if got, err := top.Procs(); err != nil || !cmp.Equal(got, []int{pid}) {
		t.Errorf("processes beneath %v, %v; want %d", got, err, pid)
	}
	if busy, err := top.Populated(); !busy || err != nil {
		t.Errorf("populated %v, %v with a process", busy, err)
	}
	if dir, err := h.OfProcess(pid); err != nil || dir != g.Dir {
		t.Errorf("OfProcess %q, %v; want %q", dir, err, g.Dir)
	}
	if err := top.Remove(); !errors.Is(err, sharing.ErrUnavailable) {
		t.Errorf("Remove of a busy group: %v, want ErrUnavailable", err)
	}
	if _, err := h.Open(g.Dir, g.Inode); err != nil {
		t.Errorf("a refused Remove took part of the tree: %v", err)
	}
	end()
	emptied(t, top)
	if err := top.Remove(); err != nil {
		t.Errorf("Remove: %v", err)
	}
	if err := top.Remove(); err != nil {
		t.Errorf("Remove of what is gone: %v", err)
	}
	if _, err := h.Open(g.Dir, g.Inode); !errors.Is(err, sharing.ErrNotFound) {
		t.Errorf("Open of what is gone: %v, want ErrNotFound", err)
	}
	if err := g.Add(os.Getpid()); !errors.Is(err, sharing.ErrNotFound) {
		t.Errorf("Add to what is gone: %v, want ErrNotFound", err)
	}
	if _, err := h.OfProcess(noProcess); !errors.Is(err, sharing.ErrNotFound) {
		t.Errorf("OfProcess of none: %v, want ErrNotFound", err)
	}
}

// A new group with the same name must never count as the old one.
func TestAnotherGroupOfTheSameNameIsStale(t *testing.T) {
	h, base := scratch(t)
	old, err := h.Create(base + "/x")
	if err != nil {
		t.Fatal(err)
	}
	if err := old.Remove(); err != nil {
		t.Fatal(err)
	}
	now, err := h.Create(base + "/x")
	if err != nil {
		t.Fatal(err)
	}
	if now.Inode == old.Inode {
		t.Fatalf("inode %d was given out again", now.Inode)
	}
	_, openErr := h.Open(old.Dir, old.Inode)
	_, procsErr := old.Procs()
	_, popErr := old.Populated()
	for what, err := range map[string]error{
		"Open": openErr, "Procs": procsErr, "Populated": popErr, "Add": old.Add(os.Getpid()), "Remove": old.Remove(),
	} {
		if !errors.Is(err, sharing.ErrStale) {
			t.Errorf("%s: %v, want ErrStale", what, err)
		}
	}
	if _, err := h.Open(now.Dir, now.Inode); err != nil {
		t.Errorf("the new group was touched: %v", err)
	}
}

func TestCreateTakesBackParentsOnError(t *testing.T) {
	h, base := scratch(t)
	g, err := h.Create(base + "/limit")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(g.Dir+"/cgroup.max.depth", []byte("1"), 0); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Create(base + "/limit/a/b"); !errors.Is(err, sharing.ErrExhausted) {
		t.Errorf("Create below the allowed depth: %v, want ErrExhausted", err)
	}
	if got, err := h.Children(base + "/limit"); err != nil || len(got) != 0 {
		t.Errorf("left %q behind (%v)", got, err)
	}
}

func TestAddRefuses(t *testing.T) {
	h, base := scratch(t)
	g, err := h.Open(filepath.Join(h.Mount, base), 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, pid := range []int{0, -1} {
		if err := g.Add(pid); !errors.Is(err, sharing.ErrInvalid) {
			t.Errorf("Add(%d) = %v, want ErrInvalid", pid, err)
		}
		if _, err := h.OfProcess(pid); !errors.Is(err, sharing.ErrInvalid) {
			t.Errorf("OfProcess(%d) = %v, want ErrInvalid", pid, err)
		}
	}
	if err := g.Add(noProcess); !errors.Is(err, sharing.ErrNotFound) {
		t.Errorf("Add of no process: %v, want ErrNotFound", err)
	}
}

// A mount path that is no cgroup filesystem must not be written to, whatever it holds.
func TestOtherFilesystemIsRefused(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(dir+"/a", 0o755); err != nil {
		t.Fatal(err)
	}
	h := Hierarchy{Mount: dir}
	_, createErr := h.Create("b")
	_, openErr := h.Open(dir+"/a", 0)
	_, ctrlErr := h.Controllers()
	for what, err := range map[string]error{"Create": createErr, "Open": openErr, "Controllers": ctrlErr} {
		if !errors.Is(err, sharing.ErrUnsupported) {
			t.Errorf("%s: %v, want ErrUnsupported", what, err)
		}
	}
	if _, err := os.Stat(dir + "/b"); err == nil {
		t.Error("a directory was made")
	}
}

func TestControllers(t *testing.T) {
	h, _ := scratch(t)
	names, err := h.Controllers()
	if err != nil {
		t.Fatal(err)
	}
	has, err := h.HasDmem()
	if err != nil {
		t.Fatal(err)
	}
	want := false
	for _, n := range names {
		want = want || n == "dmem"
	}
	if has != want {
		t.Errorf("HasDmem %v with controllers %q", has, names)
	}
}

// Each group is reported empty once: when its last process ends, when it is removed, or when it was empty at once. Both
// with inotify and by polling alone.
func TestWatcher(t *testing.T) {
	for name, poll := range map[string]time.Duration{"inotify": time.Hour, "polling": 5 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			h, base := scratch(t)
			create := func(n string) Group {
				g, err := h.Create(base + "/" + n)
				if err != nil {
					t.Fatal(err)
				}
				return g
			}
			busy, early, idle, dropped := create("busy"), create("early"), create("idle"), create("dropped")
			pid, end := sleeper(t)
			pidEarly, endEarly := sleeper(t)
			pidDropped, _ := sleeper(t)
			for g, p := range map[Group]int{busy: pid, early: pidEarly, dropped: pidDropped} {
				if err := g.Add(p); err != nil {
					t.Fatal(err)
				}
			}
			w := NewWatcher(poll, slog.New(slog.DiscardHandler))
			if name == "polling" {
				w.init = func() (int, error) { return -1, unix.EMFILE }
			}
			w.Add(early) // before Run, so that Run marks it
			ctx, cancel := context.WithCancel(t.Context())
			reported := make(chan Group, 16)
			var run sync.WaitGroup
			run.Go(func() {
				if err := w.Run(ctx, func(g Group) { reported <- g }); err != nil {
					t.Error(err)
				}
			})
			expect := func(want Group) {
				t.Helper()
				select {
				case got := <-reported:
					if got != want {
						t.Errorf("reported %q, want %q", got.Dir, want.Dir)
					}
				case <-time.After(time.Minute):
					t.Fatalf("no report of %q", want.Dir)
				}
			}
			w.Add(busy)
			w.Add(busy)
			w.Add(dropped)
			w.Add(idle)
			expect(idle)
			endEarly()
			expect(early)
			w.Drop(dropped)
			end()
			expect(busy)
			cancel()
			run.Wait()
			if len(reported) != 0 {
				t.Errorf("reported %q again", (<-reported).Dir)
			}
			if err := dropped.Remove(); !errors.Is(err, sharing.ErrUnavailable) {
				t.Errorf("Remove of the dropped group: %v, want ErrUnavailable", err)
			}
			for _, g := range []Group{busy, early, idle} {
				if err := g.Remove(); err != nil {
					t.Error(err)
				}
			}
		})
	}
}
