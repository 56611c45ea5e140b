// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package machine_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// simVersion is the version of the simulated driver r615, as it is part of the names of a driver's libraries.
const simVersion = "615.71.09"

// toolkit is a program of others that make toolkit builds: of NVIDIA's container toolkit, mig-parted, or runc.
func toolkit(t *testing.T, name string) string {
	t.Helper()
	root, err := repository()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(root, ".cache", "bin", name)
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("%s is missing: run 'make toolkit', which builds it from its Go module (%v)", path, err)
	}
	return path
}

// toolkitSpec has the toolkit make the CDI spec of this machine's GPUs into a folder, which it returns. The toolkit
// wants what a driver installs and the simulator does not: libraries that are named by version, and character devices.
func (m *machine) toolkitSpec() string {
	m.t.Helper()
	root, dir := m.work+"/root", m.work+"/cdi-source"
	lib := root + "/usr/lib/x86_64-linux-gnu/"
	err := errors.Join(os.MkdirAll(lib, 0o755), os.MkdirAll(root+"/dev", 0o755), os.MkdirAll(root+"/etc", 0o755),
		os.MkdirAll(dir, 0o755))
	for _, name := range []string{"libcuda.so", "libnvidia-ml.so"} {
		// The same file, so that the loader takes it for the library that is preloaded below.
		err = errors.Join(err, os.Link(m.sim+"/lib/"+name+".1", lib+name+"."+simVersion),
			os.Symlink(name+"."+simVersion, lib+name+".1"))
	}
	for i, minor := range []int{0, 1, 2, 3, 255} {
		name := "nvidia" + strconv.Itoa(i)
		if minor == 255 {
			name = "nvidiactl"
		}
		err = errors.Join(err, unix.Mknod(root+"/dev/"+name, unix.S_IFCHR|0o666, int(unix.Mkdev(195, uint32(minor)))))
	}
	if err != nil {
		m.t.Fatal(err)
	}
	// Preloaded from the simulated node's folder, the library finds that node; the toolkit loads it by its path below
	// root.
	env := append(slices.Clone(m.env), "LD_PRELOAD="+m.sim+"/lib/libnvidia-ml.so.1")
	r := call(m.t, env, toolkit(m.t, "nvidia-ctk"), "--quiet", "cdi", "generate", "--driver-root", root,
		"--nvidia-cdi-hook-path", toolkit(m.t, "nvidia-cdi-hook"), "--output", dir+"/nvidia.yaml")
	if r.code != 0 {
		m.t.Fatalf("nvidia-ctk cdi generate: %v", r)
	}
	return dir
}

// helperOCIHook, before a cgroup v2 mount, a program and its arguments, makes the helper become that program. It does
// so in a new mount namespace in which that mount is /sys/fs/cgroup: NVIDIA's hook wants it there.
const helperOCIHook = "oci-hook"

// ociHook returns only with an error.
func ociHook(cgroup2, path string, argv []string) error {
	// The namespace is the thread's. On another thread, the mounts would be those of the machine.
	runtime.LockOSThread()
	if err := errors.Join(unix.Unshare(unix.CLONE_NEWNS), unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE,
		"")); err != nil {
		return fmt.Errorf("mount namespace: %w", err)
	}
	if err := unix.Mount(cgroup2, "/sys/fs/cgroup", "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("cgroup v2 at /sys/fs/cgroup: %w", err)
	}
	var env []string
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, helperEnv+"=") {
			env = append(env, v)
		}
	}
	return unix.Exec(path, argv, env)
}
