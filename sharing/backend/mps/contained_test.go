// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package mps

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sim/mpstest"
)

// contained is the key of a domain of containers on GPU 0.
func (s *site) contained(domain string) Key {
	k := s.key(0, domain)
	k.Contained = true
	return k
}

func (s *site) join(k Key, active string) {
	s.Helper()
	err := s.AddUser(s.Context(), k, active, Terms{Memory: 4 * sharing.GiB, Percent: 25})
	if errors.Is(err, sharing.ErrDenied) {
		s.Skip(err)
	}
	if err != nil {
		s.Fatal(err)
	}
}

// places are what a container of the domain is made with.
func (s *site) places(k Key) (pipe, source, shm string) {
	s.Helper()
	p, err := s.Places(k)
	if err != nil {
		s.Fatal(err)
	}
	return p.Pipe, p.Source, p.Shm
}

func (s *site) inode(path string) string {
	s.Helper()
	var st syscall.Stat_t
	if err := syscall.Stat(path, &st); err != nil {
		s.Fatal(err)
	}
	return fmt.Sprint(st.Dev, st.Ino)
}

// sees reports whether a process has the folder as its /dev/shm.
func (s *site) sees(pid int, shm string) bool {
	s.Helper()
	mark := filepath.Join(shm, "mark")
	if err := os.WriteFile(mark, nil, 0o600); err != nil {
		s.Fatal(err)
	}
	defer os.Remove(mark)
	_, err := os.Stat(fmt.Sprintf("/proc/%d/root/dev/shm/mark", pid))
	return err == nil
}

// What containers are created with is there before their daemon, which starts with the first of them. It stays in place
// over daemons and agents, and goes with the last attachment.
func TestContained(t *testing.T) {
	s := newSite(t)
	k := s.contained("namespace/a")
	s.join(k, "l1")
	s.join(k, "l1")
	pipe, source, shm := s.places(k)
	first, sharedFirst := s.inode(source), s.inode(shm)
	info, err := os.Stat(shm)
	if err != nil || info.Mode() != os.ModeDir|forAll {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	s.now = s.now.Add(time.Hour)
	s.tick(t.Context())
	if got := s.left(); !strings.HasPrefix(got, "0 processes") || s.mode(0) != sharing.ComputeModeDefault ||
		s.again != 0 {
		t.Errorf("before the first start: %s, mode %v, started again %d times", got, s.mode(0), s.again)
	}
	if got := s.acquire(k, "l1", Terms{Memory: 4 * sharing.GiB, Percent: 25}); got != pipe {
		t.Errorf("pipe %q, want %q", got, pipe)
	}
	st := s.state()
	if st.Condition != Ready || !st.Exclusive || !s.sees(st.Daemon, shm) || !s.sees(st.Servers[0], shm) {
		t.Errorf("state %+v", st)
	}
	if _, terms := mpstest.Connect(t, source); !strings.HasSuffix(terms[0], " 25") ||
		terms[1] != fmt.Sprintf("%s %d", k.GPU, 4*sharing.GiB) {
		t.Errorf("terms %q", terms)
	}
	if _, err := os.Stat("/dev/shm/mark"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the node's own: %v", err)
	}

	held := map[Key]map[string]Terms{k: {"l1": {Memory: 4 * sharing.GiB, Percent: 25}}}
	s.agent("boot")
	if err := s.Recover(t.Context(), held); err != nil {
		t.Fatal(err)
	}
	if now := s.state(); now.Daemon != st.Daemon || now.Condition != Ready {
		t.Errorf("after the agent's restart: %+v, before %+v", now, st)
	}
	s.kill(st.Daemon)
	s.now = s.now.Add(time.Hour)
	s.tick(t.Context())
	if now := s.state(); now.Condition != Ready || now.Daemon == st.Daemon || !s.sees(now.Daemon, shm) {
		t.Errorf("after the daemon's death: %+v", now)
	}
	if s.inode(source) != first || s.inode(shm) != sharedFirst {
		t.Error("containers that are made already would not find the next daemon")
	}
	s.join(k, "l2")
	s.release(k, "l1")
	if s.state().Condition != Ready {
		t.Error("the daemon ended with an attachment left")
	}
	s.release(k, "l2")
	if got := s.left(); got != nothing || s.mode(0) != sharing.ComputeModeDefault {
		t.Errorf("left: %s, mode %v", got, s.mode(0))
	}
}

// An agent that finds a domain without attachments takes all of it away, what is mounted too.
func TestContainedOfNobody(t *testing.T) {
	s := newSite(t)
	k := s.contained("namespace/a")
	s.join(k, "l")
	s.acquire(k, "l", Terms{Memory: sharing.GiB})
	s.agent("boot")
	if err := s.Recover(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if got := s.left(); got != nothing || s.mode(0) != sharing.ComputeModeDefault {
		t.Errorf("left: %s", got)
	}
}

// A start that fails keeps what the container was made with, and is tried again.
func TestContainedThatDoesNotComeUp(t *testing.T) {
	s := newSite(t)
	k := s.contained("namespace/a")
	s.join(k, "l")
	_, source, _ := s.places(k)
	if err := s.SetComputeMode(t.Context(), k.GPU, sharing.ComputeModeProhibited); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Acquire(t.Context(), k, "l", Terms{Memory: sharing.GiB}); !errors.Is(err, sharing.ErrUnavailable) {
		t.Fatalf("on a GPU that forbids all: %v", err)
	}
	before := s.inode(source)
	if err := s.SetComputeMode(t.Context(), k.GPU, sharing.ComputeModeDefault); err != nil {
		t.Fatal(err)
	}
	s.acquire(k, "l", Terms{Memory: sharing.GiB})
	if s.inode(source) != before {
		t.Error("the container's pipe directory is another")
	}
	s.release(k, "l")
	if err := s.AddUser(t.Context(), k, "l", Terms{}); !errors.Is(err, sharing.ErrInvalid) {
		t.Errorf("without memory: %v", err)
	}
	if got := s.left(); got != nothing {
		t.Errorf("left: %s", got)
	}
}
