// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package cdi

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"

	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/kerf-gpu/kerf/internal/atomicfile"
	"github.com/kerf-gpu/kerf/internal/trusted"
	"github.com/kerf-gpu/kerf/sharing"
)

// Manager keeps the specs of one node current. Keep is cheap to call: while its arguments and the files in the
// folders are unchanged, it only lists the folders. It is not for concurrent use.
type Manager struct {
	own  string
	dirs []string
	hook Hook

	// most is the largest of all amounts so far. It outlives a file that others remove.
	most Maxima
	// good is what the folders and the arguments looked like when all was right, and kept what Reconcile said then.
	good string
	kept Reconciled
	// mig is what Instances has left of its file.
	mig string
	// claims is what Claims wants of its file, nil before its first call, and claimsLook what was left of it.
	claims     *File
	claimsLook string
	// from are the specs that were found when the folders looked so.
	from     []SourceSpec
	fromLook string
}

// Reconciled is what Reconcile did and found.
type Reconciled struct {
	// Written are the names of the files that it had to write.
	Written []string
	// Left says for each GPU that has no device why, as of Derived.
	Left map[sharing.GPUID]string
}

// NewManager returns a Manager that writes into own. The folders that container runtimes read are dirs, in their order;
// it reads the specs of nvidia.com/gpu there.
func NewManager(own string, dirs []string, h Hook) *Manager {
	return &Manager{own: own, dirs: dirs, hook: h}
}

// Reconcile makes the static specs for amounts up to m and for all earlier amounts, and the devices of the GPUs. It
// restores the spec that Claims wrote. With a conflict (see Conflicts) it writes nothing. The errors are those of
// Conflicts, Static, Install, Source and Derive. If only the GPUs' specs are missing, it writes the static specs.
func (k *Manager) Reconcile(m Maxima, gpus []sharing.GPU) (Reconciled, error) {
	seen, err := k.look(m, gpus)
	if err != nil {
		return Reconciled{}, err
	}
	if seen == k.good {
		return Reconciled{Left: maps.Clone(k.kept.Left)}, nil
	}
	k.good = ""
	kept, err := k.keep(m, gpus)
	// What was written has changed the folders: the next call looks at it all once more.
	if err == nil && len(kept.Written) == 0 {
		k.good, k.kept = seen, Reconciled{Left: maps.Clone(kept.Left)}
	}
	return kept, err
}

func (k *Manager) keep(m Maxima, gpus []sharing.GPU) (Reconciled, error) {
	if err := Conflicts(k.own, append([]string{k.own}, k.dirs...)); err != nil {
		return Reconciled{}, err
	}
	recorded, err := Recorded(k.own)
	if err != nil {
		return Reconciled{}, err
	}
	k.most = k.most.Union(recorded)
	static, err := Static(m.Union(k.most), k.hook)
	if err != nil {
		return Reconciled{}, err
	}
	k.most = k.most.Union(m)
	var kept Reconciled
	if kept.Written, err = Install(k.own, static); err != nil {
		return kept, err
	}
	claims, err := k.keepClaims()
	kept.Written = append(kept.Written, claims...)
	if err != nil {
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

// specMode is what a spec's mode must be: who writes it decides what runs as root.
const specMode fs.FileMode = 0o644

// Install writes the files into dir with mode 0644. Each file is complete or unchanged at every instant, also over
// crashes. It skips unchanged files, because every write makes container runtimes reload all specs. It creates dir
// and removes leftovers of killed writers; the caller is the only writer. It returns the names of the written files,
// also with an error. Errors wrap sharing.ErrDenied (dir, or a folder above it, is writable by others or read-only),
// sharing.ErrUnavailable (no space, I/O).
func Install(dir string, files []File) (written []string, err error) {
	if err := makeDir(dir); err != nil {
		return nil, fmt.Errorf("install cdi specs: %w", err)
	}
	if err := atomicfile.CleanTemp(dir); err != nil {
		return nil, fmt.Errorf("install cdi specs: %w", err)
	}
	for _, f := range files {
		if f.Name != filepath.Base(f.Name) {
			return written, fmt.Errorf("install cdi spec %q: not a file name: %w", f.Name, sharing.ErrInvalid)
		}
		path := filepath.Join(dir, f.Name)
		if verify(path, f.Data) == nil {
			continue
		}
		if err := atomicfile.Write(path, f.Data, specMode); err != nil {
			return written, fmt.Errorf("install cdi spec: %w", err)
		}
		written = append(written, f.Name)
	}
	return written, nil
}

func verify(path string, want []byte) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("cdi spec %q is gone: %w", path, sharing.ErrNotFound)
	case err != nil:
		return fmt.Errorf("look at cdi spec: %w (%w)", err, sharing.ErrUnavailable)
	case info.Mode() != specMode:
		return fmt.Errorf("cdi spec %q has mode %s, not %s: %w", path, info.Mode(), specMode, sharing.ErrStale)
	case !trusted.Owned(info):
		return fmt.Errorf("cdi spec %q is not root's: %w", path, sharing.ErrStale)
	case info.Size() != int64(len(want)):
		return fmt.Errorf("cdi spec %q has other content than was written: %w", path, sharing.ErrStale)
	}
	have, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("read cdi spec: %w (%w)", err, sharing.ErrUnavailable)
	}
	if !bytes.Equal(have, want) {
		return fmt.Errorf("cdi spec %q has other content than was written: %w", path, sharing.ErrStale)
	}
	return nil
}

// Recorded tells the largest amounts that the specs in dir have devices for; nothing where there are none. A
// file that is no spec records nothing. The error wraps sharing.ErrUnavailable.
func Recorded(dir string) (Maxima, error) {
	var m Maxima
	for _, kind := range []string{sharing.CDIRequest, sharing.CDINUMA, sharing.EarlierCDINUMA} {
		data, err := os.ReadFile(filepath.Join(dir, fileName(kind)))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return Maxima{}, fmt.Errorf("read cdi spec: %w (%w)", err, sharing.ErrUnavailable)
		}
		m = m.Union(recorded(kind, data))
	}
	return m, nil
}

// recorded reads the amounts of one file. Agents write JSON. The parser of YAML takes many times the memory, and the
// file has a device for each amount.
func recorded(kind string, data []byte) Maxima {
	var m Maxima
	var s specs.Spec
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(&s); err != nil || s.Kind != kind {
		return m // nothing resolves through it either
	}
	for _, d := range s.Devices {
		var found Maxima
		if kind == sharing.CDIRequest {
			if a, err := sharing.ParseResourceRequest(d.Name); err == nil {
				found = only(a)
			}
		} else if n, err := sharing.ParseNUMAAffinity(kind, d.Name); err == nil {
			found.NUMANodes, found.GPUs = n.NUMA+1, n.Count
		}
		if found.check() == nil { // what no agent writes says nothing
			m = m.Union(found)
		}
	}
	return m
}
