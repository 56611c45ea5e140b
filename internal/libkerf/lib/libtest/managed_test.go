// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package libtest_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/kerf-gpu/kerf/sharing"
)

// lines runs the program that calls what its input says, and returns a line of output for each line of input.
func (b box) lines(t *testing.T, input []string) []string {
	t.Helper()
	cmd, out, errout := b.command(t, nil, "check/every/every")
	cmd.Stdin = strings.NewReader(strings.Join(input, "\n") + "\n")
	if err := cmd.Run(); err != nil || errout.Len() > 0 {
		t.Fatalf("%v: %s", err, errout)
	}
	got := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(got) != len(input) {
		t.Fatalf("%d lines for %d calls:\n%s", len(got), len(input), out)
	}
	return got
}

// Where the region rejects managed memory, each call that allocates it or moves memory to a GPU is rejected, and the
// driver is not asked. The device has no managed memory then. Other calls, and moves to the host, pass.
func TestRejectsManagedMemory(t *testing.T) {
	const (
		device = "1" // a CUmemLocation in one word: type device, id 0
		host   = "2"
		batch  = " b0 b1 3 b2 b3 2 0 5e00 2+0=2 2+8=" // two places, the first of them the host
	)
	dir := everyDriver(t, prototypes(t))
	b := everyBox(t, dir)
	type call struct {
		text    string
		rejects bool
	}
	calls := []call{
		{"cuMemAllocManaged b0 1000 1", true},
		{"cuMemAlloc_v2 b0 1000", false},
		{"cuMemPoolCreate b0 b1 1+0=2", true},
		{"cuMemPoolCreate b0 b1 1+0=1 1+8=1", false},
		{"cuMemGetDefaultMemPool b0 b1 2", true},
		{"cuMemGetDefaultMemPool b0 b1 1", false},
		{"cuMemGetMemPool b0 b1 2", true},
		{"cuMemGetMemPool b0 b1 1", false},
	}
	for _, suffix := range []string{"", "_ptsz"} {
		calls = append(calls,
			call{"cuMemPrefetchAsync" + suffix + " 1000 10 0 5e00", true},
			call{"cuMemPrefetchAsync" + suffix + " 1000 10 ffffffff 5e00", false},
			call{"cuMemPrefetchAsync_v2" + suffix + " 1000 10 " + device + " 0 5e00", true},
			call{"cuMemPrefetchAsync_v2" + suffix + " 1000 10 " + host + " 0 5e00", false},
			call{"cuMemPrefetchBatchAsync" + suffix + batch + device, true},
			call{"cuMemPrefetchBatchAsync" + suffix + batch + host, false},
			call{"cuMemDiscardAndPrefetchBatchAsync" + suffix + batch + device, true},
			call{"cuMemDiscardAndPrefetchBatchAsync" + suffix + batch + host, false},
		)
	}
	var input []string
	for _, c := range calls {
		name, args, _ := strings.Cut(c.text, " ")
		input = append(input, "linked "+name+" - 0 0 0 "+args)
	}
	for _, reject := range []bool{false, true} {
		b.region.RejectManaged(reject)
		for i, line := range b.lines(t, input) {
			name, _, _ := strings.Cut(calls[i].text, " ")
			want, asked := fmt.Sprintf("%s libkerf.so 0;", name), true
			if reject && calls[i].rejects {
				want, asked = fmt.Sprintf("%s libkerf.so 801;", name), false
			}
			if !strings.HasPrefix(line, want) || strings.Contains(line, ";"+name+" ") != asked {
				t.Errorf("reject %v: %s:\n%s", reject, calls[i].text, line)
			}
		}
	}
}

