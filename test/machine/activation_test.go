// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package machine_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const (
	raceCap  = gib
	raceTake = 10 * gib
)

// racer is one try to have more GPU memory than a grant caps, by taking it around the activation.
type racer struct {
	m    *machine
	proc *proc
	in   io.Closer
	said string // the file in which the library says what CUDA said
	activated
}

// raceBy starts a program that takes memory in one of the ways of testdata/racer.c, and waits for its activation.
func (m *machine) raceBy(how string, delay time.Duration) *racer {
	m.t.Helper()
	dir, err := os.MkdirTemp(m.work, "race")
	if err != nil {
		m.t.Fatal(err)
	}
	r := &racer{m: m, said: filepath.Join(dir, "said")}
	fifo := filepath.Join(dir, "go")
	if err := errors.Join(syscall.Mkfifo(fifo, 0o600), os.WriteFile(r.said, nil, 0o600)); err != nil {
		m.t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0], helperActivate, m.dir, fifo)
	cmd.Env = append(slices.Clone(m.env), helperEnv+"=1", "LD_PRELOAD="+m.racerLibrary(), "RACER_HOW="+how,
		"RACER_GO="+fifo, "RACER_SAID="+r.said,
		fmt.Sprintf("RACER_DELAY_US=%d", delay.Microseconds()), fmt.Sprintf("RACER_BYTES=%d", raceTake))
	if r.in, err = cmd.StdinPipe(); err != nil {
		m.t.Fatal(err)
	}
	r.proc = begin(m.t, m.work, "race", cmd)
	eventually(m.t, "word of the racer", func() error {
		if !r.proc.running() || strings.Contains(r.proc.stdout(), "\n") {
			return nil
		}
		return errors.New("none")
	})
	if said := r.proc.stdout(); said != "" {
		r.activated = decode[activated](m.t, said)
	} else if end := r.proc.wait(); end.signal != syscall.SIGKILL {
		// Anything but a kill by the reactive backend, before the program could report its grant.
		m.t.Fatalf("the racer: %v", end)
	}
	if r.ID == "" && r.Error != "" {
		m.t.Fatalf("it has no grant: %s", r.Error)
	}
	return r
}

// racerLibrary builds the library once for a machine.
func (m *machine) racerLibrary() string {
	m.t.Helper()
	lib := filepath.Join(m.base, "racer.so")
	if _, err := os.Stat(lib); err == nil {
		return lib
	}
	cmd := exec.CommandContext(m.t.Context(), "cc", "-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-shared",
		"-fPIC", "-o", lib, "testdata/racer.c", "-ldl", "-lpthread")
	if out, err := cmd.CombinedOutput(); err != nil {
		m.t.Fatalf("build the racing library: %v\n%s", err, out)
	}
	return lib
}

// cuda is what CUDA said to the allocation: 0 for success.
func (r *racer) cuda() int {
	r.m.t.Helper()
	var code int
	eventually(r.m.t, "word of the racing library", func() error {
		text, err := os.ReadFile(r.said)
		if err == nil {
			code, err = strconv.Atoi(strings.TrimSpace(string(text)))
		}
		if err != nil && !r.proc.running() {
			code, err = -1, nil // it was ended
		}
		return err
	})
	return code
}

// end ends the program, and waits until nothing of it is left.
func (r *racer) end() {
	r.m.t.Helper()
	_ = r.in.Close()
	r.proc.kill()
	r.m.noGrants()
	eventually(r.m.t, "end of the racer's memory", func() error {
		if used := r.m.memory().used; used != 0 {
			return fmt.Errorf("%d bytes in use", used)
		}
		return nil
	})
}

// raceEnd is what came of a race.
type raceEnd string

const (
	raceRejected raceEnd = "rejected" // the process has no grant and runs where it was
	raceHeld     raceEnd = "held"     // it has a grant, and not more memory than the cap
	raceEnded    raceEnd = "ended"    // it has a grant, took more, and was killed
	raceShown    raceEnd = "shown"    // more is taken, and a warning says so
	raceWon      raceEnd = "WON"      // it has a grant and more memory than the cap, and Kerf shows nothing
)

