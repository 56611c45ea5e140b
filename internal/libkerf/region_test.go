// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package libkerf

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/google/go-cmp/cmp"

	"github.com/kerf-gpu/kerf/sharing"
)

var (
	gpu0 = sharing.GPURef{UUID: "GPU-8f6d1c2a-0b1e-4c55-9d3f-2a7b6c5d4e3f"}
	gpu1 = sharing.GPURef{UUID: "GPU-00000000-0000-0000-0000-000000000001"}
)

// counter builds the program that counts as C does.
func counter(t *testing.T) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "counter")
	out, err := exec.CommandContext(t.Context(), "cc", "-std=c11", "-O2", "-Wall", "-Wextra", "-Werror", "-pthread",
		"-I", "lib", "-o", program, filepath.Join("testdata", "counter.c")).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return program
}

func region(t *testing.T, limit sharing.Bytes) (r *UsageFile, files []string) {
	t.Helper()
	dir := t.TempDir()
	r, err := Create(dir, []Device{{gpu0, limit}, {gpu1, 7}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	return r, []string{filepath.Join(dir, LimitsFile), filepath.Join(dir, UsageFileName)}
}

func otherUser() (map[Process]bool, error) { return nil, nil }

func TestLayoutIsTheSameInC(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), counter(t), "layout").Output()
	if err != nil {
		t.Fatal(err)
	}
	var l limitsPage
	var u usagePage
	want := fmt.Sprintln(unsafe.Sizeof(l), unsafe.Offsetof(l.device), unsafe.Offsetof(l.device[0].overhead),
		unsafe.Offsetof(l.percent), unsafe.Offsetof(l.rejectsManaged), unsafe.Offsetof(l.bound),
		unsafe.Offsetof(l.least), unsafe.Offsetof(u.total[0].budget), unsafe.Offsetof(u.total[0].past),
		unsafe.Sizeof(u),
		unsafe.Offsetof(u.total), unsafe.Offsetof(u.slot), unsafe.Sizeof(u.slot[0]), unsafe.Offsetof(u.slot[0].begun),
		unsafe.Offsetof(u.slot[0].held), unsafe.Offsetof(l.device[0].moves), unsafe.Offsetof(u.slot[0].making),
		unsafe.Offsetof(u.slot[0].waiting), unsafe.Offsetof(u.total[0].refused), unsafe.Offsetof(u.total[0].turn),
		unsafe.Offsetof(u.total[0].occupied), unsafe.Offsetof(u.rejected),
		unsafe.Offsetof(u.managed), MaxDevices, MaxProcesses, uint64(limitsMagic), uint64(usageMagic))
	if d := cmp.Diff(want, string(out)); d != "" {
		t.Errorf("(-Go +C):\n%s", d)
	}
}

