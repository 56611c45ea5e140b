// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/kerf-gpu/kerf/internal/process"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sim/daemon"
)

// Dir makes an absolute path of what --dir was given and refuses one that cannot work: too long for sockets,
// or with characters that LD_LIBRARY_PATH cannot hold. The directory need not exist.
func Dir(given string) (string, error) {
	if given == "" {
		return "", sharing.Invalid("--dir", "", "name the directory of the simulated node", "is missing")
	}
	dir, err := filepath.Abs(given)
	if err != nil {
		return "", fmt.Errorf("--dir %q: %w", given, err)
	}
	if bad := strings.IndexFunc(dir, func(r rune) bool {
		return r < ' ' || r == 0x7f ||
			strings.ContainsRune(":;$", r)
	}); bad >= 0 {
		return "", sharing.Invalid("--dir", dir, "take a path without : ; $ and control characters",
			"cannot stand in LD_LIBRARY_PATH")
	}
	return dir, daemon.CheckDir(dir)
}

// ExistingDir is Dir for a directory that must be there: sharing.ErrNotFound otherwise.
func ExistingDir(given string) (string, error) {
	dir, err := Dir(given)
	if err != nil {
		return "", err
	}
	info, err := os.Stat(dir)
	if err != nil || !info.IsDir() {
		return "", fmt.Errorf("--dir %q is no directory; make a simulated node there with `gpusim start`: %w", dir,
			sharing.ErrNotFound)
	}
	return dir, nil
}

// Make makes the directory of a node, which every tenant may look into.
func Make(dir string) error {
	if _, err := os.Stat(dir); err == nil {
		return nil // its mode is its owner's choice
	}
	if err := os.MkdirAll(dir, publicDir); err != nil {
		return fmt.Errorf("--dir: %w", err)
	}
	if err := os.Chmod(dir, publicDir); err != nil {
		return fmt.Errorf("--dir: %w", err)
	}
	return nil
}

// LogPath is where the daemon of a node writes.
func LogPath(dir string) string { return filepath.Join(dir, "gpusim.log") }

// Env returns the shell commands after which programs see the simulated node. The directory must hold one.
func Env(dir string) (string, error) {
	lib := filepath.Join(dir, "lib")
	for _, name := range required() {
		if _, err := os.Stat(filepath.Join(lib, name)); err != nil {
			return "", fmt.Errorf("there is no simulated node in %q; make one with `gpusim start`: %w", dir,
				sharing.ErrNotFound)
		}
	}
	// The simulated driver lists the processes of the pid namespace that it is in, so that one stands for the
	// machine's.
	space, err := process.PIDSpace(os.Getpid())
	if err != nil {
		return "", err
	}
	// The expansion is quoted, because some shells split the words of an export.
	return fmt.Sprintf("export LD_LIBRARY_PATH=%s\"${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}\"\nexport "+
		"NVIDIA_DEV_ROOT=%s\nexport PATH=%s\"${PATH:+:$PATH}\"\nexport KERF_TEST_PID_NAMESPACE=%d\n",
		Quote(lib), Quote(dir), Quote(filepath.Join(dir, "bin")), space), nil
}

// Quote makes one word of a shell command out of any text.
func Quote(s string) string {
	plain := func(r rune) bool {
		return strings.ContainsRune("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789/._-+,@%=", r)
	}
	if s != "" && strings.IndexFunc(s, func(r rune) bool { return !plain(r) }) < 0 {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
