// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package cdi

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	cdilib "tags.cncf.io/container-device-interface/pkg/cdi"
	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/kerf-gpu/kerf/sharing"
)

// Derived is the spec of kerf.dev/gpu, and what it could not be made for.
type Derived struct {
	// File is the spec; its Name is empty when no GPU has a device.
	File File
	// GPUs are those that have a device, sorted.
	GPUs []sharing.GPUID
	// Left says for each other GPU why it has none, as a sentence with a remedy.
	Left map[sharing.GPUID]string
}

// Derive makes the spec of kerf.dev/gpu: one device for each of the GPUs, named by UUID, with the edits that
// nvidia.com/gpu has for it. It is pure: the same input gives the same bytes.
//
// A source device may be named by UUID or by index. It counts only if it has the device file of that GPU's minor number
// and of no other GPU. An old spec may have another numbering and would give a container its neighbor's GPU. Every
// device node becomes "rw", or less if the source gives less. Hooks keep their place and get an environment and a
// timeout if they have none. Nodes with rights over MIG are left out. The spec sets NVIDIA_VISIBLE_DEVICES to "void",
// so that no older container runtime adds GPUs. GPUs in MIG mode have no device.
//
// The error wraps sharing.ErrInvalid: edits that come with every device bring the file of one GPU, or the
// GPUs' devices come from several files.
func Derive(from []SourceSpec, gpus []sharing.GPU) (Derived, error) {
	out := Derived{Left: make(map[sharing.GPUID]string)}
	spec := &specs.Spec{Kind: sharing.CDIGPU}
	source := ""
	for _, g := range gpus {
		if g.MIG {
			out.Left[g.UUID] = "it is in MIG mode, and its instances alone have devices"
			continue
		}
		s, d, why := find(from, g)
		if why != "" {
			out.Left[g.UUID] = why
			continue
		}
		if source != "" && source != s.Path {
			return Derived{}, fmt.Errorf(
				"cdi specs %q and %q both have GPUs of this node: remove the one that is out of date: %w", source,
				s.Path, sharing.ErrInvalid)
		}
		if source == "" {
			source = s.Path
			if given := minors(s.Common); len(given) > 0 {
				return Derived{}, fmt.Errorf("cdi spec %q gives /dev/nvidia%d with every device: %s: %w", s.Path,
					given[0], generate, sharing.ErrInvalid)
			}
			spec.ContainerEdits = tighten(s.Common)
			spec.ContainerEdits.Env = withVoid(spec.ContainerEdits.Env)
		}
		edits := tighten(d.ContainerEdits)
		edits.Env = withoutVisible(edits.Env)
		spec.Devices = append(spec.Devices, specs.Device{Name: string(g.UUID), ContainerEdits: edits})
		out.GPUs = append(out.GPUs, g.UUID)
	}
	if len(spec.Devices) == 0 {
		return out, nil
	}
	slices.Sort(out.GPUs)
	slices.SortFunc(spec.Devices, func(a, b specs.Device) int { return strings.Compare(a.Name, b.Name) })
	var err error
	out.File, err = newFile(spec)
	return out, err
}

// find is the source device of one GPU. A name that is a UUID goes before one that is a number.
func find(from []SourceSpec, g sharing.GPU) (SourceSpec, specs.Device, string) {
	index := strconv.Itoa(g.Index)
	why := fmt.Sprintf("the specs of nvidia.com/gpu have no device %q or %q: %s", g.UUID, index, generate)
	for _, named := range []func(string) bool{
		func(name string) bool { id, err := sharing.ParseGPUID("", name); return err == nil && id == g.UUID },
		func(name string) bool { return name == index || name == "gpu"+index },
	} {
		for _, s := range from {
			for _, d := range s.Devices {
				if !named(d.Name) {
					continue
				}
				if got := minors(d.ContainerEdits); len(got) == 1 && got[0] == g.Minor {
					return s, d, ""
				}
				why = fmt.Sprintf(
					"device %q in %q does not bring /dev/nvidia%d and no other GPU, so the spec is not of now: %s",
					d.Name, s.Path, g.Minor, generate)
			}
		}
	}
	return SourceSpec{}, specs.Device{}, why
}

// minors are the N of all /dev/nvidiaN that edits bring into a container, as device nodes or as mounts, sorted. A file
// with another name in the container counts as two N.
func minors(e specs.ContainerEdits) []int {
	var out []int
	note := func(p string) {
		n, ok := strings.CutPrefix(path.Clean(p), "/dev/nvidia")
		minor, err := strconv.ParseUint(n, 10, 16)
		if ok && err == nil && !slices.Contains(out, int(minor)) {
			out = append(out, int(minor))
		}
	}
	for _, d := range e.DeviceNodes {
		note(d.Path)
		note(d.HostPath)
	}
	for _, m := range e.Mounts {
		note(m.ContainerPath)
		note(m.HostPath)
	}
	slices.Sort(out)
	return out
}