func TestCreateAndOpen(t *testing.T) {
	r, files := region(t, 100)
	dir := filepath.Dir(files[0])
	if _, err := Create(dir, []Device{{gpu0, 1}}); !errors.Is(err, sharing.ErrConflict) {
		t.Errorf("a second region: %v", err)
	}
	again, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if err := errors.Join(r.SetLimit(gpu0, 50), r.Correct(gpu1, 3, nil), r.SetContext(gpu0, 9), r.SetBound(gpu0, 11),
		r.SawContext(gpu1, 2), r.SawContext(gpu1, 3)); err != nil {
		t.Fatal(err)
	}
	want := []Usage{{GPU: gpu0, Limit: 50, Context: 9, Bound: 11}, {GPU: gpu1, Limit: 7, Overhead: 3, Least: 2}}
	if d := cmp.Diff(want, again.Usage()); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if err := r.SetLimit(sharing.GPURef{UUID: "GPU-x"}, 1); !errors.Is(err, sharing.ErrNotFound) {
		t.Errorf("another GPU: %v", err)
	}
	for name, devices := range map[string][]Device{
		"none": nil, "twice": {{gpu0, 1}, {gpu0, 2}}, "no UUID": {{sharing.GPURef{UUID: "GPU-12"}, 1}},
		"many": make([]Device, MaxDevices+1),
	} {
		if _, err := Create(t.TempDir(), devices); !errors.Is(err, sharing.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := Open(t.TempDir()); !errors.Is(err, sharing.ErrNotFound) {
		t.Errorf("no region: %v", err)
	}
}

// 64 processes with 4 threads each have memory for exactly one reservation of each thread. No call may be rejected, and
// the total may never exceed the limit.
func TestManyProcessesUnderOneLimit(t *testing.T) {
	const processes, threads, bytes = 64, 4, 1 << 20
	program := counter(t)
	r, files := region(t, processes*threads*bytes)
	var all []*exec.Cmd
	for range processes {
		c := exec.CommandContext(t.Context(), program, "load", files[0], files[1], fmt.Sprint(threads), "200",
			fmt.Sprint(bytes))
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		all = append(all, c)
	}
	for _, c := range all {
		if err := c.Wait(); err != nil {
			t.Error(err)
		}
	}
	if freed, err := reclaim(r, otherUser); freed != processes || err != nil || r.Usage()[0].Used != 0 {
		t.Errorf("freed %d slots, %v, left %v", freed, err, r.Usage()[0])
	}
}

func TestKilledProcessesLeaveNothing(t *testing.T) {
	program := counter(t)
	r, files := region(t, 1000)
	for round := range 40 {
		c := exec.CommandContext(t.Context(), program, "load", files[0], files[1], "4", "0", "7")
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Duration(round%10) * time.Millisecond)
		_ = c.Process.Kill()
		_ = c.Wait()
	}
	if _, err := reclaim(r, otherUser); err != nil || r.Usage()[0].Used != 0 {
		t.Errorf("%v, left %v", err, r.Usage()[0])
	}
}

// What lives keeps its share; what is dead gives it back; limit and overhead count at once.
func TestReclaimTellsTheLivingFromTheDead(t *testing.T) {
	program := counter(t)
	r, files := region(t, 100)
	hold := func(bytes int) (*exec.Cmd, string) {
		c := exec.CommandContext(t.Context(), program, "hold", files[0], files[1], fmt.Sprint(bytes))
		in, err := c.StdinPipe()
		out, err2 := c.StdoutPipe()
		if err := errors.Join(err, err2, c.Start()); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = in.Close(); _ = c.Wait() })
		said, err := bufio.NewReader(out).ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		return c, strings.TrimSpace(said)
	}
	_, first := hold(60)
	living := owners(r)
	if _, second := hold(41); first != "held" || second != "refused" {
		t.Errorf("60 of 100 %s, 41 more %s", first, second)
	}
	alive := func() (map[Process]bool, error) { return living, nil }
	if _, err := reclaim(r, alive); err != nil || r.Usage()[0].Used != 60 {
		t.Errorf("%v, left %v", err, r.Usage()[0])
	}
	if err := r.Correct(gpu0, 30, nil); err != nil {
		t.Fatal(err)
	}
	if _, said := hold(11); said != "refused" {
		t.Errorf("11 past the overhead: %s", said)
	}
	if err := r.SetLimit(gpu0, 101); err != nil {
		t.Fatal(err)
	}
	if _, said := hold(11); said != "held" {
		t.Errorf("11 under the raised limit: %s", said)
	}
	if _, err := reclaim(r, otherUser); err != nil || r.Usage()[0].Used != 0 {
		t.Errorf("%v, left %v", err, r.Usage()[0])
	}
}

