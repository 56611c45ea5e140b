// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package cdi

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"tags.cncf.io/container-device-interface/pkg/parser"
	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/kerf-gpu/kerf/sharing"
)

// claimClass is the class of the devices that a DRA driver makes for one ResourceClaim. NVIDIA's driver writes such a
// spec ("k8s.gpu.nvidia.com/claim") when it prepares a claim, and removes it when it unprepares the claim.
const claimClass = "claim"

// Claimed is what the spec of another DRA driver gives to the containers of a prepared ResourceClaim.
type Claimed struct {
	// Kind is that of the spec, such as "k8s.gpu.nvidia.com/claim".
	Kind string
	// Paths are device files of the host, and Env are variables, "NAME=VALUE".
	Paths, Env []string
}

// Gives reports whether it gives a GPU, or a MIG instance of it: its device file, or a variable with its UUID.
func (c Claimed) Gives(g sharing.GPU) bool {
	for _, path := range c.Paths {
		if path == fmt.Sprintf("/dev/nvidia%d", g.Minor) {
			return true
		}
	}
	for _, env := range c.Env {
		if strings.Contains(env, string(g.UUID)) {
			return true
		}
	}
	return false
}

// ClaimedByOthers reads the specs of prepared ResourceClaims in dirs that other DRA drivers wrote. Files that are no
// specs are left out. The error wraps sharing.ErrUnavailable if a folder or file cannot be read.
func ClaimedByOthers(dirs []string) ([]Claimed, error) {
	var out []Claimed
	for _, dir := range dirs {
		entries, err := os.ReadDir(dir)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("list cdi specs: %w (%w)", err, sharing.ErrUnavailable)
		}
		for _, e := range entries {
			if ext := filepath.Ext(e.Name()); e.IsDir() || ext != ".json" && ext != ".yaml" {
				continue
			}
			data, err := os.ReadFile(filepath.Join(dir, e.Name()))
			if errors.Is(err, fs.ErrNotExist) {
				continue // unprepared meanwhile
			}
			if err != nil {
				return nil, fmt.Errorf("read cdi spec: %w (%w)", err, sharing.ErrUnavailable)
			}
			// Kerf's own specs have thousands of devices. An idle agent used a quarter of its CPU time to parse them.
			if !bytes.Contains(data, []byte(claimClass)) {
				continue
			}
			if s, err := parse(data); err == nil {
				out = append(out, claimed(s)...)
			}
		}
	}
	return out, nil
}

// claimed are the devices of a spec, if it is one of a ResourceClaim of another driver.
func claimed(s *specs.Spec) []Claimed {
	vendor, class := parser.ParseQualifier(s.Kind)
	if class != claimClass || vendor == sharing.CDIVendor {
		return nil
	}
	c := Claimed{Kind: s.Kind}
	add := func(e specs.ContainerEdits) {
		c.Env = append(c.Env, e.Env...)
		for _, n := range e.DeviceNodes {
			if c.Paths = append(c.Paths, n.Path); n.HostPath != "" {
				c.Paths = append(c.Paths, n.HostPath)
			}
		}
	}
	add(s.ContainerEdits)
	for _, d := range s.Devices {
		add(d.ContainerEdits)
	}
	return []Claimed{c}
}
