// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Enable makes a controller available in the groups beneath rel, by enabling it in rel and in every group
// above, where it is not yet. It enables along this one path and disables nothing. Enabling a controller puts
// no limit on anybody. Errors: sharing.ErrNotFound (no such group, or the kernel does not offer the
// controller), sharing.ErrDenied, sharing.ErrUnavailable (a group on the way has processes of its own).
func (h Hierarchy) Enable(rel, controller string) error {
	if err := checkRel(rel); err != nil {
		return err
	}
	parts := strings.Split(rel, "/")
	for i := range len(parts) + 1 {
		if err := h.enableIn(path.Join(parts[:i]...), controller); err != nil {
			return fmt.Errorf("enable controller %q for cgroup %q: %w", controller, rel, err)
		}
	}
	return nil
}

func (h Hierarchy) enableIn(rel, controller string) error {
	fd, err := openDir(h.Mount, rel)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	has, err := readAt(fd, "cgroup.subtree_control")
	if err != nil {
		return fmt.Errorf("%w (%w)", err, classify(err))
	}
	if slices.Contains(strings.Fields(string(has)), controller) {
		return nil
	}
	if err := writeAt(fd, "cgroup.subtree_control", "+"+controller); err != nil {
		return fmt.Errorf("group %q: %w", "/"+rel, err)
	}
	return nil
}
