// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kerf-gpu/kerf/sim/control"
	"github.com/kerf-gpu/kerf/sim/machine"
	"github.com/kerf-gpu/kerf/sim/wire"
)

func TestSystem(t *testing.T) {
	for driver, want := range map[string]wire.Response{
		"r580": {Vals: []uint64{13000, 580, 4}, Text: "580.95.05\n13.580.95.05"},
		"r615": {Vals: []uint64{13040, 615, 4}, Text: "615.71.09\n13.615.71.09"},
	} {
		n := start(t, load(t, "t4x4"), driver)
		got := n.dial("nvidiactl").call(wire.OK, wire.OpSystem, "")
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s (-want +got):\n%s", driver, d)
		}
	}
}

func TestGPUInfo(t *testing.T) {
	n := start(t, load(t, "h100x8"), "r615")
	got := n.dial("nvidia4").call(wire.OK, wire.OpGPUInfo, "")
	uuid := machine.UUID(n.dir, "h100x8", 4)
	want := wire.Response{
		Vals: []uint64{4, 4, 81559 * mib, 550 * mib, 9, 0, 132, 9, 14, 0, 0x9D, 0, 0x233010DE, 0x16C110DE, 1, 500 * mib,
			18, 7, 2048, 131072 * mib, 0, 1},
		Text: uuid + "\nNVIDIA H100 80GB HBM3\n" + machine.Serial(uuid) + "\n00000000:9D:00.0",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

func TestModesOfSockets(t *testing.T) {
	n := start(t, load(t, "t4x4"), "r615")
	for name, want := range map[string]os.FileMode{"dev/nvidiactl": 0o666, "dev/nvidia0": 0o666, "dev/nvidia3": 0o666,
		"control.sock": 0o600} {
		info, err := os.Stat(filepath.Join(n.dir, name))
		if err != nil || info.Mode() != want|os.ModeSocket {
			t.Errorf("%s: %v, %v", name, info.Mode(), err)
		}
	}
	if _, err := os.Stat(filepath.Join(n.dir, "dev/nvidia4")); !os.IsNotExist(err) {
		t.Errorf("a fifth GPU: %v", err)
	}
}

func TestMIGReads(t *testing.T) {
	n := start(t, load(t, "mixed"), "r615")
	mig, whole, t4 := n.dial("nvidia1"), n.dial("nvidia0"), n.dial("nvidia2")
	check := func(what string, got wire.Response, want ...uint64) {
		t.Helper()
		if !slices.Equal(got.Vals, want) {
			t.Errorf("%s: got %d, want %d", what, got.Vals, want)
		}
	}
	check("mode of the MIG GPU", mig.call(wire.OK, wire.OpMIGMode, ""), 1, 1)
	check("mode of the whole GPU", whole.call(wire.OK, wire.OpMIGMode, ""), 0, 0)
	t4.call(wire.NotSupported, wire.OpMIGMode, "")
	t4.call(wire.NotSupported, wire.OpMIGProfile, "", 0)
	check("instances of the whole GPU", whole.call(wire.OK, wire.OpMIGInstances, ""), 0)
	got := mig.call(wire.OK, wire.OpMIGInstances, "")
	check("instances", got, 4,
		1, 14, 0, 2, 0, 20096*mib, 1, 0, 2,
		2, 19, 2, 1, 0, 9984*mib, 0, 0, 1,
		3, 19, 3, 1, 0, 9984*mib, 0, 0, 1,
		4, 9, 4, 4, 0, 40448*mib, 2, 0, 3)
	if ids := strings.Split(got.Text, "\n"); len(ids) != 4 || !strings.HasPrefix(ids[3], "MIG-") || ids[1] == ids[2] {
		t.Errorf("UUIDs %q", ids)
	}
	p := whole.call(wire.OK, wire.OpMIGProfile, "", 9)
	check("profile 1g.20gb", p, 15, 20096*mib, 1, 26, 4, 1, 1, 0, 1, 0, 4, 0, 2, 2, 2, 4, 2, 6, 2)
	if p.Text != "1g.20gb" {
		t.Errorf("name %q", p.Text)
	}
	if left := mig.call(wire.OK, wire.OpMIGProfile, "", 0).Vals[10]; left != 0 {
		t.Errorf("%d more 1g fit on a full GPU", left)
	}
	whole.call(wire.NotSupported, wire.OpMIGProfile, "", 5)
	mig.call(wire.NotSupported, wire.OpSetLimit, "/", 0, gib)
}

func TestLinksAndTopology(t *testing.T) {
	n := start(t, load(t, "h100x8"), "r615")
	c := n.dial("nvidia0")
	if got := c.call(wire.OK, wire.OpTopology, "", 7).Vals; !slices.Equal(got, []uint64{50, 18}) {
		t.Errorf("topology %d", got)
	}
	if got := c.call(wire.OK, wire.OpNVLink, "", 17).Vals; !slices.Equal(got[:2], []uint64{1, 2}) {
		t.Errorf("link %d", got)
	}
	c.call(wire.Invalid, wire.OpNVLink, "", 18)
	c.call(wire.Invalid, wire.OpTopology, "", 8)
	c.call(wire.Invalid, wire.OpTopology, "", wire.Unknown)
}

func TestBadPacketsGetAnAnswer(t *testing.T) {
	n := start(t, load(t, "t4x4"), "r615")
	good := request(wire.OpGPUInfo, "")
	later := append([]byte(nil), good...)
	later[0] = 2
	tests := map[string]struct {
		packet []byte
		want   wire.Status
	}{
		"short": {[]byte{1}, wire.Invalid},
		"long":  {make([]byte, wire.MaxRequest+100), wire.BadVersion},
		"long, right": {append(request(wire.OpGPUInfo, strings.Repeat("x", wire.MaxText)), make([]byte, 100)...),
			wire.Invalid},
		"another version": {later, wire.BadVersion},
		"unknown op":      {request(999, ""), wire.Invalid},
		"system op":       {request(wire.OpSystem, ""), wire.Invalid},
	}
	c := n.dial("nvidia0")
	for name, tt := range tests {
		resp, err := exchange(c.conn, tt.packet)
		if err != nil || resp.Status != tt.want {
			t.Errorf("%s: %v, %v; want %v", name, resp.Status, err, tt.want)
		}
	}
	n.dial("nvidiactl").call(wire.Invalid, wire.OpMemory, "")
	c.call(wire.OK, wire.OpGPUInfo, "") // the connection is still of use
}

func TestMemoryComesBackWhenTheConnectionCloses(t *testing.T) {
	n := start(t, load(t, "t4x4"), "r615")
	watcher := n.dial("nvidia0")
	for range 20 {
		c := n.dial("nvidia0")
		ctx := c.call(wire.OK, wire.OpCtxCreate, "").Vals[0]
		c.call(wire.OK, wire.OpAlloc, "", 14*gib, ctx, uint64(wire.KindLinear))
		c.call(wire.OutOfMemory, wire.OpAlloc, "", gib, ctx, uint64(wire.KindLinear))
		c.conn.Close()
		if used := watcher.call(wire.OK, wire.OpMemory, "").Vals[3]; used != 0 {
			t.Fatalf("%d bytes are held after the close", used)
		}
	}
}

func TestMemoryComesBackWhenTheProcessDies(t *testing.T) {
	n := start(t, load(t, "t4x4"), "r615")
	watcher := n.dial("nvidia0")
	for range 5 {
		c := n.spawn("")
		c.want(wire.OK, "open 0")
		c.want(wire.OK, "alloc %d", 14*gib)
		procs := watcher.call(wire.OK, wire.OpProcesses, "").Vals
		if want := []uint64{1, uint64(c.cmd.Process.Pid), 14*gib + 120*mib, wire.NoInstance,
			wire.NoInstance}; !slices.Equal(procs, want) {
			t.Fatalf("processes %d, want %d", procs, want)
		}
		c.cmd.Process.Kill()
		c.cmd.Wait()
		if got := watcher.call(wire.OK, wire.OpProcesses, "").Vals; !slices.Equal(got, []uint64{0}) {
			t.Fatalf("processes after the death: %d", got)
		}
	}
}

func TestManyProcessesArePaged(t *testing.T) {
	n := start(t, load(t, "h100x8"), "r615")
	c := n.dial("nvidia0")
	// Connections of one process are one process, so the paging is looked at with offsets.
	for range 3 {
		n.dial("nvidia0").call(wire.OK, wire.OpCtxCreate, "")
	}
	if got := c.call(wire.OK, wire.OpProcesses, "").Vals; got[0] != 1 || got[2] != 1500*mib {
		t.Errorf("%d", got)
	}
	if got := c.call(wire.OK, wire.OpProcesses, "", 1).Vals; !slices.Equal(got, []uint64{1}) {
		t.Errorf("past the end: %d", got)
	}
	if got := c.call(wire.OK, wire.OpProcesses, "", wire.Unknown).Vals; !slices.Equal(got, []uint64{1}) {
		t.Errorf("far past the end: %d", got)
	}
}

func TestLaunchIsInMonotonicTime(t *testing.T) {
	n := start(t, load(t, "t4x4"), "r615")
	c := n.dial("nvidia0")
	ctx := c.call(wire.OK, wire.OpCtxCreate, "").Vals[0]
	before := uint64(now())
	done := c.call(wire.OK, wire.OpLaunch, "", ctx, 1, 1, 0, uint64(time.Second)).Vals[0]
	after := uint64(now())
	if done < before+uint64(time.Second) || done > after+uint64(time.Second) {
		t.Errorf("done at %d, asked between %d and %d", done, before, after)
	}
	c.call(wire.Invalid, wire.OpLaunch, "", ctx, 1, 1, 0, wire.Unknown)
	n.set("gpu=0 util=80")
	if got := c.call(wire.OK, wire.OpUtilization, "").Vals; !slices.Equal(got, []uint64{80, 40}) {
		t.Errorf("utilisation %d", got)
	}
}

// With time slices, a launch ends by the clock of its process, which waits for the work of another.
func TestClock(t *testing.T) {
	mach, _ := load(t, "t4x4").Shared(machine.SharingSlices)
	n := start(t, mach, "r615")
	a, b := n.dial("nvidia0"), n.dial("nvidia0")
	if got := a.call(wire.OK, wire.OpGPUInfo, "").Vals; got[len(got)-1] != 1 {
		t.Errorf("not in time slices: %d", got)
	}
	ctx := b.call(wire.OK, wire.OpCtxCreate, "").Vals[0]
	b.call(wire.OK, wire.OpLaunch, "", ctx, 1, 1, 0, uint64(time.Minute))
	ctx = a.call(wire.OK, wire.OpCtxCreate, "").Vals[0]
	done := a.call(wire.OK, wire.OpLaunch, "", ctx, 1, 1, 0, uint64(10*time.Millisecond)).Vals[0]
	began := done - uint64(10*time.Millisecond)
	for {
		at := a.call(wire.OK, wire.OpClock, "", done).Vals
		if at[2] == 0 { // It asks again no sooner than it has to.
			wait(t.Context(), time.Duration(at[1]))
			continue
		}
		if took := at[2] - began; took < uint64(18*time.Millisecond) || at[0] < done {
			t.Errorf("10 ms of work in slices of 2 ms were done after %v, the clock is at %d of %d",
				time.Duration(took),
				at[0], done)
		}
		break
	}
	if got := a.call(wire.OK, wire.OpCopy, "", ctx, 1000).Vals[0]; got == 0 {
		t.Error("a copy ended at 0")
	}
}

func TestEventsReachEachWaiter(t *testing.T) {
	n := start(t, load(t, "t4x4"), "r615")
	early := n.dial("nvidiactl")
	early.call(wire.Timeout, wire.OpWaitEvent, "", 1, 0xF, 8)
	other := n.dial("nvidiactl")
	other.call(wire.OK, wire.OpSystem, "") // it is attached
	var wg sync.WaitGroup
	got := make([]wire.Response, 2)
	for i, c := range []caller{early, other} {
		wg.Go(func() {
			got[i], _ = exchange(c.conn, request(wire.OpWaitEvent, "", 15_000, 0xF, 8))
		})
	}
	n.set("gpu=2 xid=31")
	wg.Wait()
	want := wire.Response{Vals: []uint64{2, 8, 31, wire.NoInstance, wire.NoInstance}}
	for i := range got {
		if d := cmp.Diff(want, got[i]); d != "" {
			t.Errorf("waiter %d (-want +got):\n%s", i, d)
		}
	}
	n.set("gpu=0,1 xid=13") // while no client waits
	if a, b := early.call(wire.OK, wire.OpWaitEvent, "", 0, 0xF, 8), early.call(wire.OK, wire.OpWaitEvent, "", 0, 0xF,
		8); a.Vals[0] != 0 || b.Vals[0] != 1 {
		t.Errorf("queued events: %d, %d", a.Vals, b.Vals)
	}
	early.call(wire.Timeout, wire.OpWaitEvent, "", 0, 0xF, 8)
	n.dial("nvidiactl").call(wire.Timeout, wire.OpWaitEvent, "", 0, 0xF, 8) // it came later
}

func TestLostGPU(t *testing.T) {
	n := start(t, load(t, "t4x4"), "r615")
	c := n.dial("nvidia1")
	ctx := c.call(wire.OK, wire.OpCtxCreate, "").Vals[0]
	waiter := n.dial("nvidiactl")
	waiter.call(wire.OK, wire.OpSystem, "")
	n.set("gpu=1 lost=true")
	for op := wire.OpGPUInfo; op <= wire.OpRecovery; op++ {
		c.call(wire.Lost, op, "/")
	}
	for op := wire.OpCtxCreate; op <= wire.OpLaunch; op++ {
		c.call(wire.Lost, op, "", ctx)
	}
	n.dial("nvidia1").call(wire.Lost, wire.OpGPUInfo, "")
	n.dial("nvidia0").call(wire.OK, wire.OpGPUInfo, "")
	waiter.call(wire.Timeout, wire.OpWaitEvent, "", 0, 0xF, 8) // without an XID
	n.set("gpu=1 lost=false")
	c.call(wire.OK, wire.OpGPUInfo, "")
	n.set("gpu=1 xid=79")
	c.call(wire.Lost, wire.OpGPUInfo, "")
	if ev := waiter.call(wire.OK, wire.OpWaitEvent, "", 0, 0xF, 8).Vals; ev[0] != 1 || ev[2] != 79 {
		t.Errorf("event %d", ev)
	}
}

func TestLatency(t *testing.T) {
	n := start(t, load(t, "t4x4"), "r615")
	slow, other := n.dial("nvidia0"), n.dial("nvidia1")
	n.set("gpu=0 latency=30ms")
	began := time.Now()
	slow.call(wire.OK, wire.OpGPUInfo, "")
	if d := time.Since(began); d < 30*time.Millisecond {
		t.Errorf("answered after %v", d)
	}
	n.set("gpu=0 latency=1h") // The GPU hangs until the latency is 0.
	answered := make(chan error, 1)
	go func() {
		_, err := exchange(slow.conn, request(wire.OpGPUInfo, ""))
		answered <- err
	}()
	other.call(wire.OK, wire.OpGPUInfo, "")
	select {
	case err := <-answered:
		t.Fatalf("answered during the hang: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	n.set("gpu=0 latency=0s")
	if err := <-answered; err != nil {
		t.Error(err)
	}
}

// On a driver with costs a context takes its time, and a list waits meanwhile. A killed process stays in the list for a
// moment.
func TestCosts(t *testing.T) {
	n := start(t, load(t, "t4x4"), "r615")
	n.set("gpu=0 cost.context=40ms cost.list=1m")
	c, reader := n.spawn(""), n.dial("nvidia0")
	began := time.Now()
	c.want(wire.OK, "open 0")
	if d := time.Since(began); d < 40*time.Millisecond {
		t.Errorf("a context was there after %v", d)
	}
	listed := make(chan error, 1)
	go func() {
		_, err := exchange(reader.conn, request(wire.OpProcesses, ""))
		listed <- err
	}()
	n.dial("nvidia1").call(wire.OK, wire.OpProcesses, "")
	n.dial("nvidia0").call(wire.OK, wire.OpMemory, "")
	select {
	case err := <-listed:
		t.Errorf("the list came while the driver made a context: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	reader.conn.Close()
	<-listed
	n.set("gpu=0 cost.exit=1m")
	c.cmd.Process.Kill()
	c.cmd.Wait()
	var procs []control.Process
	n.ask(control.Request{Command: control.CmdProcesses}, &procs)
	if len(procs) != 1 || !procs[0].Ended || procs[0].PID != c.cmd.Process.Pid {
		t.Errorf("after the kill: %+v", procs)
	}
}

func TestDeathDuringAHang(t *testing.T) {
	n := start(t, load(t, "t4x4"), "r615")
	c := n.spawn("")
	c.want(wire.OK, "open 0")
	c.want(wire.OK, "alloc %d", 14*gib)
	n.set("gpu=0 latency=1h")
	if _, err := c.in.WriteString("alloc 1\n"); err != nil {
		t.Fatal(err)
	}
	c.cmd.Process.Kill()
	c.cmd.Wait()
	var procs []control.Process
	n.ask(control.Request{Command: control.CmdProcesses}, &procs)
	if len(procs) != 0 {
		t.Errorf("%+v", procs)
	}
}
