// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"path/filepath"

	"github.com/kerf-gpu/kerf/internal/cgroup"
	"github.com/kerf-gpu/kerf/sharing"
)

// groups is Cgroups over a hierarchy.
type groups struct {
	hierarchy cgroup.Hierarchy
	name      func() string
}

// InHierarchy returns a hierarchy as the driver backend uses it. Each call of scratch returns a new name for a probe's
// group. The caller finds the hierarchy once. The kernel's table of mounts is long on a node with many containers, and
// each reader waits for every mount in progress.
func InHierarchy(h cgroup.Hierarchy, scratch func() string) Cgroups { return groups{h, scratch} }

func (g groups) Check(dir string) error {
	if filepath.Clean(dir) == g.hierarchy.Mount {
		return sharing.Invalid("cgroup", dir, "name a group beneath it",
			"is the root cgroup: its limits would be those of all processes")
	}
	_, err := g.hierarchy.Open(dir, 0)
	return err
}

func (g groups) Scratch() (string, func() error, error) {
	made, err := g.hierarchy.Create(g.name())
	if err != nil {
		return "", nil, err
	}
	return made.Dir, made.Remove, nil
}
