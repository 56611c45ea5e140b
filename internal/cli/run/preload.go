// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package run

import (
	"bytes"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	nodeapi "github.com/kerf-gpu/kerf/api/node/v1alpha1"
	"github.com/kerf-gpu/kerf/internal/mountns"
	"github.com/kerf-gpu/kerf/sharing"
)

// withEnv is base with the variables of more, which win, at the end in their order by name.
func withEnv(base []string, more map[string]string) []string {
	out := make([]string, 0, len(base)+len(more))
	for _, e := range base {
		name, _, _ := strings.Cut(e, "=")
		if _, ours := more[name]; !ours {
			out = append(out, e)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(more)) {
		out = append(out, name+"="+more[name])
	}
	return out
}

const (
	preloadFile = "/etc/ld.so.preload"
	preloadEnv  = "LD_PRELOAD"
	// libkerf is the name of the backend whose grants need the library.
	libkerf = "libkerf"
)

// preloadFileFree reports whether the loader's file can be mounted over without a loss: it is empty, or does not exist
// in a folder that does.
func preloadFileFree(path string) bool {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		folder, err := os.Stat(filepath.Dir(path))
		return err == nil && folder.IsDir()
	}
	return err == nil && len(bytes.TrimSpace(text)) == 0
}

// showLibrary mounts what makes the library hold the command; the other GPUs are hidden already if masked.
func showLibrary(activated *nodeapi.ActivateResponse, masked bool) error {
	if len(activated.GetMounts()) == 0 {
		return nil
	}
	if !masked {
		if err := mountns.Mask(nil); err != nil {
			return err
		}
	}
	var mounts []sharing.Mount
	for _, m := range activated.GetMounts() {
		if m.GetTarget() == preloadFile {
			if err := mountns.Place(preloadFile); err != nil {
				return err
			}
		}
		mounts = append(mounts, sharing.Mount{Source: m.GetSource(), Target: m.GetTarget(), ReadOnly: m.GetReadOnly()})
	}
	return mountns.Bind(mounts)
}

// preloading is the command's environment with the library in front of what it preloads.
func preloading(env []string, activated *nodeapi.ActivateResponse, byEnv bool, had string) []string {
	if activated.GetPreload() == "" || !byEnv {
		return env
	}
	value := activated.GetPreload()
	if had != "" {
		value += ":" + had
	}
	return withEnv(env, map[string]string{preloadEnv: value})
}
