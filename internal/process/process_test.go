// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package process

import (
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/kerf-gpu/kerf/sharing"
)

// cat starts a process that lives until its standard input is closed.
func cat(t *testing.T) (cmd *exec.Cmd, end func()) {
	t.Helper()
	cmd = exec.CommandContext(t.Context(), "cat")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd, func() { _ = in.Close() }
}

// waitExited blocks until the process has exited, without reaping it.
func waitExited(t *testing.T, pid int) {
	t.Helper()
	if err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil); err != nil {
		t.Fatal(err)
	}
}

func TestHandleFollowsOneProcess(t *testing.T) {
	cmd, end := cat(t)
	pid := cmd.Process.Pid
	h, err := Open(pid)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	if h.PID() != pid || h.StartTime() == 0 || !h.Alive() {
		t.Errorf("pid %d start %d alive %v", h.PID(), h.StartTime(), h.Alive())
	}
	again, err := OpenAt(pid, h.StartTime())
	if err != nil {
		t.Fatalf("OpenAt with the right start time: %v", err)
	}
	again.Close()
	if _, err := OpenAt(pid, h.StartTime()+1); !errors.Is(err, sharing.ErrStale) {
		t.Errorf("OpenAt with another start time: %v, want ErrStale", err)
	}
	end()
	waitExited(t, pid)
	if h.Alive() {
		t.Error("a zombie counts as alive")
	}
	if _, err := Open(pid); !errors.Is(err, sharing.ErrNotFound) {
		t.Errorf("Open of a zombie: %v, want ErrNotFound", err)
	}
	_ = cmd.Wait()
	if h.Alive() {
		t.Error("a reaped process counts as alive")
	}
	if err := h.Signal(unix.SIGTERM); !errors.Is(err, sharing.ErrNotFound) {
		t.Errorf("Signal: %v, want ErrNotFound", err)
	}
	h.Close()
	if err := h.Signal(unix.SIGTERM); !errors.Is(err, sharing.ErrInvalid) {
		t.Errorf("Signal on a closed handle: %v, want ErrInvalid", err)
	}
}

