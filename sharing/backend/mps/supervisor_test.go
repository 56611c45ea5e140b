// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package mps

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/kerf-gpu/kerf/internal/mps"
	"github.com/kerf-gpu/kerf/internal/process"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sim/mpstest"
	"github.com/kerf-gpu/kerf/test/eventually"
)

// gpusim is the program that stands in for NVIDIA's.
var gpusim string

func TestMain(m *testing.M) {
	os.Exit(mpstest.Run(m, func(exe string) { gpusim = exe }))
}

const machineName = "mixed" // GPU 1 is in MIG mode

// site is a node and the agent on it.
type site struct {
	*testing.T
	*Supervisor
	dir  string
	now  time.Time
	none bool // the driver knows no compute modes
	rule ModeRule
	sets int // calls that set a compute mode
	// again is how often Options.Again was called.
	again int
}

func (s *site) gpuID(minor int) sharing.GPUID {
	return sharing.GPUID(mpstest.UUID(s.dir, machineName, minor))
}

func (s *site) minor(gpu sharing.GPUID) int {
	return slices.IndexFunc([]int{0, 1, 2, 3}, func(i int) bool { return s.gpuID(i) == gpu })
}

func (s *site) ComputeMode(_ context.Context, gpu sharing.GPUID) (sharing.ComputeMode, error) {
	if s.none {
		return 0, sharing.ErrUnsupported
	}
	m, err := mpstest.ComputeMode(s.dir, s.minor(gpu))
	return modes()[m], err
}

func (s *site) SetComputeMode(_ context.Context, gpu sharing.GPUID, mode sharing.ComputeMode) error {
	s.sets++
	for number, m := range modes() {
		if m == mode {
			_, err := mpstest.ComputeMode(s.dir, s.minor(gpu), number)
			return err
		}
	}
	return sharing.ErrInvalid
}

// modes are NVML's numbers.
func modes() map[uint64]sharing.ComputeMode {
	return map[uint64]sharing.ComputeMode{0: sharing.ComputeModeDefault, 2: sharing.ComputeModeProhibited,
		mpstest.Exclusive: sharing.ComputeModeExclusiveProcess}
}

func (s *site) mode(minor int) sharing.ComputeMode {
	s.Helper()
	m, err := mpstest.ComputeMode(s.dir, minor)
	if err != nil {
		s.Fatal(err)
	}
	return modes()[m]
}

func newSite(t *testing.T) *site {
	t.Helper()
	goleak.VerifyNone(t) // of an earlier test
	s := &site{T: t, dir: mpstest.Node(t, gpusim, machineName, "r580"), now: time.Unix(1e9, 0)}
	s.agent("boot")
	t.Cleanup(func() {
		err := sweep(context.Background(), s.opt.Dir, nil)
		left, _ := filepath.Glob(s.opt.Dir + "/*/*") // the pattern is right
		for _, dir := range left {
			err = errors.Join(err, removeAll(dir))
		}
		if err != nil {
			t.Error(err)
		}
	})
	return s
}

// ownerOf is the user of a domain "uid/N".
func ownerOf(domain string) (uint32, bool) {
	var uid uint32
	n, err := fmt.Sscanf(domain, "uid/%d", &uid)
	return uid, n == 1 && err == nil
}

// of is the domain of a key.
func (s *site) of(k Key) *domain { return s.gpus[k.GPU].domains[k.Domain] }

// agent creates the agent again, as after a restart.
func (s *site) agent(boot string) {
	s.Helper()
	program, err := mps.Find(filepath.Join(s.dir, "bin"), nil)
	if err != nil {
		s.Fatal(err)
	}
	s.Supervisor, err = New(Options{
		Dir: s.dir + "/r", Program: program, Modes: s, BootID: boot, Owner: ownerOf, StartTime: time.Minute,
		Again: func(Key) { s.again++ },
		Rule:  func(sharing.GPUID) ModeRule { return s.rule },
		Log:   slog.New(slog.DiscardHandler), Now: func() time.Time { return s.now },
	})
	if err != nil {
		s.Fatal(err)
	}
}