// What a program asks of the device before it uses managed memory.
func TestDeviceHasNoManagedMemory(t *testing.T) {
	b := everyBox(t, everyDriver(t, prototypes(t)))
	managed := map[int]bool{83: true, 88: true, 89: true, 100: true, 101: true}
	var input []string
	for attribute := range 120 {
		input = append(input, fmt.Sprintf("linked cuDeviceGetAttribute - 0 0 0 b0 %x 0 0+0=7", attribute))
	}
	for _, reject := range []bool{false, true} {
		b.region.RejectManaged(reject)
		for attribute, line := range b.lines(t, input) {
			want := ";=7 0 0 0"
			if reject && managed[attribute] {
				want = ";=0 0 0 0"
			}
			if !strings.HasPrefix(line, "cuDeviceGetAttribute libkerf.so 0;") || !strings.HasSuffix(line, want) {
				t.Errorf("reject %v, attribute %d: %s", reject, attribute, line)
			}
		}
	}
}

// A pool of managed memory may have no location, or the host. What is allocated from it can come to the GPU all the
// same.
func TestManagedPoolIsCharged(t *testing.T) {
	dir := everyDriver(t, prototypes(t))
	for kind, charged := range map[string]bool{"1+0=2": true, "1+0=2 1+8=2": true, "1+0=1 1+8=2": false} {
		b := everyBox(t, dir)
		b.lines(t, []string{
			"linked cuMemPoolCreate - 0 0 0 b0 b1 0+0=77 " + kind,
			"linked cuMemAllocFromPoolAsync - 0 0 0 b0 400000 77 5e00",
		})
		want := sharing.Bytes(0)
		if charged {
			want = 32 * mib // by which pools grow
		}
		if got, managed := b.used(), b.managed(); got != want || managed != want {
			t.Errorf("pool %q: %d bytes are charged, %d of them as managed memory", kind, got, managed)
		}
	}
}

// managed is the part of what is charged that is managed memory.
func (b box) managed() (sum sharing.Bytes) {
	for _, c := range b.region.Counts() {
		for _, n := range c.Managed {
			sum += n
		}
	}
	return sum
}

// The agent learns which part of what a process holds is managed memory: no process is listed with it. When a process
// becomes another program, or is killed, its slot has none for the next one.
func TestManagedMemoryIsCountedApart(t *testing.T) {
	b := start(t, "h100x8", "r580").cap(t, 4*gib)
	take := []string{"gpu:0", "take:managed:1073741824", "take:linear:2097152", "wait"}
	p := b.begin(t, append(take, "give", "wait", "clear", "wait", "take:managed:2147483648", "wait", "exec", "gpu:0",
		"take:linear:2097152", "wait")...)
	for i, want := range []struct{ managed, held sharing.Bytes }{
		{gib, gib + 2*mib}, {gib, gib}, {0, 0}, {2 * gib, 2 * gib}, {0, 2 * mib},
	} {
		p.until(t)
		if got, held := b.managed(), b.used(); got != want.managed || held != want.held {
			t.Errorf("step %d: %d bytes of managed memory of %d, want %d of %d", i, got, held, want.managed, want.held)
		}
		p.goOn(t)
	}
	p.end()
	killed := b.begin(t, take...)
	killed.until(t)
	if err := killed.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	killed.end()
	b.reclaim(t)
	next := b.begin(t, "gpu:0", "take:linear:2147483648", "wait")
	next.until(t)
	if got, held := b.managed(), b.used(); got != 0 || held != 2*gib {
		t.Errorf("the next process has %d bytes of managed memory of %d", got, held)
	}
}

// On a driver that has managed memory a program cannot take any, by whatever way it finds the function.
func TestManagedMemoryOfADriver(t *testing.T) {
	n := start(t, "h100x8", "r580")
	b := n.cap(t, gib)
	b.region.RejectManaged(true)
	for _, way := range []string{"dlsym", "dlvsym", "default", "space", "proc1", "proc2", "ptsz", "itself"} {
		if got := b.check(t, "via:"+way, "gpu:0", "take:managed:4096", "take:linear:4096"); got != "801|0" {
			t.Errorf("%s: %s", way, got)
		}
	}
	b.region.RejectManaged(false)
	if got := b.check(t, "gpu:0", "take:managed:4096"); got != "0" {
		t.Errorf("%s", got)
	}
}
