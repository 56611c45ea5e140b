// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package lists

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kerf-gpu/kerf/internal/process"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/listing"
)

const gib = sharing.GiB

var (
	gpu0 = sharing.GPURef{UUID: "GPU-0"}
	gpu1 = sharing.GPURef{UUID: "GPU-1"}
)

// program is a process as a test has it. Its files are open on the GPUs with these minors.
type program struct {
	dir   string
	start uint64
	open  []int
	err   error // of what it cannot be read
}

// programs are a Kernel.
type programs struct {
	all   map[int]program
	now   atomic.Uint64
	reads int // of files
}

func (k *programs) of(pid int) (program, error) {
	p, ok := k.all[pid]
	if !ok {
		return program{}, fmt.Errorf("process %d: %w", pid, sharing.ErrNotFound)
	}
	return p, p.err
}

func (k *programs) Cgroup(pid int) (string, error) { p, err := k.of(pid); return p.dir, err }

func (k *programs) Start(pid int) (uint64, error) { p, err := k.of(pid); return p.start, err }

func (k *programs) Open(pid, minor int) (bool, error) {
	k.reads++
	p, err := k.of(pid)
	return slices.Contains(p.open, minor), err
}

func (k *programs) Now() uint64 { return k.now.Add(1) }

// bench has two GPUs, whose minors are 4 and 5, and grants a on both and b on the first.
func bench(all map[int]program) (*programs, *Lists, []Grant) {
	k := &programs{all: all}
	k.now.Store(100)
	l := New(k)
	l.Found([]sharing.GPU{{UUID: gpu0.UUID, Minor: 4}, {UUID: gpu1.UUID, Minor: 5}})
	grant := func(name string, gpus ...sharing.GPURef) Grant {
		dir := "/cg/" + name
		return Grant{Owner: listing.Owner(name), Cgroup: dir,
			On: func(g sharing.GPURef) bool { return slices.Contains(gpus, g) }, Procs: func() (pids []int, err error) {
				for pid, p := range k.all {
					if p.dir == dir || p.dir == dir+"/below" {
						pids = append(pids, pid)
					}
				}
				slices.Sort(pids)
				return pids, nil
			}}
	}
	return k, l, []Grant{grant("a", gpu0, gpu1), grant("b", gpu0)}
}

func uses(pids ...int) (out []Use) {
	for _, pid := range pids {
		out = append(out, Use{PID: pid, Used: gib, Known: true, MPS: pid == 2})
	}
	return out
}

// instant is a driver with an immediate answer.
type instant struct {
	uses []Use
	err  error
}

func (d *instant) Processes(context.Context, sharing.GPURef) ([]Use, error) { return d.uses, d.err }

func (l *Lists) look(grants []Grant, gpu sharing.GPURef, pids ...int) Observation {
	return l.Attribute([]Answer{l.Query(context.Background(), &instant{uses: uses(pids...)}, gpu)}, grants)[0]
}

// brief is a line in short.
func brief(l Line) string {
	return fmt.Sprintf("%d:%d:%s:%s", l.PID, l.Kind, l.Owner, l.Cgroup)
}

func briefs(l Observation) (out []string) {
	for _, line := range l.Lines {
		out = append(out, brief(line))
	}
	return out
}

