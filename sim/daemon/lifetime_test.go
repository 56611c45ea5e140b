// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kerf-gpu/kerf/internal/process"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sim/control"
	"github.com/kerf-gpu/kerf/sim/model"
	"github.com/kerf-gpu/kerf/sim/wire"
)

// inherit gives this process the descriptor of a tenant's connection, as a forked child of the tenant has it.
func (c child) inherit() *os.File {
	c.t.Helper()
	number, err := strconv.Atoi(c.do("descriptor"))
	if err != nil {
		c.t.Fatal(err)
	}
	pidfd, err := unix.PidfdOpen(c.cmd.Process.Pid, 0)
	if err != nil {
		c.t.Fatal(err)
	}
	defer unix.Close(pidfd)
	fd, err := unix.PidfdGetfd(pidfd, number, 0)
	if err != nil {
		c.t.Fatalf("take the descriptor: %v", err)
	}
	f := os.NewFile(uintptr(fd), "inherited")
	c.t.Cleanup(func() { f.Close() })
	return f
}

func (c child) end() {
	c.cmd.Process.Kill()
	c.cmd.Wait()
}

func (n node) processes() []control.Process {
	n.t.Helper()
	var all []control.Process
	n.ask(control.Request{Command: control.CmdProcesses}, &all)
	return all
}

// TestMemoryLivesWithTheLastDescriptor ends a process of which another one has the connection's descriptor.
func TestMemoryLivesWithTheLastDescriptor(t *testing.T) {
	n := start(t, load(t, "t4x4"), "r615")
	leaf := cgroup(t, n.d.groups, "", "orphan")
	admin := n.dial("nvidia0")
	admin.call(wire.OK, wire.OpSetLimit, leaf, 0, 15*gib)
	c := n.spawn(leaf)
	c.want(wire.OK, "open 0")
	c.want(wire.OK, "alloc %d", 14*gib)
	pid, held := c.cmd.Process.Pid, 14*gib+120*mib
	started, err := process.StartOf(pid)
	if err != nil {
		t.Fatal(err)
	}
	check := func(ended bool) {
		t.Helper()
		if got, want := admin.call(wire.OK, wire.OpProcesses, "").Vals, []uint64{1, uint64(pid), held, wire.NoInstance,
			wire.NoInstance}; !slices.Equal(got, want) {
			t.Errorf("ended %v: listed %d, want %d", ended, got, want)
		}
		want := control.Process{PID: pid, Start: started, Ended: ended, Cgroup: leaf, GPU: n.d.uuids[0],
			Bytes: sharing.Bytes(held)}
		if got := n.processes(); len(got) != 1 || got[0] != want {
			t.Errorf("%+v, want %+v", got, want)
		}
		if got := admin.call(wire.OK, wire.OpGetLimit, leaf).Vals[2]; got != held {
			t.Errorf("ended %v: %d bytes are charged", ended, got)
		}
	}
	check(false)
	heir := c.inherit()
	check(false)
	c.end()
	check(true)

	next := n.spawn("")
	next.want(wire.OK, "open 0")
	next.want(wire.OutOfMemory, "alloc %d", 2*gib)
	next.end()

	// Nothing can be asked in the name of a process that has ended: its number may be another's.
	inherited, err := net.FileConn(heir)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := exchange(inherited.(*net.UnixConn), request(wire.OpAlloc, "", gib, 0, uint64(wire.KindVMM)))
	if err != nil || resp.Status != wire.NoPermission {
		t.Errorf("an allocation by the heir: %v %v", resp.Status, err)
	}
	if err := inherited.Close(); err != nil { // it had another descriptor
		t.Error(err)
	}
	check(true)
	if err := heir.Close(); err != nil {
		t.Error(err)
	}
	if got := admin.call(wire.OK, wire.OpProcesses, "").Vals; !slices.Equal(got, []uint64{0}) ||
		len(n.processes()) != 0 {
		t.Errorf("listed after the last descriptor is closed: %d", got)
	}
	again := n.spawn("")
	again.want(wire.OK, "open 0")
	again.want(wire.OK, "alloc %d", 14*gib)
}

// TestDeathOfAHolderDuringAHang ends a process and its heir while the driver does not answer.
func TestDeathOfAHolderDuringAHang(t *testing.T) {
	n := start(t, load(t, "t4x4"), "r615")
	c := n.spawn("")
	c.want(wire.OK, "open 0")
	c.want(wire.OK, "alloc %d", 14*gib)
	heir := c.inherit()
	n.set("gpu=0 latency=1h")
	if _, err := c.in.WriteString("alloc 1\n"); err != nil {
		t.Fatal(err)
	}
	c.end()
	if got := n.processes(); len(got) != 1 || !got[0].Ended {
		t.Errorf("after the death: %+v", got)
	}
	if err := heir.Close(); err != nil {
		t.Error(err)
	}
	if got := n.processes(); len(got) != 0 {
		t.Errorf("after the last descriptor: %+v", got)
	}
}

