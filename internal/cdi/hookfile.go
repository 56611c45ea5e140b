// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package cdi

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/kerf-gpu/kerf/internal/atomicfile"
	"github.com/kerf-gpu/kerf/internal/trusted"
	"github.com/kerf-gpu/kerf/sharing"
)

const (
	hookMode fs.FileMode = 0o755
	// libraryName is the library that is preloaded into containers.
	libraryName = "libkerf.so"
	// maxHook is more than the program will ever have.
	maxHook = 64 << 20
	// maxVersion is the longest name of a version.
	maxVersion = 64
	// keptVersions are the versions whose program stays: this one, and the one that specs on disk and
	// containers that are being made may still name.
	keptVersions = 2
)

// InstallHook puts the program at binary into dir as <version>/kerf-hook, where specs name it, and returns
// its path. The program is replaced as a whole, also while it runs; where it is there already, nothing is
// written. Of other versions the one that was installed last stays, older ones are removed. Errors wrap
// sharing.ErrDenied when others than root can write to the folder, sharing.ErrStale when what was written
// reads back differently, and as atomicfile.Write does.
func InstallHook(dir, version, binary string) (string, error) {
	return install(dir, version, hookName, binary)
}

// InstallLibrary puts the preloaded library next to the hook, as <version>/libkerf.so, like InstallHook.
func InstallLibrary(dir, version, binary string) (string, error) {
	return install(dir, version, libraryName, binary)
}

func install(dir, version, name, binary string) (string, error) {
	if !isVersion(version) {
		return "", sharing.Invalid("version", version, "build with a version of letters, digits and . _ + -",
			"cannot name a folder")
	}
	sum, err := HookSum(binary)
	if err != nil {
		return "", err
	}
	own := filepath.Join(dir, version)
	if err := makeDir(own); err != nil {
		return "", fmt.Errorf("install %s: %w", name, err)
	}
	if err := atomicfile.CleanTemp(own); err != nil {
		return "", fmt.Errorf("install %s: %w", name, err)
	}
	path := filepath.Join(own, name)
	if VerifyHook(path, sum) != nil {
		data, err := os.ReadFile(binary)
		if err != nil {
			return "", fmt.Errorf("read %s: %w (%w)", name, err, sharing.ErrUnavailable)
		}
		if err := atomicfile.Write(path, data, hookMode); err != nil {
			return "", fmt.Errorf("install %s: %w", name, err)
		}
		if err := VerifyHook(path, sum); err != nil {
			return "", fmt.Errorf("install %s: %w", name, err)
		}
	}
	// The folder's time says which version was the last one, also when nothing was written.
	now := time.Now()
	if err := os.Chtimes(own, now, now); err != nil {
		return "", fmt.Errorf("install %s: %w (%w)", name, err, sharing.ErrUnavailable)
	}
	if err := removeOld(dir, version); err != nil {
		return "", fmt.Errorf("remove old versions of kerf-hook: %w", err)
	}
	return path, nil
}

// HookSum is the hash of the program at path, for VerifyHook. It reads the program in parts: all of it at once would
// raise the peak of the agent's memory.
func HookSum(path string) (sum [sha256.Size]byte, err error) {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return sum, fmt.Errorf("read kerf-hook: %w (%w)", err, sharing.ErrNotFound)
	case err != nil:
		return sum, fmt.Errorf("read kerf-hook: %w (%w)", err, sharing.ErrUnavailable)
	case !info.Mode().IsRegular() || info.Size() == 0 || info.Size() > maxHook:
		return sum, fmt.Errorf("read kerf-hook: %q (%s, %d bytes) is no program: %w", path, info.Mode(), info.Size(),
			sharing.ErrInvalid)
	}
	f, err := os.Open(path)
	if err != nil {
		return sum, fmt.Errorf("read kerf-hook: %w (%w)", err, sharing.ErrUnavailable)
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return sum, fmt.Errorf("read kerf-hook: %w (%w)", err, sharing.ErrUnavailable)
	}
	h.Sum(sum[:0])
	return sum, nil
}

// HookVersion is one string that differs after every change of the program at path: a file's change time cannot be
// set back. It is empty where there is none, or it cannot be looked at.
func HookVersion(path string) string {
	info, err := os.Lstat(path)
	if err != nil {
		return ""
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return ""
	}
	return fmt.Sprintf("%d %s %d %d %d %d.%d", stat.Ino, info.Mode(), stat.Uid, stat.Gid, stat.Size, stat.Ctim.Sec,
		stat.Ctim.Nsec)
}

// VerifyHook looks whether the program at path is the one with that hash and can be run by root alone's
// doing. The error wraps sharing.ErrNotFound or sharing.ErrStale.
func VerifyHook(path string, sum [sha256.Size]byte) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%q is gone: %w", path, sharing.ErrNotFound)
	case err != nil:
		return fmt.Errorf("look at kerf-hook: %w (%w)", err, sharing.ErrUnavailable)
	case info.Mode() != hookMode || !trusted.Owned(info):
		return fmt.Errorf("%q has mode %s and may not be root's: it must be root's, %s: %w", path, info.Mode(),
			hookMode, sharing.ErrStale)
	}
	have, err := HookSum(path)
	if err != nil {
		return err
	}
	if have != sum {
		return fmt.Errorf("%q has other content than was installed: %w", path, sharing.ErrStale)
	}
	return nil
}

// removeOld leaves version and the newest of the others. Only folders that hold nothing but a kerf-hook
// and its library are touched.
func removeOld(dir, version string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("%w (%w)", err, sharing.ErrUnavailable)
	}
	type folder struct {
		path string
		time time.Time
	}
	var others []folder
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		if e.Name() == version || !e.IsDir() || !holdsOursAlone(path) {
			continue
		}
		info, err := e.Info()
		if err != nil {
			continue // removed meanwhile
		}
		others = append(others, folder{path, info.ModTime()})
	}
	slices.SortFunc(others, func(a, b folder) int { return b.time.Compare(a.time) })
	var errs []error
	for _, f := range others[min(keptVersions-1, len(others)):] {
		for _, path := range []string{filepath.Join(f.path, hookName), filepath.Join(f.path, libraryName), f.path} {
			if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
				errs = append(errs, fmt.Errorf("%w (%w)", err, sharing.ErrUnavailable))
			}
		}
	}
	return errors.Join(errs...)
}

func holdsOursAlone(dir string) bool {
	entries, err := os.ReadDir(dir)
	return err == nil && len(entries) > 0 && !slices.ContainsFunc(entries, func(e fs.DirEntry) bool {
		return e.Name() != hookName && e.Name() != libraryName || !e.Type().IsRegular()
	})
}

// isVersion holds versions to what can be a folder's name and stands in a spec without quotes.
func isVersion(s string) bool {
	if s == "" || len(s) > maxVersion {
		return false
	}
	for i := range len(s) {
		c := s[i]
		alnum := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
		if !alnum && (i == 0 || c != '.' && c != '_' && c != '+' && c != '-') {
			return false
		}
	}
	return true
}