func (s *site) key(minor int, domain string) Key { return Key{GPU: s.gpuID(minor), Domain: domain} }

func (s *site) acquire(k Key, active string, t Terms) string {
	s.Helper()
	pipe, err := s.Acquire(s.Context(), k, active, t)
	if err != nil {
		s.Fatal(err)
	}
	return pipe
}

func (s *site) release(k Key, active string) {
	s.Helper()
	if err := s.Release(s.Context(), k, active); err != nil {
		s.Fatal(err)
	}
}

// state returns the state of the one daemon.
func (s *site) state() State {
	s.Helper()
	all := s.States()
	if len(all) != 1 {
		s.Fatalf("daemons: %+v, want one", all)
	}
	return all[0]
}

func (s *site) kill(pid int) {
	s.Helper()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		s.Fatal(err)
	}
	eventually.Nil(s, fmt.Sprintf("the end of process %d", pid), func() error {
		running, err := mps.Running(s.opt.Dir)
		// Its memory, by which it is known, goes a moment before the process does.
		listed := slices.ContainsFunc(running, func(p mps.Process) bool { return p.PID == pid })
		if err == nil && (listed || alive(pid)) {
			err = errors.New("it runs")
		}
		return err
	})
	mpstest.WaitReleased(s, s.dir, pid)
}

func alive(pid int) bool {
	start, err := process.StartOf(pid)
	if err != nil {
		return false
	}
	h, err := process.OpenAt(pid, start)
	if err != nil {
		return false
	}
	defer h.Close()
	return h.Alive()
}

// left is what runs and lies below the agent's directory.
func (s *site) left() string {
	s.Helper()
	running, err := mps.Running(s.opt.Dir)
	files, err2 := filepath.Glob(s.opt.Dir + "/*/*")
	if err := errors.Join(err, err2); err != nil {
		s.Fatal(err)
	}
	return fmt.Sprintf("%d processes, %d files", len(running), len(files))
}

const nothing = "0 processes, 0 files"

func TestOneDomain(t *testing.T) {
	s := newSite(t)
	k := s.key(0, "team-a")
	pipe := s.acquire(k, "l1", Terms{Memory: 10 * sharing.GiB, Percent: 30})
	if st := s.state(); st.Condition != Ready || !st.Exclusive || st.Daemon == 0 || len(st.Servers) != 1 ||
		st.Pipe != pipe {
		t.Errorf("state %+v", st)
	}
	if s.mode(0) != sharing.ComputeModeExclusiveProcess {
		t.Error("the GPU takes other processes")
	}
	// One attachment alone: its limits are the daemon's, whatever its processes' environment says.
	client, terms := mpstest.Connect(t, pipe)
	if !strings.HasSuffix(terms[0], " 30") || terms[1] != fmt.Sprintf("%s %d", k.GPU, 10*sharing.GiB) {
		t.Errorf("terms of the first: %q", terms)
	}
	// With two, no client has more than the larger.
	if again := s.acquire(k, "l2", Terms{Memory: 20 * sharing.GiB}); again != pipe {
		t.Errorf("pipes %q and %q", pipe, again)
	}
	if _, terms = mpstest.Connect(t, pipe); !strings.HasSuffix(terms[0], " 100") ||
		terms[1] != fmt.Sprintf("%s %d", k.GPU, 20*sharing.GiB) {
		t.Errorf("terms of two: %q", terms)
	}
	s.release(k, "l2")
	if _, terms = mpstest.Connect(t, pipe); !strings.HasSuffix(terms[0], " 30") ||
		terms[1] != fmt.Sprintf("%s %d", k.GPU, 10*sharing.GiB) {
		t.Errorf("terms after the larger has gone: %q", terms)
	}
	client.Leave()
	s.release(k, "l1")
	s.release(k, "l1")
	if got := s.left(); got != nothing || len(s.States()) != 0 || s.mode(0) != sharing.ComputeModeDefault {
		t.Errorf("left: %s, %+v, mode %d", got, s.States(), s.mode(0))
	}
}

