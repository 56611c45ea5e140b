// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// markPrefix names the extended attributes in which a group keeps marks. Only a process with CAP_SYS_ADMIN can read or
// change attributes of this class.
const markPrefix = "trusted.kerf."

// maxMark bounds a mark: an inode number and a path.
const maxMark = 32 + unix.PathMax

// SetMark keeps a short text with the group. It lasts as long as the group, and outlives the caller.
func (g Group) SetMark(name, text string) error {
	return g.mark("set", name, func(fd int) error {
		return unix.Fsetxattr(fd, markPrefix+name, []byte(text), 0)
	})
}

// Mark reads a mark; false if the group has none of that name.
func (g Group) Mark(name string) (text string, has bool, err error) {
	buf := make([]byte, maxMark)
	n := 0
	err = g.mark("read", name, func(fd int) error {
		n, err = unix.Fgetxattr(fd, markPrefix+name, buf)
		return err
	})
	if errors.Is(err, unix.ENODATA) {
		return "", false, nil
	}
	return string(buf[:max(n, 0)]), err == nil, err
}

// ClearMark removes a mark. It is no error if there is none.
func (g Group) ClearMark(name string) error {
	err := g.mark("remove", name, func(fd int) error { return unix.Fremovexattr(fd, markPrefix+name) })
	if errors.Is(err, unix.ENODATA) {
		return nil
	}
	return err
}

func (g Group) mark(verb, name string, do func(fd int) error) error {
	fd, err := g.open()
	if err != nil {
		return fmt.Errorf("%s mark %q of cgroup %q: %w", verb, name, g.Dir, err)
	}
	defer unix.Close(fd)
	if err := do(fd); err != nil {
		return fmt.Errorf("%s mark %q of cgroup %q: %w (%w)", verb, name, g.Dir, err, classify(err))
	}
	return nil
}
