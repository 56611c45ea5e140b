// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package machine_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/kerf-gpu/kerf/internal/nodeclient"
)

// hostile is a root filesystem whose folders an image may replace by links to the machine's, at any moment.
type hostile struct {
	*machine
	root string
	// machines stands for folders of the machine that no container may change.
	machines string
	// hold is how long a program runs.
	hold string
}

// newHostile is a machine that serves containers, at the level of its pool, and a root filesystem with gpuload and the
// C library.
func newHostile(t *testing.T, driver, backends string) hostile {
	t.Helper()
	m := newMachine(t, setup{hardware: "t4x4", driver: driver, noAgent: true})
	m.agentFlags = []string{
		"--containers", "--cdi-source-dirs", m.work + "/cdi-source", "--cdi-dir", m.work + "/cdi", "--hook-dir",
		m.work + "/opt",
		"--config", m.write(head + "spec:\n  pools:\n  - {name: default, backends: [" + backends + "]}\n"),
	}
	h := hostile{m, m.work + "/rootfs", m.work + "/machine", "1s"}
	folders := []string{m.work + "/cdi", m.work + "/cdi-source", h.machines, h.root + "/tmp", h.root + "/bin",
		h.root + "/lib64", h.root + "/lib/x86_64-linux-gnu"}
	for _, dir := range []string{"etc", "usr/local", "run", "dev", "proc"} {
		folders = append(folders, filepath.Join(h.root, dir))
	}
	for _, dir := range folders {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for from, to := range map[string]string{
		program("gpuload"): "/bin/gpuload", "/lib64/ld-linux-x86-64.so.2": "/lib64/ld-linux-x86-64.so.2",
		"/lib/x86_64-linux-gnu/libc.so.6": "/lib/x86_64-linux-gnu/libc.so.6",
	} {
		data, err := os.ReadFile(from)
		if err = errors.Join(err, os.WriteFile(h.root+to, data, 0o755)); err != nil {
			t.Fatal(err)
		}
	}
	spec := m.gpusim("cdi").out
	if err := os.WriteFile(m.work+"/cdi-source/nvidia.json", []byte(spec), 0o644); err != nil {
		t.Fatal(err)
	}
	m.startAgent()
	m.ready()
	eventually(t, "Kerf's CDI spec of the GPUs",
		func() error { _, err := os.Stat(m.work + "/cdi/kerf.dev-gpu.json"); return err })
	return h
}

// swaps exchanges folders of the root filesystem with links to the machine's until the returned function is called.
func (h hostile) swaps(dirs ...string) (stop func() int) {
	h.t.Helper()
	for i, dir := range dirs {
		if err := os.Symlink(h.machines, h.root+"/tmp/link"+fmt.Sprint(i)); err != nil {
			h.t.Fatal(err, dir)
		}
	}
	end, done := make(chan struct{}), make(chan int)
	go func() {
		n := 0
		for ; ; n++ {
			select {
			case <-end:
				done <- n
				return
			default:
			}
			i := n % len(dirs)
			if err := unix.Renameat2(unix.AT_FDCWD, filepath.Join(h.root, dirs[i]), unix.AT_FDCWD, h.root+"/tmp/link"+
				fmt.Sprint(i), unix.RENAME_EXCHANGE); err != nil {
				h.t.Error(err)
			}
		}
	}()
	return func() int { close(end); return <-done }
}

// bundle makes a bundle with a grant of 2 GiB. The container has these namespaces besides those of PIDs and mounts.
func (h hostile) bundle(name string, more ...specs.LinuxNamespaceType) string {
	h.t.Helper()
	dir := h.work + "/" + name
	var namespaces []specs.LinuxNamespace
	for _, kind := range append([]specs.LinuxNamespaceType{specs.PIDNamespace, specs.MountNamespace}, more...) {
		namespaces = append(namespaces, specs.LinuxNamespace{Type: kind})
	}
	text, err := json.Marshal(specs.Spec{
		Version: "1.0.2", Root: &specs.Root{Path: h.root},
		Process: &specs.Process{Args: []string{"/bin/gpuload", "--json", "--alloc", "4GiB", "--step", "64MiB", "--hold",
			h.hold}, Cwd: "/", Env: []string{"PATH=/bin"}},
		Mounts: []specs.Mount{{Destination: "/proc", Type: "proc", Source: "proc"},
			{Destination: "/dev", Type: "tmpfs", Source: "tmpfs"}},
		Linux: &specs.Linux{CgroupsPath: "/kerf-test-" + filepath.Base(h.base) + "/" + name, Namespaces: namespaces},
	})
	if err = errors.Join(err, os.Mkdir(dir, 0o755), os.WriteFile(dir+"/config.json", text, 0o644)); err != nil {
		h.t.Fatal(err)
	}
	if r := h.kerf("oci", "patch", dir, "--memory", "2GiB", "--name", name, "-q"); r.code != 0 {
		h.t.Fatalf("kerf oci patch: %v", r)
	}
	return dir
}

// starts has runc start a bundle, and returns the first line that its program prints; empty if the container did not
// start.
func (h hostile) starts(name, bundle string) (line string, wait func() string) {
	h.t.Helper()
	script := "mount --bind " + unified(h.t) + " /sys/fs/cgroup && exec " + toolkit(h.t, "runc") + " --root " + h.work +
		"/runc run --bundle " + bundle + " " + name
	cmd := exec.CommandContext(h.t.Context(), "unshare", "--mount", "sh", "-ec", script)
	var said strings.Builder
	cmd.Stderr = &said
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		h.t.Fatal(err)
	}
	in := bufio.NewReader(out)
	if line, err = in.ReadString('\n'); err != nil && !errors.Is(err, io.EOF) {
		h.t.Fatal(err)
	}
	return line, func() string {
		_, _ = io.Copy(io.Discard, in)
		_ = cmd.Wait() // what it says tells
		return said.String()
	}
}