func TestSignalReachesTheProcess(t *testing.T) {
	cmd, _ := cat(t)
	h, err := Open(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	if err := h.Signal(unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	var exit *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &exit) || exit.Sys().(interface{ Signaled() bool }).Signaled() != true {
		t.Errorf("process ended with %v, want a signal", err)
	}
}

func TestOpenRefuses(t *testing.T) {
	for _, pid := range []int{0, -1} {
		if _, err := Open(pid); !errors.Is(err, sharing.ErrInvalid) {
			t.Errorf("Open(%d) = %v, want ErrInvalid", pid, err)
		}
	}
	// Above the largest pid_max there is.
	if _, err := Open(1 << 30); !errors.Is(err, sharing.ErrNotFound) && !errors.Is(err, sharing.ErrInvalid) {
		t.Errorf("Open of no process: %v", err)
	}
}

func TestClosedHandleIsNotAlive(t *testing.T) {
	h, err := Open(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	h.Close()
	h.Close()
	if h.Alive() {
		t.Error("closed handle is alive")
	}
}

// tail is a stat line after the command name, with start time 4242.
const tail = " S 1 2 3 0 -1 4194304 1 2 3 4 5 6 7 8 20 0 1 0 4242 1000 200 18446744073709551615"

func TestParseStat(t *testing.T) {
	tests := map[string]struct {
		in    string
		pid   int
		start uint64
		bad   bool
	}{
		"plain":               {in: "17 (cat)" + tail, pid: 17, start: 4242},
		"spaces":              {in: "17 (a b c)" + tail, pid: 17, start: 4242},
		"closing parentheses": {in: "17 (a) S 1 2)" + tail, pid: 17, start: 4242},
		"forged second process": {in: "17 (x) R 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 99 (y)" + tail, pid: 17,
			start: 4242},
		"newline":            {in: "17 (a\nb)" + tail + "\n", pid: 17, start: 4242},
		"empty name":         {in: "17 ()" + tail, pid: 17, start: 4242},
		"empty":              {in: "", bad: true},
		"no name":            {in: "17 S 1 2", bad: true},
		"no pid":             {in: "(cat)" + tail, bad: true},
		"negative pid":       {in: "-4 (cat)" + tail, bad: true},
		"huge pid":           {in: "99999999999 (cat)" + tail, bad: true},
		"reversed":           {in: "17 )(", bad: true},
		"cut":                {in: "17 (cat) S 1 2 3", bad: true},
		"start is no number": {in: "17 (cat)" + strings.Replace(tail, "4242", "-1", 1), bad: true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := parseStat([]byte(tc.in))
			if tc.bad {
				if !errors.Is(err, sharing.ErrInvalid) {
					t.Errorf("%+v, %v; want ErrInvalid", got, err)
				}
				return
			}
			if err != nil || got.pid != tc.pid || got.start != tc.start {
				t.Errorf("%+v, %v; want pid %d start %d", got, err, tc.pid, tc.start)
			}
		})
	}
}

// TestParseStatEnded has zombies: of a process whose first thread has ended and of which others run, and of one that
// has ended.
func TestParseStatEnded(t *testing.T) {
	for in, want := range map[string]bool{
		tail:                                   false,
		strings.Replace(tail, " S ", " Z ", 1): true,
		strings.Replace(tail, " S ", " X ", 1): true,
		strings.NewReplacer(" S ", " Z ", " 20 0 1 0 ", " 20 0 0 0 ").Replace(tail): true,
		strings.NewReplacer(" S ", " Z ", " 20 0 1 0 ", " 20 0 2 0 ").Replace(tail): false,
	} {
		if got, err := parseStat([]byte("17 (Z)" + in)); err != nil || got.ended != want {
			t.Errorf("%q: %+v %v, want ended %v", in, got, err, want)
		}
	}
}

func TestStartOf(t *testing.T) {
	cmd, end := cat(t)
	pid := cmd.Process.Pid
	start, err := StartOf(pid)
	if now := Now(); err != nil || start == 0 || start > now || now-start > 60*ticksPerSecond {
		t.Errorf("started at %d, now %d: %v", start, now, err)
	}
	end()
	waitExited(t, pid)
	if _, err := StartOf(pid); !errors.Is(err, sharing.ErrNotFound) {
		t.Errorf("of a zombie: %v", err)
	}
	_ = cmd.Wait() // it ended by itself
}

// Whatever a process calls itself, its pid and start time are read right.
func FuzzParseStatName(f *testing.F) {
	f.Add("cat")
	f.Add(") S 1 2 3 (")
	f.Fuzz(func(t *testing.T, name string) {
		got, err := parseStat([]byte("17 (" + name + ")" + tail))
		if err != nil || got.pid != 17 || got.start != 4242 {
			t.Errorf("name %q: %+v, %v", name, got, err)
		}
	})
}

func FuzzParseStat(f *testing.F) {
	f.Add([]byte("17 (cat)" + tail))
	f.Add([]byte("17 )("))
	f.Fuzz(func(t *testing.T, data []byte) {
		if got, err := parseStat(data); err == nil && got.pid <= 0 {
			t.Errorf("accepted pid %d", got.pid)
		}
	})
}

func TestBootID(t *testing.T) {
	a, err := BootID()
	if err != nil {
		t.Fatal(err)
	}
	if b, err := BootID(); err != nil || a != b {
		t.Errorf("%q then %q (%v)", a, b, err)
	}
	for _, s := range []string{"", "\n", "not-a-uuid", strings.Repeat("a", 36),
		strings.ToUpper("0a0b0c0d-0000-4000-8000-00000000000a")} {
		if got, err := parseBootID(s); !errors.Is(err, sharing.ErrUnavailable) {
			t.Errorf("parseBootID(%q) = %q, %v", s, got, err)
		}
	}
}

func TestPeerOf(t *testing.T) {
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(t.TempDir(), "s"), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	client, err := net.Dial("unix", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	server, err := l.AcceptUnix()
	if err != nil {
		t.Fatal(err)
	}
	p, err := PeerOf(server)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Process.Close()
	if p.PID != os.Getpid() || int(p.UID) != os.Getuid() || int(p.GID) != os.Getgid() {
		t.Errorf("peer %+v, want this process", p)
	}
	if !p.Process.Alive() || p.Process.PID() != os.Getpid() {
		t.Error("handle is not of this process")
	}
	server.Close()
	if _, err := PeerOf(server); !errors.Is(err, sharing.ErrUnavailable) {
		t.Errorf("PeerOf a closed socket: %v, want ErrUnavailable", err)
	}
}

func TestNewPeer(t *testing.T) {
	self := int32(os.Getpid())
	tests := map[string]struct {
		pid  int32
		err  error
		want error
	}{
		"other namespace":       {0, nil, sharing.ErrDenied},
		"older kernel":          {self, unix.ENOPROTOOPT, nil},
		"reaped":                {self, unix.ESRCH, sharing.ErrNotFound},
		"reaped, newer kernel":  {self, unix.ENODATA, sharing.ErrNotFound},
		"older kernel, pid > n": {1 << 30, unix.ENOPROTOOPT, sharing.ErrNotFound},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			fd := -1
			if tc.err == nil {
				var err error
				if fd, err = unix.PidfdOpen(int(self), 0); err != nil {
					t.Fatal(err)
				}
			}
			p, err := newPeer(&unix.Ucred{Pid: tc.pid}, fd, tc.err)
			if !errors.Is(err, tc.want) {
				t.Fatalf("error %v, want %v", err, tc.want)
			}
			if err == nil {
				if p.Pinned {
					t.Error("grants to be pinned without the kernel's pidfd")
				}
				p.Process.Close()
			}
		})
	}
}
