// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"log/slog"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/kerf-gpu/kerf/internal/process"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/node/lifecycle"
)

// withoutKill runs f as root who may end no process of another user, as an agent's container without that capability.
func withoutKill(t *testing.T, f func()) {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var all [2]unix.CapUserData
	if err := unix.Capget(&head, &all[0]); err != nil {
		t.Fatal(err)
	}
	less := all
	less[0].Effective &^= 1 << unix.CAP_KILL
	if err := unix.Capset(&head, &less[0]); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := unix.Capset(&head, &all[0]); err != nil {
			t.Error(err)
		}
	}()
	f()
}

// asUser is a tenant whose process is of that user.
func (g *guarded) asUser(uid uint32) *tenant {
	g.t.Helper()
	cmd := exec.Command("sleep", "600")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	if err := cmd.Start(); err != nil {
		g.t.Fatal(err)
	}
	end := sync.OnceFunc(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	g.t.Cleanup(end)
	start, err := process.StartOf(cmd.Process.Pid)
	if err != nil {
		g.t.Fatal(err)
	}
	return &tenant{Peer: lifecycle.Peer{PID: cmd.Process.Pid, Start: start, UID: uid}, cmd: cmd, end: end}
}

// If the agent may not kill a process over its cap, it reports that once, with the missing permission, and shows it
// while it lasts. It kills the process at the next check after it gets the permission.
func TestGuardThatMayNotKill(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("a process of another user needs root:", sharing.ErrDenied)
	}
	g := newGuarded(t, killing)
	var log strings.Builder
	g.bench.opt.Log = slog.New(slog.NewTextHandler(&log, nil))
	g.restartAgent()
	p := g.asUser(1000)
	req := gib(4)
	req.UUIDs = []sharing.GPUID{g.gpus[0].UUID}
	g.activate(p, "", req)
	g.holds(gibs(p, 5))
	warned := func() bool {
		return slices.ContainsFunc(g.bench.State(t.Context()).Warnings, func(w string) bool {
			return strings.Contains(w, "is to be killed (over_cap) and goes on") &&
				strings.Contains(w, "capability KILL")
		})
	}
	withoutKill(t, func() { g.looks(6) })
	g.lives(p)
	if told := strings.Count(log.String(), "level=WARN msg=\"skipped kill of process\""); told != 1 ||
		!strings.Contains(log.String(), "capability KILL") || !warned() {
		t.Errorf("reported %d times, warnings %q, log:\n%s", told, g.bench.State(t.Context()).Warnings, log.String())
	}
	if len(g.seen.killed) != 0 || len(g.seen.spared) < 2 {
		t.Errorf("killed %v, spared %v: it is to be tried again", g.seen.killed, g.seen.spared)
	}
	g.looks(1)
	g.dead(p)
	if warned() {
		t.Error("the warning stays")
	}
}
