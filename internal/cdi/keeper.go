// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package cdi

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/kerf-gpu/kerf/sharing"
)

// Keeper keeps the specs of one node as they must be. Keep may be called as often as one likes: as long as
// neither its arguments nor any file in the folders have changed, it only looks at the folders' entries.
// It is not for use by several goroutines at once.
type Keeper struct {
	own  string
	dirs []string
	hook Hook

	// most is the largest of all amounts so far. It outlives a file that somebody removes.
	most Maxima
	// good is what the folders and the arguments looked like when all was right, and kept what Keep said then.
	good string
	kept Kept
}

// Kept is what Keep did and found.
type Kept struct {
	// Written are the names of the files that it had to write.
	Written []string
	// Left says for each GPU that has no device why, as of Derived.
	Left map[sharing.GPUID]string
}

// NewKeeper returns a Keeper that writes into own. dirs are the folders that container runtimes read, in
// their order; the specs of nvidia.com/gpu are looked for there.
func NewKeeper(own string, dirs []string, h Hook) *Keeper {
	return &Keeper{own: own, dirs: dirs, hook: h}
}

// Keep makes guard, ask and near for amounts up to m and all that were there before, and the devices of the
// GPUs. With a conflict (see Conflicts) it writes nothing. The errors are those of Conflicts, InstallStatic,
// Source and Derive; guard, ask and near are in place also when only the GPUs' specs are missing.
func (k *Keeper) Keep(m Maxima, gpus []sharing.GPU) (Kept, error) {
	seen, err := k.look(m, gpus)
	if err != nil {
		return Kept{}, err
	}
	if seen == k.good {
		return Kept{Left: maps.Clone(k.kept.Left)}, nil
	}
	k.good = ""
	kept, err := k.keep(m, gpus)
	// What was written has changed the folders: the next call looks at it all once more.
	if err == nil && len(kept.Written) == 0 {
		k.good, k.kept = seen, Kept{Left: maps.Clone(kept.Left)}
	}
	return kept, err
}

func (k *Keeper) keep(m Maxima, gpus []sharing.GPU) (Kept, error) {
	if err := Conflicts(k.own, append([]string{k.own}, k.dirs...)); err != nil {
		return Kept{}, err
	}
	recorded, err := Recorded(k.own)
	if err != nil {
		return Kept{}, err
	}
	k.most = k.most.Union(recorded)
	static, err := Static(m.Union(k.most), k.hook)
	if err != nil {
		return Kept{}, err
	}
	k.most = k.most.Union(m)
	var kept Kept
	if kept.Written, err = Install(k.own, static); err != nil {
		return kept, err
	}
	from, err := Source(k.dirs)
	if err != nil {
		return kept, err
	}
	derived, err := Derive(from, gpus)
	kept.Left = derived.Left
	if err != nil || derived.File.Name == "" {
		return kept, err
	}
	written, err := Install(k.own, []File{derived.File})
	kept.Written = append(kept.Written, written...)
	return kept, err
}

// look is one string of all that Keep's work depends on. A file's change time cannot be set back, so nothing
// can be written without a difference here.
func (k *Keeper) look(m Maxima, gpus []sharing.GPU) (string, error) {
	var b strings.Builder
	fmt.Fprintf(&b, "%+v", m)
	for _, g := range gpus {
		fmt.Fprintf(&b, " %q %d %d %t", g.UUID, g.Index, g.Minor, g.MIG)
	}
	for _, dir := range append([]string{k.own}, k.dirs...) {
		entries, err := os.ReadDir(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return "", fmt.Errorf("list cdi specs: %w (%w)", err, sharing.ErrUnavailable)
		}
		fmt.Fprintf(&b, "\n%q", dir)
		for _, e := range entries {
			info, err := os.Stat(filepath.Join(dir, e.Name())) // a link is what it leads to
			if err != nil {
				fmt.Fprintf(&b, " %q gone", e.Name())
				continue
			}
			if stat, ok := info.Sys().(*syscall.Stat_t); ok {
				fmt.Fprintf(&b, " %q %s %d %d %d.%d", e.Name(), e.Type(), stat.Ino, stat.Size, stat.Ctim.Sec, stat.Ctim.Nsec)
			}
		}
	}
	return b.String(), nil
}
