// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package checkpoint keeps a node's record on disk in two generations: the newest, and the one before.
//
// It promises that what Save returned from is on the disk, and that a crash at any step of Save leaves a whole record.
// One damaged generation costs no more than what changed since the other. Settle makes both have the same grants.
//
// It does not promise that a generation is true: cgroups, the container runtime and the driver overrule it. An agent of
// before two generations reads the newest, and leaves the other alone.
package checkpoint

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/kerf-gpu/kerf/internal/atomicfile"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/node/record"
)

// ErrOnDisk is wrapped by an error of Save if the newest generation already has the record that could not be written.
// Then nothing can get lost.
var ErrOnDisk = errors.New("the disk has this record already")

// Generation tells which file a record is from.
type Generation uint8

const (
	// None means that there is no file, or none that can be read.
	None Generation = iota
	// Newest is the record of the last Save.
	Newest
	// Previous is the record of the Save before.
	Previous
)

// Damage is a file that has no whole record.
type Damage struct {
	Path string
	Err  error
}

// Found is what was read.
type Found struct {
	Record record.Record
	From   Generation
	// Damaged are the files that could not be used, the newest first.
	Damaged []Damage
}

// PreviousPath is where the previous generation of the record at path lies.
func PreviousPath(path string) string {
	ext := filepath.Ext(path)
	return strings.TrimSuffix(path, ext) + ".previous" + ext
}

// Read returns the newest whole record at path. It changes nothing. A record of a newer schema is a *record.NewerError.
// Other errors are those of the disk, and wrap sharing.ErrUnavailable.
func Read(path string) (Found, error) {
	var found Found
	for i, p := range []string{path, PreviousPath(path)} {
		data, err := os.ReadFile(p)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return Found{}, fmt.Errorf("read record: %w (%w)", err, sharing.ErrUnavailable)
		}
		rec, err := record.Decode(data)
		if _, newer := errors.AsType[*record.NewerError](err); newer {
			return Found{}, fmt.Errorf("read record %s: %w", p, err)
		}
		if err != nil {
			found.Damaged = append(found.Damaged, Damage{p, err})
			continue
		}
		found.Record, found.From = rec, []Generation{Newest, Previous}[i]
		return found, nil
	}
	return found, nil
}

// failpoints are the names of the points of Save, by the step of the write.
func failpoints() map[string]string {
	return map[string]string{
		atomicfile.StepTemporary: "record-after-temporary", atomicfile.StepPrevious: "record-after-previous",
		atomicfile.StepPlaced: "record-after-placed",
	}
}

// Failpoints are the names of the points at which Save can be made to fail.
func Failpoints() []string {
	f := failpoints()
	return []string{f[atomicfile.StepTemporary], f[atomicfile.StepPrevious], f[atomicfile.StepPlaced]}
}

// Store writes the record at a path. Its methods may be called at once from several goroutines.
type Store struct {
	files atomicfile.Generations
	// wanted counts the calls of Save, and saved those that are on the disk.
	wanted, saved atomic.Uint64

	// mu is held while the record is written, and guards what follows.
	mu sync.Mutex
	// sum is of the newest generation, and behind is true while the previous one differs from it.
	sum    [sha256.Size]byte
	behind bool
}

// New makes a Store of the record at path. Save calls at with each of Failpoints, and an error of it ends Save there.
func New(path string, at func(point string) error) *Store {
	names := failpoints()
	return &Store{files: atomicfile.Generations{
		Path: path, Previous: PreviousPath(path),
		At: func(step string) error { return at(names[step]) },
	}}
}

// Waiting is how many callers of Save there were whose record is not on the disk.
func (s *Store) Waiting() uint64 { return s.wanted.Load() - s.saved.Load() }

// Save writes the record that take returns, as package record encodes it. It returns once a record that was taken after
// the call is on the disk. Callers that come during a write share the next one, so that containers that start at once
// do not queue for one disk write each. Save calls take with no lock of its caller held. What take returns must include
// every change made before the call of Save.
func (s *Store) Save(take func() ([]byte, error)) error {
	want := s.wanted.Add(1)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.saved.Load() >= want {
		return nil
	}
	return s.write(take)
}

// Settle writes the record once more if the generations differ, so that one of them can be lost without loss.
func (s *Store) Settle(take func() ([]byte, error)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.behind {
		return nil
	}
	return s.write(take)
}

// write needs the lock.
func (s *Store) write(take func() ([]byte, error)) error {
	upTo := s.wanted.Load()
	data, err := take()
	if err == nil {
		err = s.files.Write(data, 0o600)
	}
	if err != nil {
		err = fmt.Errorf("write record %s: %w", s.files.Path, err)
		if now, failed := os.ReadFile(s.files.Path); failed == nil && len(data) > 0 && bytes.Equal(now, data) {
			err = fmt.Errorf("%w; %w", err, ErrOnDisk)
		}
		return err
	}
	sum := sha256.Sum256(data)
	s.behind, s.sum = sum != s.sum, sum
	s.saved.Store(upTo)
	return nil
}