// Two domains have nothing of each other; the GPU has to take both their servers.
func TestTwoDomains(t *testing.T) {
	s := newSite(t)
	a, b := s.key(0, "team-a"), s.key(0, "team-b")
	pipeA := s.acquire(a, "l1", Terms{Memory: 10 * sharing.GiB})
	pipeB := s.acquire(b, "l2", Terms{Memory: 20 * sharing.GiB})
	all := s.States()
	if len(all) != 2 || all[0].Exclusive || all[1].Exclusive || s.mode(0) != sharing.ComputeModeDefault ||
		pipeA == pipeB || all[0].Daemon == all[1].Daemon ||
		all[0].Servers[0] == all[1].Servers[0] || strings.HasPrefix(pipeA, filepath.Dir(pipeB)) {
		t.Errorf("states %+v", all)
	}
	s.release(a, "l1")
	if st := s.state(); !st.Exclusive || s.mode(0) != sharing.ComputeModeExclusiveProcess || st.Condition != Ready {
		t.Errorf("with one left: %+v, mode %d", st, s.mode(0))
	}
	s.release(b, "l2")
	if got := s.left(); got != nothing || s.mode(0) != sharing.ComputeModeDefault {
		t.Errorf("left: %s, mode %d", got, s.mode(0))
	}
}

// A refusal has an error, and leaves nothing behind.
func TestRefusals(t *testing.T) {
	s := newSite(t)
	for name, test := range map[string]struct {
		key   Key
		terms Terms
		want  error
		word  string
	}{
		"in MIG mode": {s.key(1, "a"), Terms{Memory: sharing.GiB}, sharing.ErrUnavailable, "MIG"},
		"no such GPU": {Key{GPU: "GPU-00000000", Domain: "a"}, Terms{Memory: sharing.GiB}, sharing.ErrUnavailable,
			"GPU"},
		"no memory": {s.key(0, "a"), Terms{Memory: 5}, sharing.ErrInvalid, ""},
		"no domain": {s.key(0, ""), Terms{Memory: sharing.GiB}, sharing.ErrInvalid, ""},
		"too much":  {s.key(0, "a"), Terms{Memory: sharing.GiB, Percent: 101}, sharing.ErrInvalid, ""},
	} {
		s.none = name == "no such GPU" // whose mode cannot be read either
		if pipe, err := s.Acquire(t.Context(), test.key, "l", test.terms); !errors.Is(err, test.want) ||
			!strings.Contains(err.Error(), test.word) {
			t.Errorf("%s: %q, %v", name, pipe, err)
		}
	}
	s.none = false
	if got := s.left(); got != nothing || s.mode(0) != sharing.ComputeModeDefault ||
		s.mode(1) != sharing.ComputeModeDefault {
		t.Errorf("left: %s", got)
	}
	if err := s.SetComputeMode(t.Context(), s.gpuID(0), sharing.ComputeModeProhibited); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Acquire(t.Context(), s.key(0, "a"), "l", Terms{Memory: sharing.GiB}); !errors.Is(err,
		sharing.ErrUnavailable) || !strings.Contains(err.Error(), "nvidia-smi") {
		t.Errorf("a GPU that forbids all: %v", err)
	}
	if s.mode(0) != sharing.ComputeModeProhibited {
		t.Error("the mode was changed")
	}
	if _, err := New(Options{Dir: "/" + strings.Repeat("x", 80)}); !errors.Is(err, sharing.ErrInvalid) {
		t.Errorf("a directory too long: %v", err)
	}
}

// Without compute modes MPS works, and a message says that a process may bypass it.
func TestWithoutComputeModes(t *testing.T) {
	s := newSite(t)
	s.none = true
	s.acquire(s.key(0, "a"), "l", Terms{Memory: sharing.GiB})
	if st := s.state(); st.Condition != Ready || st.Exclusive {
		t.Errorf("state %+v", st)
	}
	s.release(s.key(0, "a"), "l")
}

