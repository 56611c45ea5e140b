// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package containerd

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/pelletier/go-toml/v2"

	"github.com/kerf-gpu/kerf/sharing"
)

// ToolkitPath is the configuration of NVIDIA's container toolkit.
const ToolkitPath = "/etc/nvidia-container-runtime/config.toml"

// Toolkit is what NVIDIA's container runtime does with a container's environment.
type Toolkit struct {
	// Path is the file that says so.
	Path string
	// Env tells whether NVIDIA_VISIBLE_DEVICES gives an unprivileged container GPUs. Without a word in the
	// file it does.
	Env Answer
	// Mounts tells whether a mount of /dev/null below /var/run/nvidia-container-devices does. Without a word it does not.
	Mounts Answer
	// Problem says why neither is known.
	Problem string
}

// ReadToolkit reads the configuration at path. A file that is not there means the toolkit's defaults; one
// that cannot be read makes Env unknown.
func ReadToolkit(path string) Toolkit {
	t := Toolkit{Path: path}
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		t.Env, t.Mounts = Yes, No
		return t
	}
	var text []byte
	if err == nil {
		defer f.Close()
		text, err = io.ReadAll(io.LimitReader(f, maxConfig))
	}
	if err == nil {
		t.Env, t.Mounts, err = parseToolkit(text)
	}
	if err != nil {
		t.Problem = err.Error()
	}
	return t
}

// parseToolkit tells whether environment and mounts are listened to. The error wraps ErrInvalid.
func parseToolkit(text []byte) (env, mounts Answer, err error) {
	var c struct {
		Env    *bool `toml:"accept-nvidia-visible-devices-envvar-when-unprivileged"`
		Mounts *bool `toml:"accept-nvidia-visible-devices-as-volume-mounts"`
	}
	if err := toml.Unmarshal(text, &c); err != nil {
		return Unknown, Unknown, fmt.Errorf("configuration of NVIDIA's container runtime: %v: %w", err, sharing.ErrInvalid) //nolint:errorlint // the sentinel is wrapped
	}
	env, mounts = Yes, No
	if c.Env != nil && !*c.Env {
		env = No
	}
	if c.Mounts != nil && *c.Mounts {
		mounts = Yes
	}
	return env, mounts, nil
}
