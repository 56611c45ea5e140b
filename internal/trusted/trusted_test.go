// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package trusted

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kerf-gpu/kerf/sharing"
)

func TestDir(t *testing.T) {
	const stranger = 54321
	for name, c := range map[string]struct {
		change func(above, dir string) error
		root   bool // only root can change it so
		says   string
	}{
		"own": {func(string, string) error { return nil }, false, ""},
		"of another user": {func(_, dir string) error { return os.Chown(dir, stranger, -1) }, true,
			"owned by another user"},
		"in one of another user": {func(above, _ string) error { return os.Chown(above, stranger, -1) }, true,
			"owned by another user"},
		"writable by the group": {func(_, dir string) error { return os.Chmod(dir, 0o775) }, false, "mode 0775"},
		"writable by others":    {func(_, dir string) error { return os.Chmod(dir, 0o757) }, false, "mode 0757"},
		"sticky": {func(_, dir string) error { return os.Chmod(dir, 0o777|os.ModeSticky) }, false,
			"mode 0777"},
		"in one that others write": {func(above, _ string) error { return os.Chmod(above, 0o777) }, false,
			"mode 0777"},
		"in one like /tmp": {func(above, _ string) error { return os.Chmod(above, 0o777|os.ModeSticky) },
			false, ""},
		"by a link to another's": {func(above, dir string) error { return link(above, dir, stranger) }, true,
			"owned by another user"},
		"a file": {func(_, dir string) error {
			return errors.Join(os.Remove(dir),
				os.WriteFile(dir, nil, 0o600))
		}, false, "is no directory"},
		"of another group, for root": {func(_, dir string) error { return os.Chown(dir, -1, stranger) }, true, ""},
	} {
		t.Run(name, func(t *testing.T) {
			if c.root && os.Geteuid() != 0 {
				t.Skip("another owner needs root:", sharing.ErrDenied)
			}
			above := filepath.Join(t.TempDir(), "above")
			dir := filepath.Join(above, "dir")
			if err := os.MkdirAll(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			if err := c.change(above, dir); err != nil {
				t.Fatal(err)
			}
			err := Dir(dir)
			if c.says == "" && err != nil || c.says != "" &&
				(!errors.Is(err, sharing.ErrDenied) || !strings.Contains(err.Error(), c.says)) {
				t.Errorf("%v, want %q", err, c.says)
			}
		})
	}
	if err := Dir(filepath.Join(t.TempDir(), "none")); !errors.Is(err, sharing.ErrUnavailable) {
		t.Errorf("no directory: %v", err)
	}
}

// link makes dir a link to a directory of another user.
func link(above, dir string, uid int) error {
	to := filepath.Join(above, "to")
	return errors.Join(os.Remove(dir), os.Mkdir(to, 0o755), os.Chown(to, uid, -1), os.Symlink(to, dir))
}