// A daemon that dies, or that a member of the domain tells to quit, is there again with its limits, in the same place.
func TestRestart(t *testing.T) {
	s := newSite(t)
	k := s.key(0, "a")
	pipe := s.acquire(k, "l", Terms{Memory: 3 * sharing.GiB})
	inode := func() uint64 {
		info, err := os.Stat(pipe)
		if err != nil {
			t.Fatal(err)
		}
		return info.Sys().(*syscall.Stat_t).Ino
	}
	before := inode()
	for i, end := range []func(){
		func() { s.kill(s.state().Daemon) },
		func() { s.kill(s.state().Servers[0]) },
		func() {
			d := newDomain(&s.opt, k, s.of(k).place)
			if err := d.daemon.Quit(t.Context(), 0); err != nil {
				t.Fatal(err)
			}
			for d.pid, d.start = s.state().Daemon, s.gpus[k.GPU].domains["a"].start; d.alive(); time.Sleep(
				time.Millisecond) {
			}
		},
	} {
		end()
		s.now = s.now.Add(time.Hour)
		s.tick(t.Context())
		st := s.state()
		if st.Condition != Ready || len(st.Servers) != 1 || !st.Exclusive || inode() != before {
			t.Fatalf("after end %d: %+v", i, st)
		}
		if _, terms := mpstest.Connect(t, pipe); terms[1] != fmt.Sprintf("%s %d", k.GPU, 3*sharing.GiB) {
			t.Errorf("after end %d: terms %q", i, terms)
		}
	}
	if st := s.state(); st.Restarts != 2 || s.again != 2 {
		t.Errorf("%d restarts, %d reported, want 2: a server's is none of the daemon's", st.Restarts, s.again)
	}
	s.release(k, "l")
}

// Pauses grow while it does not come up, and the error is reported.
func TestBackOff(t *testing.T) {
	s := newSite(t)
	k := s.key(0, "a")
	s.acquire(k, "l", Terms{Memory: sharing.GiB})
	working := s.opt.Program
	d := s.gpus[k.GPU].domains["a"]
	d.daemon.Program.Path = "/bin/false"
	s.kill(s.state().Daemon)
	var pauses []time.Duration
	for range 9 {
		s.now = s.now.Add(24 * time.Hour)
		s.tick(t.Context())
		pauses = append(pauses, d.retry.next.Sub(s.now))
		if st := s.state(); st.Condition != Down || st.Reason == "" || st.Daemon != 0 {
			t.Fatalf("state %+v", st)
		}
	}
	want := []time.Duration{1, 2, 4, 8, 16, 32, 60, 60, 60}
	for i := range want {
		want[i] *= time.Second
	}
	if !slices.Equal(pauses, want) {
		t.Errorf("pauses %v, want %v", pauses, want)
	}
	d.daemon.Program = working
	restarts := s.state().Restarts
	s.tick(t.Context()) // too early
	if st := s.state(); st.Restarts != restarts {
		t.Error("it was started before its time")
	}
	s.now = s.now.Add(time.Minute)
	s.tick(t.Context())
	if st := s.state(); st.Condition != Ready {
		t.Errorf("state %+v", st)
	}
	s.release(k, "l")
}

// What a member of the domain sets through the pipe is put back.
func TestLimitsArePutBack(t *testing.T) {
	s := newSite(t)
	k := s.key(0, "a")
	pipe := s.acquire(k, "l", Terms{Memory: sharing.GiB, Percent: 10})
	d := s.of(k).daemon
	server := s.state().Servers[0]
	if err := errors.Join(d.SetDefaultMemory(t.Context(), 70*sharing.GiB),
		d.SetMemory(t.Context(), server, 70*sharing.GiB), d.SetPercent(t.Context(), server, 100)); err != nil {
		t.Fatal(err)
	}
	for range limitEvery {
		s.tick(t.Context())
	}
	if _, terms := mpstest.Connect(t, pipe); terms[0] != fmt.Sprintf("server %d 10", server) ||
		terms[1] != fmt.Sprintf("%s %d", k.GPU, sharing.GiB) {
		t.Errorf("terms %q", terms)
	}
	s.release(k, "l")
}

