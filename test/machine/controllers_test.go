// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package machine_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/kerf-gpu/kerf/internal/cgroup"
)

const subtreeControl = "cgroup.subtree_control"

// keepControllers calls run, and then disables the controllers that it has enabled in the root of cgroup v2. runc
// enables all of them on the way to its containers, and crun takes no machine with cgroup v1 where cgroup v2 has some.
func keepControllers(run func() int) (status int, err error) {
	h, err := cgroup.Default()
	if err != nil {
		return run(), fmt.Errorf("keep the controllers of cgroup v2: %w", err)
	}
	before := enabledIn(h.Mount)
	status = run()
	for _, c := range enabledIn(h.Mount) {
		if !slices.Contains(before, c) {
			err = errors.Join(err, disableBelow(h.Mount, c))
		}
	}
	return status, err
}

func enabledIn(group string) []string {
	text, _ := os.ReadFile(filepath.Join(group, subtreeControl)) // a group that is gone has none
	return strings.Fields(string(text))
}

// disableBelow disables a controller from the bottom up: no group above was able to hand it down before.
func disableBelow(root, controller string) error {
	var with []string
	err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err == nil && e.IsDir() && slices.Contains(enabledIn(path), controller) {
			with = append(with, path)
		}
		return nil // groups come and go during the walk
	})
	for _, group := range slices.Backward(with) {
		errOf := os.WriteFile(filepath.Join(group, subtreeControl), []byte("-"+controller), 0)
		if !errors.Is(errOf, fs.ErrNotExist) {
			err = errors.Join(err, errOf)
		}
	}
	if err != nil {
		return fmt.Errorf("disable controller %q: %w", controller, err)
	}
	return nil
}
