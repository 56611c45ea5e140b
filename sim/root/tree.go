// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package root

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/kerf-gpu/kerf/sim/control"
	"github.com/kerf-gpu/kerf/sim/launch"
	"github.com/kerf-gpu/kerf/sim/mps"
	"github.com/kerf-gpu/kerf/sim/smi"
)

const (
	// Libraries is the folder of libraries below a root, as Debian names it.
	Libraries = "usr/lib/" + multiarch
	// Sockets is the folder below a root in which the simulated libraries find the node's GPUs. The files in dev are
	// device files, as NVIDIA's tools expect them, and no kernel module answers there.
	Sockets = "run/gpusim/dev"

	programs = "usr/bin"
	caps     = "nvidia-caps"

	gpuMajor, ctlMinor, modesetMinor = 195, 255, 254
	uvmMajor, capsMajor              = 510, 237

	folderMode, fileMode, deviceMode = 0o755, 0o644, 0o666
)

// tree writes below a folder; the first error stays, and stops the rest.
type tree struct {
	dir  string
	node control.Status
	err  error
}

// Make writes the files of a node below dir, over those of an earlier call. It needs root, for device files. program is
// gpusim itself.
func Make(dir string, node control.Status, program string) error {
	t := tree{dir: dir, node: node}
	t.libraries()
	t.programs(program)
	t.devices()
	t.sockets()
	t.proc()
	t.pci()
	if t.err != nil {
		return fmt.Errorf("make root %q: %w", dir, t.err)
	}
	return nil
}

// do is one step.
func (t *tree) do(step func() error) {
	if t.err == nil {
		t.err = step()
	}
}

// at is a path below the root, whose folder exists.
func (t *tree) at(elem ...string) string {
	path := filepath.Join(append([]string{t.dir}, elem...)...)
	t.do(func() error { return os.MkdirAll(filepath.Dir(path), folderMode) })
	return path
}

func (t *tree) file(text string, elem ...string) {
	path := t.at(elem...)
	t.do(func() error { return os.WriteFile(path, []byte(text), fileMode) }) // #nosec G306 -- as a driver's
}

func (t *tree) link(to string, elem ...string) {
	path := t.at(elem...)
	t.do(func() error {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return os.Symlink(to, path)
	})
}

func (t *tree) device(major, minor uint32, elem ...string) {
	path := t.at(elem...)
	t.do(func() error {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if err := unix.Mknod(path, unix.S_IFCHR|deviceMode, int(unix.Mkdev(major, minor))); err != nil { // #nosec G115
			return fmt.Errorf("make device %q: %w", path, err)
		}
		return os.Chmod(path, deviceMode) // whatever the umask is
	})
}

// libraries copies the node's libraries under the names of a driver's package.
func (t *tree) libraries() {
	for _, name := range []string{"libcuda", "libnvidia-ml"} {
		real := name + ".so." + t.node.DriverVersion
		path := t.at(Libraries, real)
		t.do(func() error { return launch.Copy(filepath.Join(t.node.Dir, "lib", name+".so.1"), path, folderMode) })
		t.link(real, Libraries, name+".so.1")
		t.link(name+".so.1", Libraries, name+".so")
	}
}

func (t *tree) programs(program string) {
	path := t.at(programs, smi.Name)
	t.do(func() error { return launch.Copy(filepath.Join(t.node.Dir, "bin", smi.Name), path, folderMode) })
	for _, name := range []string{mps.ControlName, mps.ServerName} {
		t.link(program, programs, name)
	}
}

func (t *tree) devices() {
	t.device(gpuMajor, ctlMinor, "dev", "nvidiactl")
	t.device(gpuMajor, modesetMinor, "dev", "nvidia-modeset")
	t.device(uvmMajor, 0, "dev", "nvidia-uvm")
	t.device(uvmMajor, 1, "dev", "nvidia-uvm-tools")
	for _, g := range t.node.GPUs {
		t.device(gpuMajor, uint32(g.Minor), "dev", "nvidia"+strconv.Itoa(g.Minor)) // #nosec G115 -- below 64
	}
	// Capabilities of instances that are gone keep no device file.
	t.do(func() error { return os.RemoveAll(filepath.Join(t.dir, "dev", caps)) })
	names, _ := os.ReadDir(filepath.Join(t.node.Dir, "dev", caps)) // there is none without MIG
	for _, e := range names {
		if n, err := strconv.ParseUint(strings.TrimPrefix(e.Name(), "nvidia-cap"), 10, 20); err == nil {
			t.device(capsMajor, uint32(n), "dev", caps, e.Name())
		}
	}
}

// sockets gives the tree the node's sockets. A hard link works in a chroot, too; on another file system, only a
// symbolic link is possible.
func (t *tree) sockets() {
	from, to := filepath.Join(t.node.Dir, "dev"), t.at(Sockets)
	t.do(func() error { return os.RemoveAll(to) })
	t.do(func() error { return os.Mkdir(to, folderMode) })
	names := []string{"nvidiactl"}
	for _, g := range t.node.GPUs {
		names = append(names, "nvidia"+strconv.Itoa(g.Minor))
	}
	for _, name := range names {
		t.do(func() error {
			err := os.Link(filepath.Join(from, name), filepath.Join(to, name))
			if errors.Is(err, unix.EXDEV) {
				err = os.Symlink(filepath.Join(from, name), filepath.Join(to, name))
			}
			return err
		})
	}
}
