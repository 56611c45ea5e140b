// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package deviceplugin

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/test/eventually"
	"github.com/kerf-gpu/kerf/test/fakekubelet"
)

func TestNothingBeforeTheInventory(t *testing.T) {
	dir := folder(t)
	k := kubelet(t, dir)
	p := plugin(dir, k)
	stop := run(t, p)
	time.Sleep(3 * look)
	if got := k.Registrations(); len(got) > 0 {
		t.Fatalf("registered before anything is known: %v", got)
	}
	if err := p.SetInventory(Inventory{Memory: true}); !errors.Is(err, sharing.ErrInvalid) {
		t.Errorf("an inventory without a GPU: %v", err)
	}
	set(t, p, Inventory{Units: gpus(0, 1), Memory: true, Percent: true})
	counts(t, k, sharing.ResourceMemory, 20, 20)
	counts(t, k, sharing.ResourcePercent, 200, 200)
	if n := k.Plugins(sharing.ResourceGPU); n != 0 {
		t.Error("a resource that is not advertised was registered")
	}
	over := gpus(0, 1)
	over[1].Percent = 150
	set(t, p, Inventory{Units: over, Memory: true, Percent: true})
	counts(t, k, sharing.ResourcePercent, 250, 250)
	set(t, p, all(gpus(0, 1)))
	// Each resource reaches kubelet on a separate stream, in no order.
	counts(t, k, sharing.ResourceGPU, 2, 2)
	counts(t, k, sharing.ResourceMemory, 20, 20)
	counts(t, k, sharing.ResourcePercent, 200, 200)
	for _, s := range p.Status() {
		if c, a := k.Count(s.Resource); !s.Advertised || !s.Registered || s.Err != nil || s.IDs != c || s.Healthy != a {
			t.Errorf("status %+v, kubelet counts %d and %d", s, c, a)
		}
	}
	stop()
	if left := sockets(t, dir); len(left) > 0 {
		t.Errorf("sockets left: %v", left)
	}
	for _, r := range fixed() {
		eventually.True(t, "the plugin's end", func() bool { return k.Plugins(r) == 0 })
	}
}

func TestAdmit(t *testing.T) {
	dir := folder(t)
	k := kubelet(t, dir)
	p := plugin(dir, k)
	set(t, p, all(gpus(0, 1)))
	run(t, p)
	for _, r := range fixed() {
		eventually.True(t, r, func() bool { c, _ := k.Count(r); return c > 0 })
	}
	got := append(admit(t, k, ref("a"), sharing.ResourceMemory, 3), admit(t, k, ref("a"), sharing.ResourcePercent,
		25)...)
	want := []string{"kerf.dev/guard=armed", "kerf.dev/ask=gpu-memory-gib:3", "kerf.dev/guard=armed",
		"kerf.dev/ask=gpu-percent:25"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("shared (-want +got):\n%s", diff)
	}
	got = admit(t, k, ref("b"), sharing.ResourceGPU, 2)
	want = []string{"kerf.dev/guard=armed", "kerf.dev/ask=gpu:2", "kerf.dev/numa=0:1", "kerf.dev/numa=1:1"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("whole (-want +got):\n%s", diff)
	}
	if d := k.Devices(sharing.ResourceGPU)["g02"]; d.GetTopology().GetNodes()[0].GetID() != 1 {
		t.Errorf("topology %v, want node 1", d.GetTopology())
	}
	if d := k.Devices(sharing.ResourceMemory)["u0001"]; d.GetTopology() != nil {
		t.Errorf("a unit that is tied to no GPU has topology %v", d.GetTopology())
	}
}

// Kubelet restarts, in order and by a kill, also twice. The same ids are there again within a second of its socket, and
// containers keep theirs.
func TestKubeletRestart(t *testing.T) {
	for name, end := range map[string]func(*fakekubelet.Kubelet){"stopped": (*fakekubelet.Kubelet).Stop,
		"killed": (*fakekubelet.Kubelet).Kill} {
		t.Run(name, func(t *testing.T) {
			dir := folder(t)
			k := kubelet(t, dir)
			p := plugin(dir, k)
			set(t, p, all(gpus(0, 1)))
			run(t, p)
			counts(t, k, sharing.ResourceMemory, 20, 20)
			want := admit(t, k, ref("a"), sharing.ResourceMemory, 4)
			quickest := patience
			// Three restarts, and more on a machine on which none of them was quick: a test must not fail for what else
			// its machine does.
			for i := 0; i < 3 || i < 15 && quickest > time.Second; i++ {
				end(k)
				// It stays away long enough for our attempts to fail, or not at all.
				if i == 1 {
					time.Sleep(3 * look)
				}
				begin := time.Now()
				if err := k.Start(); err != nil {
					t.Fatal(err)
				}
				for _, r := range fixed() {
					eventually.True(t, r, func() bool { return k.Plugins(r) > 0 })
				}
				took := time.Since(begin)
				t.Logf("restart %d: registered after %v", i, took.Round(time.Millisecond))
				quickest = min(quickest, took)
				counts(t, k, sharing.ResourceMemory, 20, 20)
				if diff := cmp.Diff(want, admit(t, k, ref("a"), sharing.ResourceMemory, 4)); diff != "" {
					t.Errorf("admitted again (-before +after):\n%s", diff)
				}
			}
			if quickest > time.Second {
				t.Errorf("registered after %v at best", quickest)
			}
			freshNames(t, k)
		})
	}
}

