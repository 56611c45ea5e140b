// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package cdi

import (
	"maps"

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
	// mig is what Instances has left of its file.
	mig string
	// from are the specs that were found when the folders looked so.
	from     []SourceSpec
	fromLook string
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
	from, err := k.source()
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
