// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/kerf-gpu/kerf/sharing"
)

// Probe makes the group rel, which must not exist, uses it as an activation does, and removes it. Without an error the
// caller can make grants' groups. A mount that only looks right (most containers have a read-only one) fails here.
// Remedy says what to do about an error.
func (h Hierarchy) Probe(rel string) error {
	g, err := h.Create(rel)
	if err != nil {
		return err
	}
	return errors.Join(g.SetMark("probe", ""), g.Freeze(), g.Thaw(), g.Remove())
}

// Remedy is what to do about an error of Probe; empty if that is not known.
func (h Hierarchy) Remedy(err error) string {
	switch {
	case errors.Is(err, unix.EROFS):
		return fmt.Sprintf("make it writable: mount -o remount,bind,rw %s (needs CAP_SYS_ADMIN); for a container, mount the host's /sys/fs/cgroup read-write", h.Mount)
	case errors.Is(err, sharing.ErrDenied):
		return "run as root with CAP_SYS_ADMIN"
	case errors.Is(err, sharing.ErrExhausted):
		return fmt.Sprintf("raise cgroup.max.descendants and cgroup.max.depth in %s and below", h.Mount)
	}
	return ""
}