// TestRootFilesystemThatChanges starts containers whose image replaces folders by links to the machine's while runc and
// the hook work. Either the container does not start, or it has its cap. Nothing outside of its root filesystem
// changes.
func TestRootFilesystemThatChanges(t *testing.T) {
	t.Parallel()
	for level, tt := range map[string]struct{ driver, backends string }{"driver": {"r615", "driver"},
		"userspace": {"r580", "driver, libkerf, reactive"}} {
		t.Run(level, func(t *testing.T) {
			t.Parallel()
			h := newHostile(t, tt.driver, tt.backends)
			before := entriesOf(t, h.machines)
			started := 0
			for i := range 12 {
				name := fmt.Sprintf("%s-container-%d", filepath.Base(h.base), i)
				bundle := h.bundle(name)
				stop := func() int { return 1 }
				if i > 0 {
					stop = h.swaps("etc", "usr/local", "run")
				}
				line, wait := h.starts(name, bundle)
				if swaps := stop(); swaps == 0 {
					t.Error("nothing was swapped")
				}
				h.wantHeld(level, name, line)
				if line != "" {
					started++
				} else {
					h.release(name)
				}
				if said := wait(); i == 0 && (line == "" || said != "") {
					t.Fatalf("a plain root filesystem: %q: %s", line, said)
				}
				h.restore("etc", "usr/local", "run")
				if after := entriesOf(t, h.machines); !slices.Equal(before, after) {
					t.Fatalf("the machine's folder has %q, and had %q", after, before)
				}
			}
			t.Logf("%d of 12 containers started", started)
			h.noGrants()
			checkInvariants(t, h.machine)
		})
	}
}

// TestCgroupNamespaces runs containers in the host's cgroup namespace and in one of their own. runc sees cgroup v2
// alone.
func TestCgroupNamespaces(t *testing.T) {
	t.Parallel()
	h := newHostile(t, "r615", "driver")
	h.hold = "5s" // until the grant was looked at
	for name, namespaces := range map[string][]specs.LinuxNamespaceType{"host": nil, "own": {specs.CgroupNamespace}} {
		id := filepath.Base(h.base) + "-cgroup-" + name
		line, wait := h.starts(id, h.bundle(id, namespaces...))
		if line == "" {
			t.Fatalf("%s: %s", name, wait())
		}
		h.wantHeld("driver", id, line)
		if g, want := h.grant(id), "/kerf-test-"+filepath.Base(h.base)+"/"+id; !strings.HasSuffix(g.Cgroup, want) ||
			g.Level != "driver" {
			t.Errorf("%s: %+v, want cgroup %s", name, g, want)
		}
		if said := wait(); said != "" {
			t.Errorf("%s: %s", name, said)
		}
	}
	h.noGrants()
	checkInvariants(t, h.machine)
}

// wantHeld requires that a container that has started has its cap. At level userspace a program whose loader does not
// find the library is not held by it: the reactive backend ends it, or the level says so.
func (h hostile) wantHeld(level, name, line string) {
	h.t.Helper()
	if line == "" {
		return
	}
	got := decode[loaded](h.t, line)
	if got.err() == oom && got.Allocated <= 2*gib {
		return
	}
	if level == "driver" {
		h.t.Errorf("%s: gpuload: %v", name, got)
		return
	}
	eventually(h.t, "the end or a lower level of "+name, func() error {
		for _, g := range h.state().Grants {
			if g.Name == name && g.Level == "userspace" {
				return fmt.Errorf("%v, and %+v", got, g)
			}
		}
		return nil
	})
	h.t.Logf("%s found no library", name)
}

// release returns the grant of a container that did not start. If the hook had run, the grant ends by itself.
func (h hostile) release(name string) {
	h.t.Helper()
	g, there := h.state().grant(name)
	if !there || g.State != "Reserved" {
		return
	}
	client, err := nodeclient.New(h.dir)
	if err != nil {
		h.t.Fatal(err)
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(h.t.Context(), *patience)
	defer cancel()
	if err := client.Release(ctx, g.ID); err != nil {
		h.t.Error(err)
	}
}

// restore removes the links, and puts the folders back.
func (h hostile) restore(dirs ...string) {
	h.t.Helper()
	for i, dir := range dirs {
		link := h.root + "/tmp/link" + fmt.Sprint(i)
		if info, err := os.Lstat(link); err == nil && info.IsDir() {
			if err := unix.Renameat2(unix.AT_FDCWD, filepath.Join(h.root, dir), unix.AT_FDCWD, link,
				unix.RENAME_EXCHANGE); err != nil {
				h.t.Fatal(err)
			}
		}
		if err := os.Remove(link); err != nil && !errors.Is(err, os.ErrNotExist) {
			h.t.Fatal(err)
		}
	}
}