// A restarted agent finds its daemons and disturbs none that is needed.
func TestRecover(t *testing.T) {
	s := newSite(t)
	kept, gone, dead := s.key(0, "kept"), s.key(2, "gone"), s.key(3, "dead")
	terms := Terms{Memory: sharing.GiB}
	for _, k := range []Key{kept, gone, dead} {
		s.acquire(k, "l", terms)
	}
	before := s.States()
	at := func(all []State, k Key) State {
		i := slices.IndexFunc(all, func(st State) bool { return st.Key == k })
		if i < 0 {
			t.Fatalf("no daemon of %v in %+v", k, all)
		}
		return all[i]
	}
	client, _ := mpstest.Connect(t, at(before, kept).Pipe)
	s.kill(at(before, dead).Daemon)
	s.agent("boot")
	if err := s.Recover(t.Context(), map[Key]map[string]Terms{kept: {"l": terms}, dead: {"l": terms},
		s.key(0, "no attachments"): {}}); err != nil {
		t.Fatal(err)
	}
	after := s.States()
	if len(after) != 2 || at(after, kept).Daemon != at(before, kept).Daemon ||
		!slices.Equal(at(after, kept).Servers, at(before, kept).Servers) {
		t.Errorf("the daemon that is needed was disturbed: %+v, before %+v", after, before)
	}
	if st := at(after, dead); st.Condition != Ready || st.Daemon == at(before, dead).Daemon {
		t.Errorf("the daemon that had died: %+v", st)
	}
	if clients, err := s.of(kept).daemon.Clients(t.Context(), at(after, kept).Servers[0]); err != nil ||
		len(clients) != 1 {
		t.Errorf("clients %v, %v", clients, err)
	}
	if got := s.left(); got != "4 processes, 6 files" || s.mode(0) != sharing.ComputeModeExclusiveProcess ||
		s.mode(2) != sharing.ComputeModeDefault || s.mode(3) != sharing.ComputeModeExclusiveProcess {
		t.Errorf("left: %s, modes %d %d %d", got, s.mode(0), s.mode(2), s.mode(3))
	}
	client.Leave()
	s.release(kept, "l")
	s.release(dead, "l")
	if got := s.left(); got != nothing || s.mode(0) != sharing.ComputeModeDefault {
		t.Errorf("left: %s", got)
	}
}

// A PID of another boot, or a useless record, belongs to no daemon.
func TestRecoverOfAnotherBoot(t *testing.T) {
	s := newSite(t)
	k := s.key(0, "a")
	s.acquire(k, "l", Terms{Memory: sharing.GiB})
	first := s.state().Daemon
	s.agent("another boot")
	if err := s.Recover(t.Context(), map[Key]map[string]Terms{k: {"l": {Memory: sharing.GiB}}}); err != nil {
		t.Fatal(err)
	}
	second := s.state()
	if second.Condition != Ready || second.Daemon == first {
		t.Errorf("state %+v", second)
	}
	if err := os.WriteFile(s.of(k).place.record(), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	s.agent("another boot")
	if err := s.Recover(t.Context(), nil); !errors.Is(err, sharing.ErrInvalid) {
		t.Errorf("a damaged record: %v", err)
	}
	if got := s.left(); got != nothing {
		t.Errorf("left: %s", got)
	}
}

// Run watches until its context ends, and leaves what serves.
func TestRun(t *testing.T) {
	s := newSite(t)
	k := s.key(0, "a")
	s.acquire(k, "l", Terms{Memory: sharing.GiB})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.Supervisor.Run(ctx)
	}()
	cancel()
	<-done
	if got := s.left(); !strings.HasPrefix(got, "2 processes") {
		t.Errorf("left: %s", got)
	}
	s.release(k, "l")
}
