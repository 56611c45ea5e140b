// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package mps

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/kerf-gpu/kerf/internal/mountns"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sim/mpstest"
)

// as runs a shell script as a user without capabilities, with a pipe directory, and returns what it prints.
func (s *site) as(user uint32, pipe, script string) string {
	s.Helper()
	c := exec.CommandContext(s.Context(), "sh", "-c", script)
	c.Dir = "/"
	c.Env = []string{"PATH=" + filepath.Join(s.dir, "bin") + ":" + os.Getenv("PATH"), "CUDA_MPS_PIPE_DIRECTORY=" + pipe}
	c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: user, Gid: user}}
	out, _ := c.CombinedOutput()
	return string(out)
}

// owned acquires a daemon of one user, on a node whose folders that user can reach.
func (s *site) owned(user uint32) (Key, string) {
	s.Helper()
	if !mountns.Allowed() {
		s.Skip("mounting needs CAP_SYS_ADMIN")
	}
	for _, dir := range []string{s.dir, filepath.Dir(gpusim)} {
		if err := os.Chmod(dir, 0o755); err != nil {
			s.Fatal(err)
		}
	}
	k := s.key(0, fmt.Sprintf("uid/%d", user))
	return k, s.acquire(k, "l", Terms{Memory: sharing.GiB})
}

// The daemon of one user is out of reach for every other: its name cannot be computed, and known it leads nowhere.
func TestADaemonOfOneUser(t *testing.T) {
	const owner, other = 4711, 4712
	s := newSite(t)
	k, pipe := s.owned(owner)
	st := s.state()
	dir := filepath.Dir(filepath.Dir(pipe))
	info, err := os.Stat(dir)
	if err != nil {
		t.Fatal(err)
	}
	if uid := info.Sys().(*syscall.Stat_t).Uid; uid != owner || info.Mode() != os.ModeDir|0o700 {
		t.Errorf("%s is of user %d, mode %v", dir, uid, info.Mode())
	}
	if filepath.Base(dir) == plainDir(k.Domain) {
		t.Error("the folder's name can be computed")
	}
	if out := s.as(owner, pipe, "echo get_server_list | nvidia-cuda-mps-control"); out != fmt.Sprintln(st.Servers[0]) {
		t.Errorf("its user: %q", out)
	}
	for _, script := range []string{"echo get_server_list | nvidia-cuda-mps-control",
		"echo quit | nvidia-cuda-mps-control", "ls " + dir, "ls " + filepath.Dir(dir), "ls " + s.opt.Dir} {
		if out := s.as(other, pipe, script+" && echo done"); strings.Contains(out, "done") {
			t.Errorf("another user: %s: %q", script, out)
		}
	}
	var server syscall.Stat_t
	if err := syscall.Stat(fmt.Sprintf("/proc/%d", st.Servers[0]), &server); err != nil || server.Uid != owner {
		t.Errorf("its server runs as user %d, %v", server.Uid, err)
	}
	if now := s.state(); now.Condition != Ready || now.Daemon != st.Daemon {
		t.Errorf("state %+v, before %+v", now, st)
	}
}

// Its user can put no file where the daemon, which is root, writes, and fill no disk.
func TestTheUserOfADaemonAddsNothing(t *testing.T) {
	const owner = 4711
	s := newSite(t)
	_, pipe := s.owned(owner)
	dir := filepath.Dir(filepath.Dir(pipe))
	for _, script := range []string{
		"touch " + dir + "/x", "mkdir " + dir + "/x", "ln -s / " + dir + "/x", "mv " + dir + "/v " + dir + "/x",
		"rmdir " + dir + "/v",
		"touch " + pipe + "/x", "rm -f " + pipe + "/control", "mv " + pipe + " " + pipe + ".x", "ln -s / " + dir +
			"/v/log/x", "echo > " + dir + "/v/log/control.log",
	} {
		if out := s.as(owner, pipe, script+" && echo done"); strings.Contains(out, "done") {
			t.Errorf("%s: %q", script, out)
		}
	}
}