// inSpaceOf starts a tenant in the pid namespace of another one.
func (n node) inSpaceOf(other child, env ...string) child {
	n.t.Helper()
	started := make(chan child)
	go func() {
		defer close(started)
		runtime.LockOSThread() // for good: the thread ends with this goroutine
		fd, err := unix.Open(fmt.Sprintf("/proc/%d/ns/pid", other.cmd.Process.Pid), unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err == nil {
			err = unix.Setns(fd, unix.CLONE_NEWPID)
			unix.Close(fd)
		}
		if err != nil {
			n.t.Errorf("join the pid namespace: %v", err)
			return
		}
		started <- n.spawnAs("", &syscall.SysProcAttr{}, env...)
	}()
	c, ok := <-started
	if !ok {
		n.t.FailNow()
	}
	return c
}

// TestListsInPIDNamespaces has processes in three namespaces, one in the other, ask who uses a GPU.
func TestListsInPIDNamespaces(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root to make pid namespaces")
	}
	n := start(t, load(t, "h100x8"), "r615")
	host := n.spawn("")
	outer := n.spawnAs("", &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID})
	second := n.inSpaceOf(outer)
	inner := n.inSpaceOf(outer, nestVar+"=1")
	depth := map[child]int{host: 0, outer: 1, inner: 2}
	pids := map[child][]int{} // the outermost first
	for i, c := range []child{host, outer, second, inner} {
		c.want(wire.OK, "open 0")
		c.want(wire.OK, "alloc %d", uint64(i+1)*gib)
		pids[c] = namesIn(t, c)
	}
	pidIn := func(c, space child) int { return pids[c][depth[space]] } // as the process in space knows c
	list := func(space child, all ...child) string {
		var words []string
		for _, c := range all {
			gibs := slices.Index([]child{host, outer, second, inner}, c) + 1
			words = append(words, fmt.Sprintf("%d:%d", pidIn(c, space), gibs*1024+500))
		}
		slices.SortFunc(words, func(a, b string) int { return atoi(t, a) - atoi(t, b) })
		return strings.Join(words, " ") + " ok"
	}
	want := map[string]string{
		"host": list(host, host, outer, second, inner), "outer": list(outer, outer, second, inner),
		"inner": list(inner, inner),
	}
	check := func(when string) {
		t.Helper()
		for name, c := range map[string]child{"host": host, "outer": outer, "inner": inner} {
			if got := c.do("list"); got != want[name] {
				t.Errorf("%s: %s gets %q, want %q", when, name, got, want[name])
			}
		}
	}
	check("all live")
	heir := second.inherit()
	defer heir.Close()
	second.end()
	check("one has ended") // with the pids that it had

	// Samples of utilization keep the host's pid for who is not in the caller's namespace.
	outer.want(wire.OK, "work %d", uint64(time.Hour))
	for name, c := range map[string]struct {
		asks child
		pid  int
	}{"host": {host, pidIn(outer, host)}, "outer": {outer, 1}, "inner": {inner, pidIn(outer, host)}} {
		got := ""
		for end := time.Now().Add(time.Minute); got == "" && time.Now().Before(end); time.Sleep(time.Millisecond) {
			got = strings.TrimSpace(strings.TrimSuffix(c.asks.do("times"), "ok"))
		}
		if !strings.HasPrefix(got, strconv.Itoa(c.pid)+":") || strings.Contains(got, " ") {
			t.Errorf("%s gets the times %q, want those of process %d", name, got, c.pid)
		}
	}
}

// namesIn are the pids of a tenant, in the daemon's pid namespace first.
func namesIn(t *testing.T, c child) (out []int) {
	t.Helper()
	pid := strconv.Itoa(c.cmd.Process.Pid)
	threads, err := filepath.Glob("/proc/" + pid + "/task/*/children")
	for _, file := range threads {
		if below, err := os.ReadFile(file); err == nil && len(below) > 0 {
			pid = strings.TrimSpace(string(below)) // it is nested
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile("/proc/" + pid + "/status")
	_, after, found := strings.Cut(string(data), "NSpid:")
	line, _, _ := strings.Cut(after, "\n")
	if err != nil || !found {
		t.Fatalf("%q %v", line, err)
	}
	for word := range strings.FieldsSeq(line) {
		out = append(out, atoi(t, word))
	}
	return out
}

func atoi(t *testing.T, word string) int {
	t.Helper()
	pid, _, _ := strings.Cut(word, ":")
	v, err := strconv.Atoi(pid)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// TestListsAreBounded has more processes than a driver lists.
func TestListsAreBounded(t *testing.T) {
	n := start(t, load(t, "h100x8"), "r615")
	c := n.dial("nvidia0")
	c.call(wire.OK, wire.OpGPUInfo, "") // it is attached
	n.d.mu.Lock()
	var self *peer
	for _, p := range n.d.holders {
		self = p
	}
	for i := range wire.MaxProcesses + 5 {
		id, err := n.d.model.Open(0, 1_000_000+i)
		if err == nil {
			_, err = n.d.model.Alloc(id, 2<<20, 0, wire.KindVMM, nil)
		}
		if err != nil {
			t.Fatal(err)
		}
		n.d.holders[id] = &peer{pid: 1_000_000 + i, names: names{spaces: self.names.spaces, pids: []int{1_000_000 + i}},
			pidfd: self.pidfd}
		defer func(id model.ClientID) {
			n.d.mu.Lock()
			defer n.d.mu.Unlock()
			delete(n.d.holders, id)
		}(id)
	}
	n.d.mu.Unlock()
	got := c.call(wire.OK, wire.OpProcesses, "").Vals
	if got[0] != wire.MaxProcesses || (len(got)-1)/4 != wire.MaxProcesses || got[1] != 1_000_000 {
		t.Errorf("%d processes are listed, of %d entries, the first is %d", got[0], (len(got)-1)/4, got[1])
	}
}
