// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sim/control"
	"github.com/kerf-gpu/kerf/sim/wire"
)

func TestParseMountinfo(t *testing.T) {
	tests := map[string]struct {
		text string
		want hierarchy
	}{
		"none":    {"31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n", hierarchy{}},
		"unified": {"31 23 0:28 / /sys/fs/cgroup rw,relatime - cgroup2 cgroup2 rw\n", hierarchy{"/sys/fs/cgroup", "/"}},
		"hybrid": {"32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n41 31 0:38 / /sys/fs/cgroup/unified " +
			"rw - cgroup2 cgroup2 rw\n",
			hierarchy{"/sys/fs/cgroup/unified", "/"}},
		"optional fields": {"31 23 0:28 / /c rw shared:1 master:2 - cgroup2 cgroup2 rw\n", hierarchy{"/c", "/"}},
		"a part and the whole": {"1 1 0:28 /a /part rw - cgroup2 x rw\n2 1 0:28 / /whole rw - cgroup2 x rw\n",
			hierarchy{"/whole", "/"}},
		"a part":              {"1 1 0:28 /a /part rw - cgroup2 x rw\n", hierarchy{"/part", "/a"}},
		"a blank in the path": {`1 1 0:28 / /a\040b rw - cgroup2 x rw`, hierarchy{"/a b", "/"}},
		"broken":              {"- cgroup2\n1 2 - cgroup2 x\n\n", hierarchy{}},
	}
	for name, tt := range tests {
		if got := parseMountinfo(tt.text); got != tt.want {
			t.Errorf("%s: got %+v, want %+v", name, got, tt.want)
		}
	}
}

func TestDirOfCgroupPath(t *testing.T) {
	whole, part := hierarchy{"/c", "/"}, hierarchy{"/c", "/pod"}
	tests := []struct {
		h          hierarchy
		path, want string
	}{
		{whole, "/", "/c"},
		{whole, "/a/b", "/c/a/b"},
		{whole, "/../x", ""},
		{whole, "/..", ""},
		{part, "/pod", "/c"},
		{part, "/pod/x", "/c/x"},
		{part, "/pods/x", ""},
		{part, "/", ""},
	}
	for _, tt := range tests {
		if got := tt.h.dir(tt.path); got != tt.want {
			t.Errorf("%q in %+v: got %q, want %q", tt.path, tt.h, got, tt.want)
		}
	}
}

func FuzzParseMountinfo(f *testing.F) {
	f.Add("31 23 0:28 / /sys/fs/cgroup rw shared:1 - cgroup2 cgroup2 rw\n")
	f.Add(`1 1 0:28 / /a\04 rw - cgroup2 x rw`)
	f.Fuzz(func(t *testing.T, text string) {
		if h := parseMountinfo(text); h.mount != "" && h.root == "" {
			t.Fatalf("%q: %+v", text, h)
		}
	})
}

func TestLimitHoldsACgroup(t *testing.T) {
	n := start(t, load(t, "h100x8"), "r615")
	parent := cgroup(t, n.d.groups, "", "a")
	leaf := cgroup(t, n.d.groups, parent, "b")
	admin := n.dial("nvidia0")
	admin.call(wire.NotFound, wire.OpGetLimit, leaf)
	admin.call(wire.OK, wire.OpSetLimit, leaf, 0, 10*gib)
	admin.call(wire.OK, wire.OpSetLimit, parent, 0, 15*gib)

	c, other := n.spawn(leaf), n.spawn("")
	c.want(wire.OK, "open 0")
	c.want(wire.OK, "alloc %d", 9*gib)
	c.want(wire.OutOfMemory, "alloc %d", gib)
	other.want(wire.OK, "open 0")
	other.want(wire.OK, "alloc %d", 40*gib)

	used := 9*gib + 500*mib
	if got := admin.call(wire.OK, wire.OpGetLimit, leaf).Vals; !cmp.Equal(got, []uint64{0, 10 * gib, used}) {
		t.Errorf("limit %d", got)
	}
	var limits []control.Limit
	n.ask(control.Request{Command: control.CmdLimits}, &limits)
	hard := []sharing.Bytes{sharing.Bytes(15 * gib), sharing.Bytes(10 * gib)}
	uuid := n.d.uuids[0]
	want := []control.Limit{
		{GPU: uuid, Cgroup: parent, HardBytes: &hard[0], UsedBytes: sharing.Bytes(used)},
		{GPU: uuid, Cgroup: leaf, HardBytes: &hard[1], UsedBytes: sharing.Bytes(used)},
	}
	if d := cmp.Diff(want, limits); d != "" {
		t.Errorf("limits (-want +got):\n%s", d)
	}
	var procs []control.Process
	n.ask(control.Request{Command: control.CmdProcesses}, &procs)
	found := false
	for _, p := range procs {
		if p.PID == c.cmd.Process.Pid {
			found = p.Cgroup == leaf && p.GPU == uuid && p.Bytes == sharing.Bytes(used)
		}
	}
	if !found || len(procs) != 2 {
		t.Errorf("processes %+v", procs)
	}

	// The end of the process gives back what was charged; the end of the group is the end of its limit.
	c.cmd.Process.Kill()
	c.cmd.Wait()
	if got := admin.call(wire.OK, wire.OpGetLimit, leaf).Vals; got[2] != 0 {
		t.Errorf("charged after the death: %d", got)
	}
	if err := unix.Rmdir(leaf); err != nil {
		t.Fatal(err)
	}
	n.ask(control.Request{Command: control.CmdLimits}, &limits)
	if len(limits) != 1 || limits[0].Cgroup != parent {
		t.Errorf("limits after the group's end: %+v", limits)
	}
	if err := os.Mkdir(leaf, 0o755); err != nil {
		t.Fatal(err)
	}
	admin.call(wire.NotFound, wire.OpGetLimit, leaf) // a new group of the same name
}