// A daemon of one user is found again after a restart of the agent, and leaves nothing.
func TestADaemonOfOneUserIsFoundAgain(t *testing.T) {
	s := newSite(t)
	k, pipe := s.owned(4711)
	before := s.state()
	s.agent("boot")
	if err := s.Recover(t.Context(), map[Key]map[string]Terms{k: {"l": {Memory: sharing.GiB}}}); err != nil {
		t.Fatal(err)
	}
	if now := s.state(); now.Daemon != before.Daemon || now.Pipe != pipe || now.Condition != Ready {
		t.Errorf("after: %+v, before %+v", now, before)
	}
	s.release(k, "l")
	if got := s.left(); got != nothing {
		t.Errorf("left: %s", got)
	}
	if _, err := s.Places(k); !errors.Is(err, sharing.ErrUnavailable) {
		t.Errorf("the places of a daemon that has ended: %v", err)
	}
	if again := s.acquire(k, "l", Terms{Memory: sharing.GiB}); again == pipe {
		t.Errorf("the next one has the same folder: %s", again)
	}
	s.agent("boot")
	if err := s.Recover(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if got := s.left(); got != nothing {
		t.Errorf("left of a domain without attachments: %s", got)
	}
}

// No user of the node can enter the folder of a domain of containers, whose path the table of mounts shows to all.
func TestADaemonOfContainersIsRoots(t *testing.T) {
	s := newSite(t)
	k := s.contained("namespace/a")
	s.join(k, "l")
	s.acquire(k, "l", Terms{Memory: sharing.GiB})
	_, source, _ := s.places(k)
	if err := os.Chmod(s.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if out := s.as(4712, source, "echo quit | nvidia-cuda-mps-control; ls "+source+" && echo done"); strings.Contains(
		out, "done") || s.state().Condition != Ready {
		t.Errorf("%q, %+v", out, s.state())
	}
	// Its server, which is of the user of its clients, reaches it all the same.
	if err := s.of(k).daemon.StopServer(t.Context(), s.state().Servers[0]); err != nil {
		t.Fatal(err)
	}
	if err := s.of(k).daemon.StartServer(t.Context(), 4712); err != nil {
		t.Fatal(err)
	}
	if servers, err := s.of(k).daemon.Servers(t.Context()); err != nil || len(servers) != 1 {
		t.Errorf("servers of another user than root: %v, %v", servers, err)
	}
}

// What an agent of before version 2 has started goes on in its place until its last attachment ends, also with
// containers.
func TestFoldersOfAnEarlierVersion(t *testing.T) {
	for name, contained := range map[string]bool{"processes": false, "containers": true} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			k := s.key(0, "uid/0")
			k.Contained = contained
			old := s.opt.placeAt(k, plainDir(k.Domain))
			old.plain = true
			d := newDomain(&s.opt, k, old)
			d.attachments["l"], d.begun = Terms{Memory: sharing.GiB}, true
			if err := d.up(t.Context()); errors.Is(err, sharing.ErrDenied) {
				t.Skip(err)
			} else if err != nil {
				t.Fatal(err)
			}
			want := filepath.Join(s.opt.gpuPath(k.GPU), plainDir(k.Domain), "pipe")
			if contained {
				want = filepath.Join(filepath.Dir(want), volume, "pipe")
			}
			if d.daemon.Pipe != want {
				t.Errorf("pipe %q, want %q", d.daemon.Pipe, want)
			}
			client, _ := mpstest.Connect(t, want)
			s.agent("boot")
			if err := s.Recover(t.Context(), map[Key]map[string]Terms{k: d.attachments}); err != nil {
				t.Fatal(err)
			}
			if now := s.state(); now.Daemon != d.pid || now.Pipe != want || now.Condition != Ready {
				t.Errorf("state %+v, daemon %d", now, d.pid)
			}
			client.Leave()
			s.release(k, "l")
			if got := s.left(); got != nothing {
				t.Errorf("left: %s", got)
			}
		})
	}
}

// plainDir is the name of a folder of before version 2.
func plainDir(domain string) string {
	sum := sha256.Sum256([]byte(domain))
	return hex.EncodeToString(sum[:5])
}
