// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package cdi

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
	cdilib "tags.cncf.io/container-device-interface/pkg/cdi"
	"tags.cncf.io/container-device-interface/pkg/parser"
	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/kerf-gpu/kerf/sharing"
)

// File is one CDI spec as it stands on disk.
type File struct {
	// Name is the file's name without its folder.
	Name string
	// Data is the content.
	Data []byte
}

// fileName is where the devices of a kind of ours stand: "kerf.dev-ask.json" for kerf.dev/ask.
func fileName(kind string) string { return strings.ReplaceAll(kind, "/", "-") + ".json" }

// ourFiles are the names of all files that Install writes.
func ourFiles() []string {
	return []string{fileName(sharing.CDIHook), fileName(sharing.CDIRequest), fileName(sharing.CDINUMA),
		fileName(sharing.EarlierCDINUMA), fileName(sharing.CDIGPU), fileName(sharing.CDIMIG),
		fileName(sharing.CDIClaim)}
}

// newFile gives a spec the least version that it needs, checks it with the library of the container runtimes, and
// encodes it. The same spec always gives the same bytes. Each device is on a line, so that people can read the file and
// a difference between two.
func newFile(s *specs.Spec) (File, error) {
	version, err := specs.MinimumRequiredVersion(s)
	if err != nil {
		return File{}, fmt.Errorf("cdi spec of %s: %w (%w)", s.Kind, err, sharing.ErrInvalid)
	}
	s.Version = version
	if err := validate(s); err != nil {
		return File{}, fmt.Errorf("cdi spec of %s: %w (%w)", s.Kind, err, sharing.ErrInvalid)
	}
	var b bytes.Buffer
	line := func(prefix string, v any, end string) {
		data, jsonErr := json.Marshal(v)
		if jsonErr != nil && err == nil {
			err = fmt.Errorf("cdi spec of %s: %w (%w)", s.Kind, jsonErr, sharing.ErrInvalid)
		}
		b.WriteString(prefix)
		b.Write(data)
		b.WriteString(end)
	}
	line("{\n\"cdiVersion\": ", s.Version, ",\n")
	line("\"kind\": ", s.Kind, ",\n\"devices\": [\n")
	for i, d := range s.Devices {
		end := ",\n"
		if i == len(s.Devices)-1 {
			end = "\n"
		}
		line("  ", d, end)
	}
	line("],\n\"containerEdits\": ", s.ContainerEdits, "\n}\n")
	return File{Name: fileName(s.Kind), Data: b.Bytes()}, err
}

// validate looks at a spec as a container runtime does when it loads it.
func validate(s *specs.Spec) error {
	if err := specs.ValidateVersion(s); err != nil {
		return err
	}
	vendor, class := parser.ParseQualifier(s.Kind)
	if err := parser.ValidateVendorName(vendor); err != nil {
		return err
	}
	if err := parser.ValidateClassName(class); err != nil {
		return err
	}
	if err := (&cdilib.ContainerEdits{ContainerEdits: &s.ContainerEdits}).Validate(); err != nil {
		return err
	}
	if len(s.Devices) == 0 {
		return fmt.Errorf("it has no device")
	}
	seen := make(map[string]bool, len(s.Devices))
	for i := range s.Devices {
		d := &s.Devices[i]
		if err := parser.ValidateDeviceName(d.Name); err != nil {
			return err
		}
		if seen[d.Name] {
			return fmt.Errorf("it has two devices %q", d.Name)
		}
		seen[d.Name] = true
		if err := (&cdilib.ContainerEdits{ContainerEdits: &d.ContainerEdits}).Validate(); err != nil {
			return fmt.Errorf("device %q: %w", d.Name, err)
		}
	}
	return nil
}

// EditsFor reads the spec of kerf.dev/gpu that Install wrote into dir, and returns its edits for all of the GPUs
// together. It serves a spec for which no container runtime resolves CDI names. Device nodes come with type, numbers
// and mode, from the machine if the spec leaves them out. Errors wrap sharing.ErrNotFound (no spec, no such GPU, no
// device file) or sharing.ErrInvalid (no readable spec).
func EditsFor(dir string, gpus []sharing.GPUID) (specs.ContainerEdits, error) {
	names := make([]string, len(gpus))
	for i, id := range gpus {
		names[i] = string(id)
	}
	return editsOf(dir, sharing.CDIGPU, names)
}