const (
	sourceVendor = "nvidia.com"
	sourceClass  = "gpu"
	// generate is what to do when the node's specs do not say what they should.
	generate = "run 'nvidia-ctk cdi generate --output=/var/run/cdi/nvidia.yaml' on the node (NVIDIA Container " +
		"Toolkit 1.15 or newer)"
)

// SourceSpec is one file that declares devices of nvidia.com/gpu.
type SourceSpec struct {
	// Path is the file.
	Path string
	// Devices are those that a container runtime takes from this file: a file of a later folder goes before.
	Devices []specs.Device
	// Common are the edits that come with each of them.
	Common specs.ContainerEdits
}

// Source reads the specs of nvidia.com/gpu as a container runtime does that reads the folders in dirs, in
// their order. Where there is none the error wraps sharing.ErrNotFound, tells of files that cannot be read,
// and says how to make one. A file that container runtimes crash over is sharing.ErrInvalid.
func Source(dirs []string) ([]SourceSpec, error) {
	if err := findHoles(dirs); err != nil {
		return nil, err
	}
	cache, err := cdilib.NewCache(cdilib.WithSpecDirs(dirs...), cdilib.WithAutoRefresh(false))
	if err != nil {
		return nil, fmt.Errorf("read cdi specs: %w (%w)", err, sharing.ErrUnavailable)
	}
	var out []SourceSpec
	for _, s := range cache.GetVendorSpecs(sourceVendor) {
		if s.GetClass() != sourceClass {
			continue
		}
		from := SourceSpec{Path: s.GetPath(), Common: s.ContainerEdits}
		for _, d := range s.Devices {
			// A device that another file gives, or two give at the same rank, is not this file's.
			if taken := cache.GetDevice(s.Kind + "=" + d.Name); taken != nil &&
				taken.GetSpec().GetPath() == s.GetPath() {
				from.Devices = append(from.Devices, d)
			}
		}
		if len(from.Devices) > 0 {
			out = append(out, from)
		}
	}
	if len(out) > 0 {
		slices.SortFunc(out, func(a, b SourceSpec) int { return strings.Compare(a.Path, b.Path) })
		return out, nil
	}
	return nil, fmt.Errorf("no cdi spec of %s/%s in %s%s: %s: %w",
		sourceVendor, sourceClass, strings.Join(dirs, ", "), unreadable(cache), generate, sharing.ErrNotFound)
}

// unreadable says why files were passed over that may be the ones that are missed.
func unreadable(cache *cdilib.Cache) string {
	found := cache.GetErrors()
	paths := make([]string, 0, len(found))
	for path := range found {
		paths = append(paths, path)
	}
	slices.Sort(paths)
	var b strings.Builder
	for _, path := range paths {
		fmt.Fprintf(&b, "; %q: %v", path, errors.Join(found[path]...))
	}
	return strings.ReplaceAll(b.String(), "\n", "; ")
}

// errHole: a list of the spec has an empty entry ("- " and nothing behind it). The library, and with it a
// container runtime, takes such a spec and crashes over it.
var errHole = errors.New("an entry of a list is empty")

// parse reads a spec as the library does, and refuses what the library crashes over.
func parse(data []byte) (*specs.Spec, error) {
	s, err := cdilib.ParseSpec(data)
	if err != nil {
		return nil, fmt.Errorf("%w (%w)", err, sharing.ErrInvalid)
	}
	if s == nil {
		return nil, fmt.Errorf("it is empty: %w", sharing.ErrInvalid)
	}
	hole := hasHole(s.ContainerEdits)
	for _, d := range s.Devices {
		hole = hole || hasHole(d.ContainerEdits)
	}
	if hole {
		return nil, fmt.Errorf("%w: %w", errHole, sharing.ErrInvalid)
	}
	return s, nil
}

func hasHole(e specs.ContainerEdits) bool {
	return slices.Contains(e.DeviceNodes, nil) || slices.Contains(e.NetDevices, nil) ||
		slices.Contains(e.Hooks, nil) || slices.Contains(e.Mounts, nil)
}

// findHoles names the files in dirs that must not be shown to the library.
func findHoles(dirs []string) error {
	var errs []error
	for _, dir := range dirs {
		entries, err := os.ReadDir(dir)
		if err != nil {
			continue // the library passes it over, or tells
		}
		for _, e := range entries {
			if ext := filepath.Ext(e.Name()); e.IsDir() || ext != ".json" && ext != ".yaml" {
				continue
			}
			path := filepath.Join(dir, e.Name())
			data, err := os.ReadFile(path)
			if err != nil {
				continue
			}
			if json.Valid(data) && !bytes.Contains(data, []byte("null")) {
				continue // in JSON nothing else is an empty entry, and parse takes much memory
			}
			if _, err := parse(data); errors.Is(err, errHole) {
				errs = append(errs, fmt.Errorf(
					"cdi spec %q: %w; fix or remove it: container runtimes crash on it", path, err))
			}
		}
	}
	return errors.Join(errs...)
}
