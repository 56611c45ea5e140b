// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package store is the only owner of the grants of a node: the ledger, its lock and the checkpoint on disk.
//
// The ledger is reached inside of Update, UpdateLater and Read alone, so it is consistent there, and nothing changes
// meanwhile. The checkpoint is on disk when Update or Save returns. If it cannot be written, a condition stops new
// grants until it is written.
package store

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/ledger"
	"github.com/kerf-gpu/kerf/sharing/node/checkpoint"
	"github.com/kerf-gpu/kerf/sharing/node/conditions"
	"github.com/kerf-gpu/kerf/sharing/node/record"
)

// Options are what a Store is made of.
type Options struct {
	Log        *slog.Logger
	Conditions *conditions.Set
	// Path is the file of the checkpoint; its directory exists. BootID is the kernel's.
	Path, BootID string
	// At is called with each of checkpoint.Failpoints, and may end the writing there by an error.
	At func(point string) error
}

// Reader is the ledger for those who change nothing. What it returns stays as it is.
type Reader interface {
	Get(id ledger.GrantID) (ledger.Grant, bool)
	Grants() []ledger.Grant
	GPU(id sharing.GPURef) (ledger.View, bool)
	GPUs() []ledger.View
	ByContainer(podUID, container string) (ledger.Grant, bool)
	ByContainerID(containerID string) (ledger.GrantID, bool)
	ByCgroup(dir string) (ledger.GrantID, bool)
	SharedCapGrants(id ledger.GrantID) []ledger.GrantID
	Overbooked() []ledger.View
	Check() error
}

// Store has the grants of one node. It is safe for concurrent use.
type Store struct {
	opt  Options
	file *checkpoint.Store
	// mu guards ledger. It is never held over a call into the driver or to the disk.
	mu     sync.Mutex
	ledger *ledger.Ledger
	// subscribers receive the transitions of each change.
	subscribers []*Subscription
	// written belongs to the one goroutine that writes the checkpoint: file calls record under its lock.
	written texts
}

// New makes a store. It has no grants until they are restored.
func New(opt Options) *Store {
	return &Store{opt: opt, file: checkpoint.New(opt.Path, opt.At), ledger: ledger.New()}
}

// Update changes grants, and returns once a checkpoint with the changes is on disk. If change returns an error, it must
// have changed nothing that counts, and nothing is written. Other errors are those of Save: the changes stay.
//
// change keeps nothing of the ledger, calls no method of the store, and waits for nothing.
func (s *Store) Update(change func(*ledger.Ledger) error) error {
	if err := s.UpdateLater(change); err != nil {
		return err
	}
	return s.Save()
}

// UpdateLater is Update for changes that a crash may lose. The next checkpoint has them.
func (s *Store) UpdateLater(change func(*ledger.Ledger) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.tell()
	return change(s.ledger)
}

// Read calls f with the grants and GPUs of one moment. Nothing changes until f returns. The rules of Update hold for f,
// too.
func (s *Store) Read(f func(Reader)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f(s.ledger)
}

// View returns all grants, by id, and all GPUs, as of one moment. The caller changes nothing of them.
func (s *Store) View() (grants []ledger.Grant, gpus []ledger.View) {
	s.Read(func(l Reader) { grants, gpus = l.Grants(), l.GPUs() })
	return grants, gpus
}

// Grants returns all grants, by id. The caller changes nothing of them.
func (s *Store) Grants() []ledger.Grant {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ledger.Grants()
}

// Get returns the grant of that id.
func (s *Store) Get(id ledger.GrantID) (ledger.Grant, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ledger.Get(id)
}

// GPU returns one GPU's page.
func (s *Store) GPU(id sharing.GPURef) (ledger.View, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ledger.GPU(id)
}

// ByContainerID returns the grant that the container instance of that id uses, or is to use next.
func (s *Store) ByContainerID(containerID string) (ledger.Grant, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	id, ok := s.ledger.ByContainerID(containerID)
	g, _ := s.ledger.Get(id)
	return g, ok
}

// Save writes the checkpoint: every grant that has a cgroup, and every grant of a container. It returns once a
// checkpoint that was taken after the call is on the disk. An error also becomes a condition that stops new grants,
// until SaveAgain succeeds.
func (s *Store) Save() error {
	err := s.file.Save(s.record)
	if err != nil {
		s.opt.Conditions.Set(conditions.Record, err.Error())
		if errors.Is(err, checkpoint.ErrOnDisk) {
			return nil
		}
		return err
	}
	s.opt.Conditions.Set(conditions.Record, "")
	return nil
}

// SaveAgain is Save if the last one failed. An error stays a condition.
func (s *Store) SaveAgain() {
	if s.opt.Conditions.Has(conditions.Record) {
		_ = s.Save() // the condition has the error
	}
}

// Settle makes both generations of the checkpoint the same. An error becomes a condition, too.
func (s *Store) Settle() error {
	err := s.file.Settle(s.record)
	if err != nil {
		s.opt.Conditions.Set(conditions.Record, err.Error())
	}
	return err
}

// Waiting is how many callers of Save there were whose checkpoint is not on the disk.
func (s *Store) Waiting() uint64 { return s.file.Waiting() }

// record is the text that is written. One goroutine at a time calls it.
func (s *Store) record() ([]byte, error) {
	s.mu.Lock()
	s.written.grants = s.ledger.AppendGrants(s.written.grants[:0])
	s.mu.Unlock()
	return s.written.encode(s.opt.BootID)
}

// Loaded is the content of a checkpoint.
type Loaded struct {
	Grants []record.Grant
	// Unrecorded is true if the newest checkpoint is missing or damaged, Damaged if any is.
	Unrecorded, Damaged bool
}

// Load reads the newest checkpoint that is whole, and puts a damaged one aside. None is an empty one. Of one of another
// boot only the grants of pods count, without cgroups: kubelet starts their containers again. Errors: a checkpoint of a
// newer schema is a *record.NewerError; those of the disk wrap sharing.ErrUnavailable.
func (s *Store) Load() (Loaded, error) {
	found, err := checkpoint.Read(s.opt.Path)
	if err != nil {
		return Loaded{}, err
	}
	// If a record is older than the newest, cgroups, container runtime and driver show what it lacks.
	out := Loaded{Unrecorded: found.From != checkpoint.Newest, Damaged: len(found.Damaged) > 0,
		Grants: found.Record.Grants}
	for _, d := range found.Damaged {
		aside := d.Path + ".damaged"
		s.opt.Log.Error("checkpoint was damaged", "path", d.Path, "error", d.Err.Error(), "kept_as", aside,
			"previous_used",
			found.From == checkpoint.Previous)
		if err := os.Rename(d.Path, aside); err != nil {
			return Loaded{}, fmt.Errorf("put damaged record aside: %w", err)
		}
	}
	if found.From == checkpoint.None || found.Record.BootID == s.opt.BootID {
		return out, nil
	}
	out.Grants = found.Record.Grants[:0]
	for _, g := range found.Record.Grants {
		if g.PodUID != "" {
			g.Cgroup, g.Inode, g.Use = "", 0, nil
			out.Grants = append(out.Grants, g)
		}
	}
	s.opt.Log.Info("ignored active grants in the checkpoint of another boot", "grants", len(found.Record.Grants),
		"claims_of_pods_kept", len(out.Grants))
	return out, nil
}