func TestProcessIsChargedWhereItIs(t *testing.T) {
	n := start(t, load(t, "h100x8"), "r615")
	leaf := cgroup(t, n.d.groups, "", "moved")
	n.dial("nvidia0").call(wire.OK, wire.OpSetLimit, leaf, 0, 2*gib)
	outside := n.spawn("")
	outside.want(wire.OK, "open 0")
	outside.want(wire.OK, "alloc %d", 30*gib)
	before, err := n.d.groups.dirOf(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	move := func(group string) error {
		return os.WriteFile(filepath.Join(group, "cgroup.procs"), []byte("0"), 0o600)
	}
	if err := move(leaf); err != nil {
		t.Fatal(err)
	}
	defer move(before)
	self := n.dial("nvidia0")
	if m := self.call(wire.OK, wire.OpMemory, "").Vals; m[0] != 2*gib || m[3] != 0 {
		t.Errorf("memory as seen in the group: %d", m)
	}
	ctx := self.call(wire.OK, wire.OpCtxCreate, "").Vals[0]
	self.call(wire.OutOfMemory, wire.OpAlloc, "", 2*gib, ctx, uint64(wire.KindLinear))
	self.call(wire.OK, wire.OpAlloc, "", gib, ctx, uint64(wire.KindLinear))
}

func TestSetLimitNeedsACgroup(t *testing.T) {
	n := start(t, load(t, "t4x4"), "r615")
	leaf := cgroup(t, n.d.groups, "", "bad")
	c := n.dial("nvidia0")
	for name, dir := range map[string]string{
		"empty": "", "relative": "a", "not there": leaf + "/none", "another filesystem": "/proc",
		"a file": leaf + "/cgroup.procs", "nul": leaf + "\x00", "up and out": leaf + "/../../../../proc",
	} {
		resp, err := exchange(c.conn, request(wire.OpSetLimit, dir, 0, gib))
		if err != nil || resp.Status != wire.CannotOpen {
			t.Errorf("%s: %v, %v", name, resp.Status, err)
		}
	}
	c.call(wire.NotSupported, wire.OpSetLimit, n.d.groups.mount, 0, gib)
	c.call(wire.CannotOpen, wire.OpGetLimit, leaf+"/none")
	c.call(wire.Invalid, wire.OpSetLimit, leaf, 0, 16*gib) // more than the GPU has
	c.call(wire.Invalid, wire.OpSetLimit, leaf, 0, 0)
	c.call(wire.Invalid, wire.OpSetLimit, leaf, 2, 1)

	tenant := n.spawn("")
	tenant.want(wire.OK, "setuid 65534")
	tenant.want(wire.OK, "open 0")
	tenant.want(wire.NoPermission, "limit %s %d", leaf, gib)

	old := start(t, load(t, "t4x4"), "r580").dial("nvidia0")
	old.call(wire.NotSupported, wire.OpSetLimit, leaf, 0, gib)
	old.call(wire.NotSupported, wire.OpGetLimit, leaf)
}

func TestLimitsDirectoryIsTheCallers(t *testing.T) {
	n := start(t, load(t, "t4x4"), "r615")
	leaf := cgroup(t, n.d.groups, "", "rooted")
	root := t.TempDir()
	if err := os.Symlink("/cg", filepath.Join(root, "link")); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(root, "cg"), 0o755); err != nil {
		t.Fatal(err)
	}
	// The caller's /cg is the group itself: a part of the tree, under another name.
	if err := unix.Mount(leaf, filepath.Join(root, "cg"), "", unix.MS_BIND, ""); err != nil {
		t.Skipf("needs bind mounts: %v", err)
	}
	defer unix.Unmount(filepath.Join(root, "cg"), unix.MNT_DETACH)
	c := n.spawn("")
	c.want(wire.OK, "open 0")
	c.want(wire.OK, "chroot %s", root)
	c.want(wire.CannotOpen, "limit %s %d", leaf, gib)
	c.want(wire.OK, "limit /link %d", gib)
	if got := n.dial("nvidia0").call(wire.OK, wire.OpGetLimit, leaf).Vals; got[1] != gib {
		t.Errorf("limit %d", got)
	}
}