func TestJudge(t *testing.T) {
	denied := fmt.Errorf("read: %w", sharing.ErrDenied)
	k, l, grants := bench(map[int]program{
		1: {dir: "/cg/a", start: 1, open: []int{4, 5}}, 2: {dir: "/cg/b/below", start: 2, open: []int{4, 5}},
		3: {dir: "/cg/ab", start: 3, open: []int{4}},
		4: {dir: "", start: 4, open: []int{4}}, 5: {err: denied}, 6: {dir: "/cg/b", start: 6},
	})
	look := l.look(grants, gpu0, 1, 2, 3, 4, 5, 6, 7)
	want := []string{"1:1:a:/cg/a", "2:1:b:/cg/b/below", "3:1::/cg/ab", "4:1::", "5:0::", "6:3::", "7:3::"}
	if got := briefs(look); !slices.Equal(got, want) || look.Lines[0].MPS || !look.Lines[1].MPS ||
		look.Lines[0].Process != (listing.Process{PID: 1, Start: 1}) {
		t.Errorf("%q, want %q: %+v", got, want, look.Lines)
	}
	if c := look.Charge("a"); c.Known {
		t.Errorf("with an entry that cannot be read: %+v", c)
	}
	if look.Unattributed() != 2*gib {
		t.Errorf("unowned: %s", look.Unattributed())
	}
	// A grant that has no part of a GPU does not own what its processes hold there.
	if got := briefs(l.look(grants, gpu1, 1, 2)); !slices.Equal(got, []string{"1:1:a:/cg/a", "2:1::/cg/b/below"}) {
		t.Errorf("%q", got)
	}
	reads := k.reads
	if got := briefs(l.look(grants, gpu1, 1, 2)); len(got) != 2 || k.reads != reads {
		t.Errorf("files are read %d times in a second look", k.reads-reads)
	}
	failed := l.Attribute([]Answer{l.Query(t.Context(), &instant{err: sharing.ErrLost}, gpu0)}, grants)[0]
	if !errors.Is(failed.Err, sharing.ErrLost) || len(failed.Lines) != 0 || failed.Charge("a").Known {
		t.Errorf("%+v", failed)
	}
	// The file of a GPU that was not found belongs to no process.
	if got := briefs(l.look(grants, sharing.GPURef{UUID: "GPU-9"}, 3)); !slices.Equal(got, []string{"3:0::"}) {
		t.Errorf("%q", got)
	}
}

func TestKeepers(t *testing.T) {
	k, l, grants := bench(map[int]program{
		1: {dir: "/cg/a", start: 1, open: []int{4}}, 2: {dir: "/cg/a", start: 2, open: []int{4}},
		3: {dir: "/cg/a", start: 3, open: []int{5}},
		4: {dir: "/cg/a/below", start: 4, open: []int{4}}, 5: {dir: "/cg/a", start: 5},
		6: {dir: "/cg/b", start: 6, open: []int{4}},
	})
	l.look(grants, gpu0, 1, 2)
	delete(k.all, 1)
	look := l.look(grants, gpu0, 1, 2)
	if got := briefs(look); !slices.Equal(got, []string{"1:2:a:", "2:1:a:/cg/a"}) {
		t.Fatalf("%q", got)
	}
	if c := look.Charge("a"); c != (listing.Charge{Bytes: 2 * gib, Ended: gib, Known: true}) {
		t.Errorf("%+v", c)
	}
	got, err := l.Retainers(look, grants[0])
	if want := []listing.Process{{PID: 4, Start: 4}}; err != nil || !slices.Equal(got, want) {
		t.Errorf("%v %v, want %v", got, err, want)
	}
	k.all[5] = program{dir: "/cg/a", err: sharing.ErrUnavailable}
	if _, err := l.Retainers(look, grants[0]); !errors.Is(err, sharing.ErrUnavailable) {
		t.Errorf("of one that cannot be read: %v", err)
	}
	broken := grants[0]
	broken.Procs = func() ([]int, error) { return nil, sharing.ErrDenied }
	if _, err := l.Retainers(look, broken); !errors.Is(err, sharing.ErrDenied) {
		t.Errorf("of a cgroup that cannot be read: %v", err)
	}
	// One that was never seen is charged to the only grant that has such a process: b keeps nothing on GPU 1.
	if got := briefs(l.look(grants, gpu1, 9)); !slices.Equal(got, []string{"9:3::"}) {
		t.Errorf("while one cannot be read: %q", got)
	}
	k.all[5] = program{dir: "/cg/a", start: 5}
	if got := briefs(l.look(grants, gpu1, 9)); !slices.Equal(got, []string{"9:2:a:"}) {
		t.Errorf("%q", got)
	}
}

// TestOrder judges an answer after that to a later question: it changes nothing that is remembered.
func TestOrder(t *testing.T) {
	k, l, grants := bench(map[int]program{1: {dir: "/cg/a", start: 1, open: []int{4}}})
	l.look(grants, gpu0, 1)
	late := l.Query(t.Context(), &instant{}, gpu0) // it is not listed
	delete(k.all, 1)
	if got := briefs(l.look(grants, gpu0, 1)); !slices.Equal(got, []string{"1:2:a:"}) {
		t.Errorf("%q", got)
	}
	if got := l.Attribute([]Answer{late}, grants)[0]; len(got.Lines) != 0 {
		t.Errorf("%+v", got)
	}
	if got := briefs(l.look(grants, gpu0, 1)); !slices.Equal(got, []string{"1:2:a:"}) {
		t.Errorf("after the late answer: %q", got)
	}
}

