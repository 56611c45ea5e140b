// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sim/control"
	"github.com/kerf-gpu/kerf/sim/machine"
	"github.com/kerf-gpu/kerf/sim/wire"
)

func TestStatus(t *testing.T) {
	n := start(t, load(t, "mixed"), "r615")
	n.set("gpu=3 util=70 latency=1500us")
	n.set("gpu=2 xid=48")
	n.set("gpu=0 lost=true")
	var s control.Status
	n.ask(control.Request{Command: control.CmdStatus}, &s)
	if s.PID != os.Getpid() || s.Dir != n.dir || s.Machine != "mixed" || s.Driver != "r615" || s.Memacct != "dmem" ||
		len(s.GPUs) != 4 {
		t.Fatalf("%+v", s)
	}
	if !s.GPUs[0].Lost || s.GPUs[1].Lost || len(s.GPUs[1].Instances) != 4 || !s.GPUs[1].MIG ||
		s.GPUs[2].RecoveryAction != "Reset" {
		t.Errorf("%+v", s.GPUs[:3])
	}
	want := control.GPU{
		Index: 3, Minor: 3, UUID: machine.UUID(n.dir, "mixed", 3), Model: "Tesla T4", PCI: "00000000:CA:00.0", NUMA: 1,
		PCIDevice: 0x1EB810DE, PCISubsystem: 0x12A210DE,
		MemoryBytes: 15360 * sharing.MiB, ReservedBytes: 266 * sharing.MiB, Instances: []string{},
		RecoveryAction: "None",
		Utilization:    70, LatencyMS: 1.5, TimeSlice: "Default", PowerLimitMW: 70000,
	}
	if d := cmp.Diff(want, s.GPUs[3]); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

func TestSetIsAllOrNothing(t *testing.T) {
	n := start(t, load(t, "t4x4"), "r615")
	holder := n.dial("nvidia3")
	holder.call(wire.OK, wire.OpCtxCreate, "")
	for words, want := range map[string]struct {
		kind error
		text string
	}{
		"gpu=0,4 util=5":            {sharing.ErrInvalid, "write 0 to 3, or all"},
		"gpu=all util=5 reset=true": {sharing.ErrConflict, "gpu 3"},
		"gpu=0 lost=true reset=true util=5": {
			sharing.ErrInvalid, "reset"},
	} {
		s, err := control.ParseSettings(strings.Fields(words))
		if err != nil {
			t.Fatal(err)
		}
		err = control.Call(deadline(t), n.dir, control.Request{Command: control.CmdSet, Set: &s}, nil)
		if !errors.Is(err, want.kind) || !strings.Contains(err.Error(), want.text) {
			t.Errorf("%s: %v", words, err)
		}
	}
	var s control.Status
	n.ask(control.Request{Command: control.CmdStatus}, &s)
	for _, g := range s.GPUs {
		if g.Utilization != 0 || g.Lost {
			t.Errorf("a refused change did this: %+v", g)
		}
	}
}

func TestControlRefusesWhatIsNoRequest(t *testing.T) {
	n := start(t, load(t, "t4x4"), "r615")
	for _, line := range []string{
		"", "x", "{}", `{"command":"dance"}`, `{"command":"status","colour":1}`, `{"command":"set"}`,
		`{"command":"status","set":{}}`,
		`{"command":"set","set":{}}`, `{"command":"set","set":{"gpus":[-1],"change":{"Util":1}}}`,
		`{"command":"set","set":{"all":true,"gpus":[1]}}`,
		`{"command":"set","set":{"gpus":[99999999999999999999]}}`,
		`{"command":"set","set":{"all":true,"change":{"Latency":-1}}}`,
		strings.Repeat("x", control.MaxLine+1),
	} {
		conn, err := net.Dial("unix", control.SocketPath(n.dir))
		if err != nil {
			t.Fatal(err)
		}
		if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Write([]byte(line + "\n")); err != nil {
			t.Fatal(err)
		}
		var a control.Answer
		err = json.NewDecoder(bufio.NewReader(conn)).Decode(&a)
		conn.Close()
		if err != nil || !errors.Is(a.Err(), sharing.ErrInvalid) {
			t.Errorf("%.80q: %v, %v", line, a.Err(), err)
		}
	}
	var s control.Status
	n.ask(control.Request{Command: control.CmdStatus}, &s) // it still answers
}

func TestStopCommandEndsRun(t *testing.T) {
	n := start(t, load(t, "t4x4"), "r615")
	tenant := n.dial("nvidia0")
	tenant.call(wire.OK, wire.OpCtxCreate, "")
	waiter := n.dial("nvidiactl")
	ended := make(chan error, 1)
	go func() { // it hangs in a wait and must not keep the daemon
		_, err := exchange(waiter.conn, request(wire.OpWaitEvent, "", 3_600_000, 0xF, 8))
		ended <- err
	}()
	n.set("gpu=1 latency=1h")
	hung := n.dial("nvidia1")
	go func() {
		_, err := exchange(hung.conn, request(wire.OpGPUInfo, ""))
		ended <- err
	}()
	n.ask(control.Request{Command: control.CmdStop}, nil)
	for range 2 {
		select {
		case err := <-ended:
			if err == nil {
				t.Error("a call was answered after the stop")
			}
		case <-time.After(time.Minute):
			t.Fatal("a connection outlives the stop")
		}
	}
}

func TestTooLongADirectory(t *testing.T) {
	dir := "/" + strings.Repeat("x", maxSocketPath-len(longestName))
	if err := CheckDir(dir); !errors.Is(err, sharing.ErrInvalid) {
		t.Errorf("%v", err)
	}
	if err := CheckDir(dir[:len(dir)-1]); err != nil {
		t.Errorf("one byte less: %v", err)
	}
}

func TestLockIsForOne(t *testing.T) {
	dir, ctx := t.TempDir(), context.Background()
	if pid, err := Owner(dir); pid != 0 || err != nil {
		t.Fatalf("unowned directory: %d, %v", pid, err)
	}
	if err := os.WriteFile(pidPath(dir), []byte("1\n"), 0o600); err != nil { // left by one that was killed
		t.Fatal(err)
	}
	if pid, err := Owner(dir); pid != 0 || err != nil {
		t.Fatalf("a stale file: %d, %v", pid, err)
	}
	lock, err := Lock(ctx, dir)
	if err != nil {
		t.Fatal(err)
	}
	if pid, err := Owner(dir); pid != os.Getpid() || err != nil {
		t.Errorf("owner %d, %v", pid, err)
	}
	if _, err := Lock(ctx, dir); !errors.Is(err, sharing.ErrConflict) {
		t.Errorf("a second lock: %v", err)
	}
	if err := lock.Unlock(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(pidPath(dir)); !os.IsNotExist(err) {
		t.Errorf("the file is left: %v", err)
	}
	again, err := Lock(ctx, dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := again.Unlock(); err != nil {
		t.Error(err)
	}
}

func TestCleanRemovesOnlySockets(t *testing.T) {
	dir, err := os.MkdirTemp("", "gpu[sim]*")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	if err := os.Mkdir(filepath.Join(dir, "dev"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"dev/nvidia7", "dev/nvidiactl", "control.sock"} {
		l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: filepath.Join(dir, name), Net: "unixpacket"})
		if err != nil {
			t.Fatal(err)
		}
		l.SetUnlinkOnClose(false)
		l.Close()
	}
	keep := filepath.Join(dir, "dev", "nvidia-notes.txt")
	if err := os.WriteFile(keep, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Clean(dir); err != nil {
		t.Fatal(err)
	}
	left, err := os.ReadDir(filepath.Join(dir, "dev"))
	if err != nil || len(left) != 1 || left[0].Name() != filepath.Base(keep) {
		t.Errorf("left: %v, %v", left, err)
	}
	if _, err := os.Lstat(filepath.Join(dir, "control.sock")); !os.IsNotExist(err) {
		t.Errorf("the control socket is left: %v", err)
	}
}
