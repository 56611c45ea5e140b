// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"
	"tags.cncf.io/container-device-interface/pkg/cdi"
)

const (
	variable = "NVIDIA_VISIBLE_DEVICES"
	kind     = "nvidia.com/gpu="
)

// editBundle adds the GPUs that the bundle's process names to the bundle's config.json.
func editBundle(cache *cdi.Cache, bundle string) error {
	path := filepath.Join(bundle, "config.json")
	text, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("read the bundle: %w", err)
	}
	var spec specs.Spec
	if err := json.Unmarshal(text, &spec); err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}
	devices := wanted(&spec)
	if len(devices) == 0 {
		return nil
	}
	if _, err := cache.InjectDevices(&spec, devices...); err != nil {
		return fmt.Errorf("give the container %s: %w", strings.Join(devices, ", "), err)
	}
	if text, err = json.Marshal(&spec); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	if err := os.WriteFile(path, text, 0o600); err != nil {
		return fmt.Errorf("write the bundle: %w", err)
	}
	return nil
}

// wanted returns the CDI names of the GPUs that the process's environment asks for. The last setting counts.
func wanted(spec *specs.Spec) []string {
	if spec.Process == nil {
		return nil
	}
	value := ""
	for _, e := range spec.Process.Env {
		if v, ok := strings.CutPrefix(e, variable+"="); ok {
			value = v
		}
	}
	switch value {
	case "", "none", "void":
		return nil
	}
	var names []string
	for name := range strings.SplitSeq(value, ",") {
		if name != "" {
			names = append(names, kind+name)
		}
	}
	return names
}