// The file of the plugin's socket vanishes while kubelet runs on. A successor is registered before the old stream ends,
// so that kubelet never has the resource without a plugin.
func TestSocketRemoved(t *testing.T) {
	dir := folder(t)
	k := kubelet(t, dir)
	p := plugin(dir, k)
	set(t, p, Inventory{Units: gpus(0, 1), Memory: true})
	run(t, p)
	counts(t, k, sharing.ResourceMemory, 20, 20)
	before := k.Registrations()[0].Endpoint
	if err := os.Remove(filepath.Join(dir, before)); err != nil {
		t.Fatal(err)
	}
	eventually.True(t, "a second registration", func() bool {
		if _, a := k.Count(sharing.ResourceMemory); a != 20 {
			t.Fatalf("%d allocatable in between", a)
		}
		return len(k.Registrations()) == 2
	})
	eventually.True(t, "the first one's end", func() bool {
		if _, a := k.Count(sharing.ResourceMemory); a != 20 {
			t.Fatalf("%d allocatable in between", a)
		}
		return k.Plugins(sharing.ResourceMemory) == 1
	})
	freshNames(t, k)
	admit(t, k, ref("a"), sharing.ResourceMemory, 1)
	// Another program's file with our name is not our socket either.
	now := k.Registrations()[1].Endpoint
	if err := os.Rename(filepath.Join(dir, now), filepath.Join(dir, "elsewhere")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, now), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	eventually.True(t, "a third registration", func() bool { return len(k.Registrations()) == 3 })
}

// The stream breaks while both live on.
func TestStreamBroken(t *testing.T) {
	dir := folder(t)
	k := kubelet(t, dir)
	p := plugin(dir, k)
	set(t, p, Inventory{Units: gpus(0, 1), Memory: true})
	run(t, p)
	for n := 1; n <= 3; n++ {
		// The one before may be there still when its successor registers: what is dropped is a stream that has brought
		// its list.
		eventually.True(t, "registration", func() bool {
			return len(k.Registrations()) == n &&
				k.Updates(sharing.ResourceMemory) >= n
		})
		eventually.True(t, "the end of the one before", func() bool { return k.Plugins(sharing.ResourceMemory) == 1 })
		counts(t, k, sharing.ResourceMemory, 20, 20)
		k.Drop(sharing.ResourceMemory)
	}
	eventually.True(t, "registration", func() bool { return len(k.Registrations()) == 4 })
	counts(t, k, sharing.ResourceMemory, 20, 20)
	freshNames(t, k)
}

// Two agents at once, as in a rolling update: when the older one ends, nothing has become fewer.
func TestTwoPlugins(t *testing.T) {
	dir := folder(t)
	k := kubelet(t, dir)
	one, two := plugin(dir, k), plugin(dir, k)
	set(t, one, all(gpus(0, 1)))
	set(t, two, all(gpus(0, 1)))
	stop := run(t, one)
	counts(t, k, sharing.ResourceMemory, 20, 20)
	run(t, two)
	eventually.True(t, "both", func() bool { return k.Plugins(sharing.ResourceMemory) == 2 })
	eventually.True(t, "the second's list", func() bool { return k.Updates(sharing.ResourceMemory) == 2 })
	admit(t, k, ref("a"), sharing.ResourceMemory, 2)
	stop()
	eventually.True(t, "the first one's end", func() bool { return k.Plugins(sharing.ResourceMemory) == 1 })
	if c, a := k.Count(sharing.ResourceMemory); c != 20 || a != 20 {
		t.Errorf("%d and %d after the hand-over", c, a)
	}
	admit(t, k, ref("b"), sharing.ResourceMemory, 2)
	freshNames(t, k)
}

