// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/kerf-gpu/kerf/sim/model"
)

// The kernel driver's numbers for MIG's capability files: two for the machine, then for each GPU a block for each place
// that an instance's id can have. Which block an id has changes with each instance. An instance that is created again
// at the same place has another number, and its old number goes to another instance. Drivers change them less often:
// with the id of an instance, with a boot or with the driver. A program that keeps a number fails sooner here.
const (
	capConfig  = 1
	capMonitor = 2
	capFirst   = 3
	capGIs     = model.CapBlocks // ids of GPU instances on a GPU, from 0
	capCIs     = 8               // ids of compute instances in one
	capGPUs    = 32              // that the driver has numbers for
	capPerGI   = capCIs + 1
)

// capMinor is the number of a GPU instance's capability, or with ci from 0 on, of a compute instance's in it.
func capMinor(gpu, block, ci int) int { return capFirst + (gpu*capGIs+block)*capPerGI + ci + 1 }

// reaches reports whether the caller can open the capability nodes of an instance and of a compute instance in it,
// where programs look for them: on the node, or as a container has them. The files themselves count, not their names.
func (c *device) reaches(in model.Instance, ci uint64) bool {
	for _, n := range []int{-1, small(ci)} {
		name := fmt.Sprintf("dev/nvidia-caps/nvidia-cap%d", capMinor(c.minor, in.Block, n))
		own, err := os.Stat(filepath.Join(c.d.opts.Dir, name))
		if err != nil {
			return false
		}
		root := fmt.Sprintf("/proc/%d/root", c.peer.pid)
		seen := func(path string) bool {
			there, err := os.Stat(filepath.Join(root, path))
			return err == nil && os.SameFile(own, there)
		}
		if !seen(filepath.Join(c.d.opts.Dir, name)) && !seen(name) {
			return false
		}
	}
	return true
}

// capFiles are the files under the node's directory that show capabilities, with their content.
func (d *Daemon) capFiles() map[string]string {
	files := map[string]string{}
	add := func(name string, minor int, mode fs.FileMode) {
		text := fmt.Sprintf("DeviceFileMinor: %d\nDeviceFileMode: %d\nDeviceFileModify: 1\n", minor, mode)
		files[filepath.Join("proc/driver/nvidia/capabilities", name)] = text
		files[fmt.Sprintf("dev/nvidia-caps/nvidia-cap%d", minor)] = ""
	}
	for i, hw := range d.opts.Machine.GPUs {
		if hw.Model.MaxMIG == 0 || i >= capGPUs {
			continue
		}
		add("mig/config", capConfig, 0o400)
		add("mig/monitor", capMonitor, 0o444)
		instances, _ := d.model.Instances(i) // none on a lost GPU
		for _, in := range instances {
			dir := fmt.Sprintf("gpu%d/mig/gi%d", i, in.GI)
			add(dir+"/access", capMinor(i, in.Block, -1), 0o444)
			for _, ci := range in.Computes {
				add(fmt.Sprintf("%s/ci%d/access", dir, ci.ID), capMinor(i, in.Block, small(ci.ID)), 0o444)
			}
		}
	}
	if len(files) > 0 {
		files["proc/driver/nvidia-caps/mig-minors"] = d.capTable()
	}
	return files
}

// capTable is the list of all numbers, those of ids that no instance has among them.
func (d *Daemon) capTable() string {
	var b strings.Builder
	fmt.Fprintf(&b, "config %d\nmonitor %d\n", capConfig, capMonitor)
	for gpu := range capGPUs {
		for gi, block := range d.capBlocks(gpu) {
			fmt.Fprintf(&b, "gpu%d/gi%d/access %d\n", gpu, gi, capMinor(gpu, block, -1))
			for ci := range capCIs {
				fmt.Fprintf(&b, "gpu%d/gi%d/ci%d/access %d\n", gpu, gi, ci, capMinor(gpu, block, ci))
			}
		}
	}
	return b.String()
}

// capBlocks is which block each id of a GPU's instances has: those that are there have theirs, and the other ids what
// is left.
func (d *Daemon) capBlocks(gpu int) []int {
	of := make([]int, capGIs)
	for gi := range of {
		of[gi] = -1
	}
	left := make([]int, 0, capGIs)
	instances, _ := d.model.Instances(gpu) // none on a lost GPU, or one that is not there
	for _, in := range instances {
		of[in.GI] = in.Block
	}
	for block := range capGIs {
		if !slices.Contains(of, block) {
			left = append(left, block)
		}
	}
	for gi := range of {
		if of[gi] < 0 {
			of[gi], left = left[0], left[1:]
		}
	}
	return of
}

// showCaps brings the capability files in line with the instances. What it cannot write is logged: a driver's /proc
// does not fail. d.mu is held.
func (d *Daemon) showCaps() {
	files := d.capFiles()
	var errs []error
	for name := range d.shown {
		if _, stays := files[name]; !stays {
			errs = append(errs, d.hideCap(name))
		}
	}
	for name, text := range files {
		if old, there := d.shown[name]; there && old == text {
			continue
		}
		path := filepath.Join(d.opts.Dir, name)
		// #nosec G301 G306 -- all may read them
		errs = append(errs, os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o444))
	}
	d.shown = files
	if err := errors.Join(errs...); err != nil {
		d.log.Warn("capability files are not as they should be", "error", err)
	}
}

// hideCap removes a file, and the folders of instances that are empty then.
func (d *Daemon) hideCap(name string) error {
	path := filepath.Join(d.opts.Dir, name)
	err := os.Remove(path)
	for dir := filepath.Dir(path); ofInstance(filepath.Base(dir)); dir = filepath.Dir(dir) {
		if os.Remove(dir) != nil {
			break // not empty
		}
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("hide a capability: %w", err)
	}
	return nil
}

func ofInstance(folder string) bool {
	return strings.HasPrefix(folder, "gi") || strings.HasPrefix(folder, "ci")
}

// cleanCaps removes the capability files of a daemon that has ended: plain files, and the folders that are empty then.
func cleanCaps(dir string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return fmt.Errorf("clean %q: %w", dir, err)
	}
	var files, folders []string
	for _, top := range []string{"proc/driver", "dev/nvidia-caps"} {
		err = errors.Join(err, fs.WalkDir(root.FS(), top, func(path string, e fs.DirEntry, err error) error {
			switch {
			case errors.Is(err, fs.ErrNotExist):
				return nil
			case err == nil && e.IsDir():
				folders = append(folders, path)
			case err == nil && e.Type().IsRegular():
				files = append(files, path)
			}
			return err
		}))
	}
	for _, path := range files {
		err = errors.Join(err, root.Remove(path))
	}
	for _, path := range slices.Backward(folders) {
		_ = root.Remove(path) // what is not empty stays
	}
	if err = errors.Join(err, root.Close()); err != nil {
		return fmt.Errorf("clean %q: %w", dir, err)
	}
	return nil
}