// result watches until nothing more can come of the race.
func (r *racer) result() raceEnd {
	r.m.t.Helper()
	if r.Error != "" {
		r.wantRejected()
		return raceRejected
	}
	if r.proc.running() {
		r.cuda()
	}
	var over time.Time
	for ; ; time.Sleep(20 * time.Millisecond) {
		switch used := r.m.memory().used; {
		case !r.proc.running():
			return raceEnded
		case used <= raceCap:
			return raceHeld
		case over.IsZero():
			over = time.Now()
		case time.Since(over) < 3*time.Second: // the watch looks many times
		case r.shown():
			return raceShown
		default:
			return raceWon
		}
	}
}

// shown reports whether a warning names the grant, or a process that has none.
func (r *racer) shown() bool {
	r.m.t.Helper()
	return slices.ContainsFunc(r.m.state().Warnings, func(w string) bool {
		return strings.Contains(w, r.ID) || strings.Contains(w, "processes without a grant")
	})
}

// wantRejected checks that nothing of the grant is left, and that the process runs where it came from.
func (r *racer) wantRejected() {
	r.m.t.Helper()
	own, err := os.ReadFile("/proc/self/cgroup")
	its, err2 := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", r.proc.pid()))
	if err != nil || err2 != nil || !bytes.Equal(own, its) {
		r.m.t.Errorf("a rejected process is in %s, it came from %s (%v, %v)", its, own, err, err2)
	}
	if g := r.m.state().Grants; len(g) != 0 {
		r.m.t.Errorf("grants after a rejection: %+v", g)
	}
	if !r.proc.running() {
		r.m.t.Errorf("a rejected process ended: %v", r.proc.wait())
	}
	r.cuda() // it still gets memory, or an error, so it does not stand still
}

// The moments of the race are the same in each run: raceTries within raceEarly of the call, when the agent prepares the
// cgroup, and half as many within raceLate, when the process stands still or has its grant.
const (
	raceTries, raceSeed = 64, 18
	raceEarly, raceLate = 9 * time.Millisecond, 50 * time.Millisecond
)

// A process that takes GPU memory at any moment around its activation never has it outside its cap.
func TestActivationRace(t *testing.T) {
	t.Parallel()
	for _, b := range backends() {
		if b.name != "driver" && b.name != "libkerf" {
			continue
		}
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			m := b.make(t, usualHardware, b.driver, "")
			for within, tries := range map[time.Duration]int{raceEarly: raceTries, raceLate: raceTries / 2} {
				ends := m.raceAll("thread", tries, within)
				t.Logf("within %s: %v", within, ends)
				if ends[raceWon] > 0 || ends[raceShown] > 0 {
					t.Error("the cap was passed")
				}
			}
			checkInvariants(t, m)
		})
	}
}

// raceAll races so many times, and counts how it ends.
func (m *machine) raceAll(how string, tries int, within time.Duration) map[raceEnd]int {
	m.t.Helper()
	moments := rand.New(rand.NewPCG(raceSeed, 0))
	ends := map[raceEnd]int{}
	for range tries {
		r := m.raceBy(how, time.Duration(moments.Int64N(int64(within)+1)))
		ends[r.result()]++
		r.end()
	}
	return ends
}

// Kerf finds the GPU memory that a process has before its activation, whichever process allocated it.
func TestActivationRejects(t *testing.T) {
	t.Parallel()
	m := newMachine(t, setup{hardware: usualHardware})
	for how, says := range map[string]string{
		"context": "uses GPU 0 already",
		"heir":    "has " + m.sim + "/dev/nvidia0",
		"sibling": "shares its memory or its open files with process",
	} {
		t.Run(how, func(t *testing.T) {
			m := m.in(t)
			r := m.raceBy(how, 0)
			if !strings.Contains(r.Error, says) {
				t.Errorf("activation: %q, want %q", r.Error, says)
			}
			if end := r.result(); end != raceRejected {
				t.Errorf("it was %s", end)
			}
			r.end()
		})
	}
	checkInvariants(t, m)
}

// kerf run says why it ends, with the status that tells it from the command's own.
func TestRunWithADeviceFileOpen(t *testing.T) {
	t.Parallel()
	m := newMachine(t, setup{hardware: usualHardware})
	f, err := os.OpenFile(m.sim+"/dev/nvidiactl", unix.O_PATH, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	got := m.run(flags("--memory 1GiB"), []string{"echo", "ran"},
		func(c *exec.Cmd) { c.ExtraFiles = []*os.File{f} }).wait()
	if got.code != 125 || got.out != "" || !strings.Contains(got.err, m.sim+"/dev/nvidiactl open; close it first") {
		t.Errorf("%v", got)
	}
	m.noGrants()
	checkInvariants(t, m)
}