// Kubelet refuses, and the folder is not even there at first: both are tried again forever, and reported.
func TestKubeletLateAndUnwilling(t *testing.T) {
	dir := folder(t)
	k := fakekubelet.New(dir)
	p := plugin(dir, k)
	set(t, p, Inventory{Units: gpus(0), Memory: true})
	run(t, p)
	eventually.True(t, "the missing folder in the status", func() bool { return p.Status()[0].Err != nil })
	k.Refuse(errors.New("device plugin already connected: x"))
	if err := k.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(k.Stop)
	eventually.True(t, "the refusal in the status", func() bool {
		err := p.Status()[0].Err
		return err != nil && strings.Contains(err.Error(), "already connected")
	})
	k.Refuse(nil)
	counts(t, k, sharing.ResourceMemory, 10, 10)
	eventually.True(t, "a status without an error", func() bool {
		s := p.Status()[0]
		return s.Registered &&
			s.Err == nil
	})
}

func TestStaleSockets(t *testing.T) {
	dir := folder(t)
	if err := os.MkdirAll(dir, 0o750); err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	socket := func(name string, age time.Duration, live bool) {
		ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(dir, name), Net: "unix"})
		if err != nil {
			t.Fatal(err)
		}
		ln.SetUnlinkOnClose(false)
		if live {
			t.Cleanup(func() { _ = ln.Close() })
		} else {
			_ = ln.Close()
		}
		if err := os.Chtimes(filepath.Join(dir, name), now.Add(-age), now.Add(-age)); err != nil {
			t.Fatal(err)
		}
	}
	socket("kerf-gpu-memory-gib-old.sock", time.Minute, false)
	socket("kerf-gpu-older.sock", time.Hour, false)
	socket("kerf-gpu-percent-live.sock", time.Minute, true)
	socket("kerf-gpu-percent-young.sock", time.Second, false)
	socket("kerf-other-old.sock", time.Minute, false)
	socket("nvidia-gpu.sock", time.Minute, false)
	file := filepath.Join(dir, "kerf-gpu-file.sock")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(file, now.Add(-time.Hour), now.Add(-time.Hour)); err != nil {
		t.Fatal(err)
	}
	if err := sweep(t.Context(), dir, now); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var left []string
	for _, e := range entries {
		left = append(left, e.Name())
	}
	want := []string{"kerf-gpu-file.sock", "kerf-gpu-percent-live.sock", "kerf-gpu-percent-young.sock",
		"kerf-other-old.sock", "nvidia-gpu.sock"}
	if diff := cmp.Diff(want, left); diff != "" {
		t.Errorf("left in the folder (-want +got):\n%s", diff)
	}
	if err := sweep(t.Context(), filepath.Join(dir, "none"), now); err != nil {
		t.Errorf("a folder that is not there: %v", err)
	}
}

// An agent that is killed right after its start leaves sockets that the next one finds too young to tell. They go a
// little later.
func TestYoungSocketsGoLater(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	k := kubelet(t, dir)
	old := filepath.Join(dir, "kerf-gpu-justnow.sock")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: old, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	p := plugin(dir, k)
	set(t, p, all(gpus(0)))
	run(t, p)
	counts(t, k, sharing.ResourceGPU, 1, 1)
	eventually.True(t, "the end of the old socket", func() bool {
		_, err := os.Lstat(old)
		return errors.Is(err, fs.ErrNotExist)
	})
}

// A file system may give the inode of a removed socket to the next one.
func TestIdentity(t *testing.T) {
	path := filepath.Join(t.TempDir(), kubeletSocket)
	none := identify(path)
	if none.there() || !none.same(identify(path)) {
		t.Error("a socket that is not there is not distinct from one")
	}
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	first := identify(path)
	if !first.there() || !first.same(identify(path)) || first.same(none) || none.same(first) {
		t.Error("a socket is not itself")
	}
	if err := os.Chmod(path, 0o666); err != nil {
		t.Fatal(err)
	}
	if !first.same(identify(path)) {
		t.Error("another mode makes another socket")
	}
	later := time.Now().Add(time.Millisecond)
	if err := os.Chtimes(path, later, later); err != nil {
		t.Fatal(err)
	}
	if first.same(identify(path)) {
		t.Error("the same inode at another time is taken for the same socket")
	}
}

func TestBadOptions(t *testing.T) {
	for name, o := range map[string]Options{
		"relative folder": {Dir: "device-plugins"},
		"a path":          {Dir: "/x", Suffix: "../x"},
		"too long":        {Dir: "/x", Suffix: strings.Repeat("a", 17)},
	} {
		if err := New(o).Run(t.Context()); !errors.Is(err, sharing.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if a, b := New(Options{}), New(Options{}); a.opts.Suffix == b.opts.Suffix {
		t.Errorf("two plugins with one suffix %q", a.opts.Suffix)
	}
}