// A container can truncate the file of its counters; only that container is affected.
func TestATruncatedFile(t *testing.T) {
	r, files := region(t, 100)
	if err := os.Truncate(files[1], 0); err != nil {
		t.Fatal(err)
	}
	if _, err := reclaim(r, otherUser); !errors.Is(err, sharing.ErrStale) {
		t.Errorf("reclaim: %v", err)
	}
	if d := cmp.Diff([]Usage{{GPU: gpu0, Limit: 100}, {GPU: gpu1, Limit: 7}}, r.Usage()); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// A slot that a process of the container has freed, and another has taken, is not the dead one's any more.
func TestReclaimLeavesWhatIsAnothersByNow(t *testing.T) {
	r, _ := region(t, 100)
	s := &r.usage.slot[3]
	s.owner, s.held[0], r.usage.total[0].bytes = owner(5, 9), 10, 10
	freed, err := reclaim(r, func() (map[Process]bool, error) {
		s.owner = owner(7, 9)
		return map[Process]bool{}, nil
	})
	if err != nil || freed != 0 || s.owner != owner(7, 9) || r.Usage()[0].Used != 10 {
		t.Errorf("freed %d, %v, owner %x, %v", freed, err, s.owner, r.Usage()[0])
	}
	s.owner = buried // an agent that died
	if freed, err := reclaim(r, otherUser); err != nil || freed != 1 || r.Usage()[0].Used != 0 {
		t.Errorf("freed %d, %v, %v", freed, err, r.Usage()[0])
	}
}

// Processes of two containers with the same pid and start time are distinguished by their PID namespaces.
func TestReclaimTellsNamesakes(t *testing.T) {
	for living, want := range map[Process]sharing.Bytes{
		{PID: 5, Start: 9, Space: 1}: 10, {PID: 5, Start: 9, Space: 2}: 100, {PID: 5, Start: 9}: 1,
		{PID: 6, Start: 9, Space: 1}: 0,
	} {
		r, _ := region(t, 1000)
		for i, space := range []uint64{1, 2, 0} {
			s := &r.usage.slot[3*i]
			s.owner, s.space, s.held[0] = owner(5, 9), space, []uint64{10, 100, 1}[i]
			r.usage.total[0].bytes += s.held[0]
		}
		if _, err := reclaim(r, func() (map[Process]bool, error) {
			return map[Process]bool{living: true}, nil
		}); err != nil || r.Usage()[0].Used != want {
			t.Errorf("%+v lives: %v are left, want %v (%v)", living, r.Usage()[0].Used, want, err)
		}
	}
}

func owners(r *UsageFile) map[Process]bool {
	out := map[Process]bool{}
	for i := range r.usage.slot {
		if who := r.usage.slot[i].owner; who != 0 {
			out[named(who, 0)] = true
		}
	}
	return out
}

// A process that died between total and slot leaves the total too high; no slot tells.
func TestReclaimFindsWhatNoSlotHolds(t *testing.T) {
	r, _ := region(t, 100)
	r.usage.total[0].bytes = 40
	r.usage.slot[3].owner, r.usage.slot[3].begun = owner(5, 9), 1
	r.usage.slot[4].owner, r.usage.slot[4].held[0] = owner(6, 9), 10
	living := func() (map[Process]bool, error) { return map[Process]bool{{PID: 6, Start: 9}: true}, nil }
	if freed, err := reclaim(r, living); freed != 1 || err != nil || r.Usage()[0].Used != 10 {
		t.Errorf("freed %d, %v, left %v", freed, err, r.Usage()[0])
	}
	failed := errors.New("no list")
	if _, err := reclaim(r, func() (map[Process]bool, error) { return nil, failed }); !errors.Is(err, failed) ||
		r.Usage()[0].Used != 10 {
		t.Errorf("%v, left %v", err, r.Usage()[0])
	}
}

// A region of a shared MIG instance counts whatever device a program has, and is known again by the instance.
func TestARegionOfASharedInstance(t *testing.T) {
	dir, part := t.TempDir(), sharing.Instance{Profile: "3g.40gb", Start: 4}.On(gpu0.UUID)
	r, err := Create(dir, []Device{{part, 9}})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := again.SetLimit(part, 11); err != nil {
		t.Error(err)
	}
	if u := again.Usage(); len(u) != 1 || u[0].GPU != part || u[0].Limit != 11 {
		t.Errorf("found again: %+v", u)
	}
	if err := again.Close(); err != nil {
		t.Error(err)
	}
	if err := os.WriteFile(filepath.Join(dir, PartFile), []byte("GPU-x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(dir); !errors.Is(err, sharing.ErrInvalid) {
		t.Errorf("without its name: %v", err)
	}
	if _, err := Create(t.TempDir(), []Device{{part, 9}, {gpu1, 9}}); !errors.Is(err, sharing.ErrInvalid) {
		t.Errorf("next to a GPU: %v", err)
	}
}

// reclaim finds the slots of dead processes and frees them.
func reclaim(r *UsageFile, alive func() (map[Process]bool, error)) (int, error) {
	graves, err := r.Dead(func(slots []Process) (map[Process]bool, error) {
		living, err := alive()
		ended := map[Process]bool{}
		for _, p := range slots {
			ended[p] = !living[p]
		}
		return ended, err
	})
	if err != nil {
		return 0, err
	}
	return r.Bury(graves)
}

// owner is how a slot names a process: its pid and start time in its own pid namespace.
func owner(pid int, start uint64) uint64 {
	return start<<pidBits | uint64(pid)&(1<<pidBits-1)
}
