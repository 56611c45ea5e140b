// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package cdi

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/kerf-gpu/kerf/sharing"
)

// look is one string of all that Keep's work depends on. A file's change time cannot be set back, so nothing
// can be written without a difference here.
func (k *Keeper) look(m Maxima, gpus []sharing.GPU) (string, error) {
	var b strings.Builder
	fmt.Fprintf(&b, "%+v", m)
	for _, g := range gpus {
		fmt.Fprintf(&b, " %q %d %d %t", g.UUID, g.Index, g.Minor, g.MIG)
	}
	err := k.lookInto(&b, append([]string{k.own}, k.dirs...))
	return b.String(), err
}

// lookInto tells what the folders look like. The spec of the MIG instances is left out as long as it is as Instances left it:
// it changes with each instance that is cut, and nothing else is made from it.
func (k *Keeper) lookInto(b *strings.Builder, dirs []string) error {
	for _, dir := range dirs {
		entries, err := os.ReadDir(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("list cdi specs: %w (%w)", err, sharing.ErrUnavailable)
		}
		fmt.Fprintf(b, "\n%q", dir)
		for _, e := range entries {
			path := filepath.Join(dir, e.Name())
			text := looks(path)
			if path == k.migFile() && text == k.mig {
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

// source is Source for the keeper's folders, which reads them only when they have changed: a spec of eight GPUs has some
// hundred files to mount, and a pod that waits for its MIG instance waits for this.
func (k *Keeper) source() ([]SourceSpec, error) {
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
