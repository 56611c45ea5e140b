// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package cdi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

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
	return []string{fileName(sharing.CDIGuard), fileName(sharing.CDIAsk), fileName(sharing.CDINear), fileName(sharing.CDIGPU), fileName(sharing.CDIMIG)}
}

// newFile gives a spec the least version that it needs, checks it as the library does that container
// runtimes load it with, and writes it down. The same spec always gives the same bytes: one device on each
// line, so that people can read the file and a difference between two.
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
