// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package cdi

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/kerf-gpu/kerf/internal/trusted"
	"github.com/kerf-gpu/kerf/sharing"
)

// maxSpec is the largest file that is looked at; no real spec comes near it.
const maxSpec = 64 << 20

// Conflicts searches all the folders that container runtimes read (dirs) for files that declare one of Kerf's kinds.
// Those that Install wrote in own are no conflict. Another file could make the hook device a name without a hook, so
// with one a node must take no container. The error names every such file with the remedy. It wraps
// sharing.ErrConflict, or sharing.ErrUnavailable if a folder or file cannot be read.
func Conflicts(own string, dirs []string) error {
	var errs []error
	for _, dir := range dirs {
		entries, err := os.ReadDir(dir)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("list cdi specs: %w (%w)", err, sharing.ErrUnavailable))
			continue
		}
		ours := filepath.Clean(dir) == filepath.Clean(own)
		for _, e := range entries {
			ext := filepath.Ext(e.Name())
			if e.IsDir() || ext != ".json" && ext != ".yaml" || ours && slices.Contains(ourFiles(), e.Name()) {
				continue
			}
			errs = append(errs, conflict(filepath.Join(dir, e.Name())))
		}
	}
	return errors.Join(errs...)
}

func conflict(path string) error {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // removed meanwhile, or a link to nowhere
	}
	if err != nil || !info.Mode().IsRegular() || info.Size() > maxSpec {
		return fmt.Errorf("cdi spec %q cannot be looked at: remove it: %w", path,
			errors.Join(err, sharing.ErrUnavailable))
	}
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read cdi spec: %w (%w)", err, sharing.ErrUnavailable)
	}
	if kind, found := declares(data); found {
		return fmt.Errorf("cdi spec %q declares devices of %s, which Kerf alone may: remove it: %w", path, kind,
			sharing.ErrConflict)
	}
	return nil
}

// declares finds one of Kerf's kinds in a spec. In a file that this library cannot read the name alone
// counts: the container runtime's may be of another version and read it.
func declares(data []byte) (kind string, found bool) {
	s, err := parse(data)
	for _, kind := range []string{sharing.CDIHook, sharing.CDIRequest, sharing.CDINUMA, sharing.EarlierCDINUMA,
		sharing.CDIGPU,
		sharing.CDIMIG, sharing.CDIClaim} {
		if err == nil {
			if s.Kind == kind {
				return kind, true
			}
		} else if bytes.Contains(data, []byte(kind)) {
			return kind, true
		}
	}
	return "", false
}

// look is one string of all that Reconcile's work depends on. A file's change time cannot be set back, so nothing
// can be written without a difference here.
func (k *Manager) look(m Maxima, gpus []sharing.GPU) (string, error) {
	var b strings.Builder
	fmt.Fprintf(&b, "%+v claims %t", m, looks(k.claimsPath()) == k.claimsLook)
	for _, g := range gpus {
		fmt.Fprintf(&b, " %q %d %d %t", g.UUID, g.Index, g.Minor, g.MIG)
	}
	err := k.lookInto(&b, append([]string{k.own}, k.dirs...))
	return b.String(), err
}

// lookInto describes the folders. It leaves out the specs of MIG instances and ResourceClaims while they are as the
// manager wrote them. They change with each instance and claim, and nothing else depends on them.
func (k *Manager) lookInto(b *strings.Builder, dirs []string) error {
	for _, dir := range dirs {
		entries, err := os.ReadDir(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("list cdi specs: %w (%w)", err, sharing.ErrUnavailable)
		}
		fmt.Fprintf(b, "\n%q", dir)
		for _, e := range entries {
			path := filepath.Join(dir, e.Name())
			text := looks(path)
			if path == k.migFile() && text == k.mig || path == k.claimsPath() && text == k.claimsLook {
				continue
			}
			fmt.Fprintf(b, " %q %s %s", e.Name(), e.Type(), text)
		}
	}
	return nil
}

// looks tells one file, or what a link leads to, from what was there before it.
func looks(path string) string {
	info, err := os.Stat(path)
	if err != nil {
		return "gone"
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return ""
	}
	return fmt.Sprintf("%d %d %d.%d", stat.Ino, stat.Size, stat.Ctim.Sec, stat.Ctim.Nsec)
}

// source is Source for the manager's folders. It reads them only after a change. A spec of eight GPUs has some hundred
// files to mount, and a pod that waits for its MIG instance waits for this.
func (k *Manager) source() ([]SourceSpec, error) {
	var b strings.Builder
	if err := k.lookInto(&b, k.dirs); err != nil {
		return nil, err
	}
	if k.from != nil && b.String() == k.fromLook {
		return k.from, nil
	}
	from, err := Source(k.dirs)
	if err != nil {
		return nil, err
	}
	k.from, k.fromLook = from, b.String()
	return from, nil
}

// makeDir makes dir if it is missing. It rejects one in which another user than root could put a file, or replace the
// folder: its hooks run as root.
func makeDir(dir string) error {
	if !filepath.IsAbs(dir) {
		return sharing.Invalid("folder", dir, "write an absolute path", "is not an absolute path")
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		word := sharing.ErrUnavailable
		if errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EROFS) {
			word = sharing.ErrDenied
		}
		return fmt.Errorf("make folder %q: %w (%w)", dir, err, word)
	}
	if err := trusted.Dir(dir); err != nil {
		return fmt.Errorf("%w; what lies in %q runs as root: make it root's with mode 0755", err, dir)
	}
	return nil
}

// Remove deletes all specs of Kerf from a folder, those of other versions, too. A missing folder has none.
func Remove(dir string) error {
	names, err := filepath.Glob(filepath.Join(dir, sharing.Domain+"-*.json"))
	errs := []error{err}
	for _, name := range names {
		errs = append(errs, os.Remove(name))
	}
	return errors.Join(errs...)
}