func TestCheck(t *testing.T) {
	k, l, grants := bench(map[int]program{1: {dir: "/cg/a", start: 1, open: []int{4}},
		2: {dir: "/cg/a", start: 2, open: []int{4}}})
	one := listing.Process{PID: 1, Start: 1}
	l.look(grants, gpu0, 1)
	if err := l.Check(gpu0, one); err != nil {
		t.Error(err)
	}
	k.all[1] = program{dir: "/cg/a", start: 1}
	if err := l.Check(gpu0, one); !errors.Is(err, sharing.ErrStale) {
		t.Errorf("without the file: %v", err)
	}
	look := l.look(grants, gpu0, 1)
	if got := briefs(look); !slices.Equal(got, []string{"1:2:a:"}) {
		t.Errorf("after it was found without the file: %q", got)
	}
	if got, err := l.Retainers(look, grants[0]); err != nil ||
		!slices.Equal(got, []listing.Process{{PID: 2, Start: 2}}) {
		t.Errorf("%v %v", got, err)
	}
	k.all[1] = program{err: sharing.ErrDenied}
	if err := l.Check(gpu0, one); !errors.Is(err, sharing.ErrDenied) {
		t.Errorf("unreadable: %v", err)
	}
	if err := l.Check(sharing.GPURef{UUID: "GPU-9"}, one); !errors.Is(err, sharing.ErrUnavailable) {
		t.Errorf("of a GPU that was not found: %v", err)
	}
}

// driver answers after a time, and counts the calls.
type driver struct {
	after map[sharing.GPURef]time.Duration
	calls atomic.Int32
}

func (d *driver) Processes(ctx context.Context, gpu sharing.GPURef) ([]Use, error) {
	n := int(d.calls.Add(1))
	select {
	case <-time.After(d.after[gpu]):
		return uses(n), nil
	case <-ctx.Done():
		return nil, sharing.ErrUnavailable
	}
}

func TestAskAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, l, _ := bench(nil)
		began := time.Now()
		got := l.QueryAll(t.Context(), &driver{after: map[sharing.GPURef]time.Duration{gpu0: time.Hour,
			gpu1: time.Second}}, []sharing.GPURef{gpu0, gpu1}, 2*time.Second)
		if took := time.Since(began); took != 2*time.Second || !errors.Is(got[0].Err, sharing.ErrUnavailable) ||
			got[1].Err != nil || len(got[1].Uses) != 1 || got[1].GPU != gpu1 {
			t.Errorf("%+v after %s", got, took)
		}
	})
}

// TestNode asks the real kernel.
func TestNode(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "dev"), 0o755); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "dev", "nvidia3")
	n := Node{CgroupOf: func(int) (string, error) { return "/cg", nil }, DevRoot: dir}
	if _, err := n.Open(os.Getpid(), 3); !errors.Is(err, sharing.ErrUnavailable) ||
		errors.Is(err, sharing.ErrNotFound) {
		t.Errorf("without such a device: %v", err)
	}
	s, err := net.ListenUnix("unix", &net.UnixAddr{Name: file, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if open, err := n.Open(os.Getpid(), 3); open || err != nil {
		t.Errorf("%v %v", open, err)
	}
	fd, err := unix.Open(file, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if open, err := n.Open(os.Getpid(), 3); !open || err != nil {
		t.Errorf("%v %v", open, err)
	}
	if _, err := n.Open(1<<30, 3); !errors.Is(err, sharing.ErrNotFound) {
		t.Errorf("of no process: %v", err)
	}
	start, err := n.Start(os.Getpid())
	want, err2 := process.StartOf(os.Getpid())
	if start != want || err != nil || err2 != nil || n.Now() < start {
		t.Errorf("%d %d %v %v, now %d", start, want, err, err2, n.Now())
	}
	if dir, err := n.Cgroup(1); dir != "/cg" || err != nil {
		t.Errorf("%q %v", dir, err)
	}
}