// EditsForInstance is EditsFor for a MIG instance, by its device's UUID, of the spec of kerf.dev/mig.
func EditsForInstance(dir, uuid string) (specs.ContainerEdits, error) {
	return editsOf(dir, sharing.CDIMIG, []string{uuid})
}

// EditsIn returns a function that is EditsFor for the GPUs of a grant, or EditsForInstance if it is a MIG instance.
func EditsIn(dir string) func(sharing.Injection) (specs.ContainerEdits, error) {
	return func(in sharing.Injection) (specs.ContainerEdits, error) {
		if in.Device.UUID != "" {
			return EditsForInstance(dir, in.Device.UUID)
		}
		names := make([]string, len(in.Placement))
		for i, s := range in.Placement {
			names[i] = s.GPU.String()
		}
		return editsOf(dir, sharing.CDIGPU, names)
	}
}

func editsOf(dir, kind string, names []string) (specs.ContainerEdits, error) {
	path := filepath.Join(dir, fileName(kind))
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return specs.ContainerEdits{}, fmt.Errorf(
			"cdi spec %q is not there; the agent makes it from the specs of nvidia.com/gpu: %w", path,
			sharing.ErrNotFound)
	}
	if err != nil {
		return specs.ContainerEdits{}, fmt.Errorf("read cdi spec: %w (%w)", err, sharing.ErrUnavailable)
	}
	edits, err := editsFor(data, kind, names)
	if err != nil {
		return specs.ContainerEdits{}, fmt.Errorf("cdi spec %q: %w", path, err)
	}
	for _, d := range edits.DeviceNodes {
		if err := complete(d); err != nil {
			return specs.ContainerEdits{}, fmt.Errorf("cdi spec %q: %w", path, err)
		}
	}
	return edits, nil
}

// editsFor is EditsFor without the machine.
func editsFor(data []byte, kind string, names []string) (specs.ContainerEdits, error) {
	s, err := parse(data)
	if err != nil {
		return specs.ContainerEdits{}, err
	}
	if s.Kind != kind {
		return specs.ContainerEdits{}, fmt.Errorf("kind %q, not %s: %w", s.Kind, kind, sharing.ErrInvalid)
	}
	all := &cdilib.ContainerEdits{ContainerEdits: &specs.ContainerEdits{}}
	all.Append(&cdilib.ContainerEdits{ContainerEdits: &s.ContainerEdits})
	for _, id := range names {
		found := false
		for _, d := range s.Devices {
			if d.Name == id {
				all.Append(&cdilib.ContainerEdits{ContainerEdits: &d.ContainerEdits})
				found = true
			}
		}
		if !found {
			return specs.ContainerEdits{}, fmt.Errorf("no device %q: %w", id, sharing.ErrNotFound)
		}
	}
	if kind == sharing.CDIMIG {
		return *all.ContainerEdits, nil // tight already, with the capability nodes that tighten takes out
	}
	return tighten(*all.ContainerEdits), nil
}

// complete fills in what a device node leaves to the machine. What the spec says is never changed.
func complete(d *specs.DeviceNode) error {
	whole := d.Type != "" && (d.Major != 0 || d.Type == "p")
	if whole && d.FileMode != nil {
		return nil
	}
	path := d.HostPath
	if path == "" {
		path = d.Path
	}
	info, err := os.Lstat(path)
	if err != nil && whole {
		return nil // the OCI runtime has its own mode
	}
	if err != nil {
		return fmt.Errorf("device %q: %w (%w)", path, err, sharing.ErrNotFound)
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	kind := map[fs.FileMode]string{fs.ModeDevice | fs.ModeCharDevice: "c", fs.ModeDevice: "b",
		fs.ModeNamedPipe: "p"}[info.Mode().Type()]
	if !ok || kind == "" || d.Type != "" && d.Type != kind && (d.Type != "u" || kind != "c") {
		return fmt.Errorf("device %q (%s) is no such device node: %w", path, info.Mode(), sharing.ErrInvalid)
	}
	if d.Type == "" {
		d.Type = kind
	}
	if d.Major == 0 && kind != "p" {
		d.Major, d.Minor = int64(unix.Major(stat.Rdev)), int64(unix.Minor(stat.Rdev))
	}
	if d.FileMode == nil {
		mode := info.Mode().Perm()
		d.FileMode = &mode
	}
	return nil
}
