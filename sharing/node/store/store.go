// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package store owns the grants of a node: the ledger, its lock and the checkpoint on disk.
//
// It promises that an Update sees a consistent ledger, that View is one picture, and that what Save returned from is on the
// disk. A checkpoint that cannot be written becomes a condition that stops new grants, until one is written.
package store

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"

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

// Store has the grants of one node. It is safe for concurrent use.
type Store struct {
	opt    Options
	file   *checkpoint.Store
	mu     sync.Locker
	ledger *ledger.Ledger
}

// New makes the store of a ledger that mu guards. It has no grants until they are restored.
func New(opt Options, mu sync.Locker, l *ledger.Ledger) *Store {
	return &Store{opt: opt, file: checkpoint.New(opt.Path, opt.At), mu: mu, ledger: l}
}

// Update changes grants. change must not keep the ledger, and calls neither the store nor anything slow. The error is that of change, which
// must then have changed nothing that counts. What has to outlive a crash is on disk after Save.
func (s *Store) Update(change func(*ledger.Ledger) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return change(s.ledger)
}

// View returns all grants, by id, and all GPUs, as of one moment. The caller changes nothing of them.
func (s *Store) View() ([]ledger.Grant, []ledger.View) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ledger.Grants(), s.ledger.GPUs()
}

// Get returns the grant of that id.
func (s *Store) Get(id ledger.ClaimID) (ledger.Grant, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ledger.Get(id)
}

// Save writes the checkpoint: every claim that has a cgroup, and every claim of a container. It returns once a checkpoint that
// was taken after the call is on the disk. An error also becomes a condition that stops new grants, until SaveAgain succeeds.
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

// record is what is written.
func (s *Store) record() record.Record {
	s.mu.Lock()
	defer s.mu.Unlock()
	grants := s.ledger.Grants()
	rec := record.Record{BootID: s.opt.BootID, Grants: make([]record.Grant, 0, len(grants))}
	for _, g := range grants {
		if a := g.Current(); a.Cgroup != "" || g.Claim.Owner.Pod() {
			rec.Grants = append(rec.Grants, Recorded(g.Claim, a))
		}
	}
	return rec
}

// Loaded is what a checkpoint told.
type Loaded struct {
	Grants []record.Grant
	// Unrecorded is true if the newest checkpoint is missing or damaged, Damaged if any is.
	Unrecorded, Damaged bool
}

// Load reads the newest checkpoint that is whole, and puts a damaged one aside. None is an empty one. Of one of another boot only the claims of
// pods count, without cgroups: kubelet starts their containers again. Errors: a checkpoint of a newer schema is a *record.NewerError;
// those of the disk wrap sharing.ErrUnavailable.
func (s *Store) Load() (Loaded, error) {
	found, err := checkpoint.Read(s.opt.Path)
	if err != nil {
		return Loaded{}, err
	}
	// What the newest record had and this one has not is told by cgroups, container runtime and driver.
	out := Loaded{Unrecorded: found.From != checkpoint.Newest, Damaged: len(found.Damaged) > 0, Grants: found.Record.Grants}
	for _, d := range found.Damaged {
		aside := d.Path + ".damaged"
		s.opt.Log.Error("record was damaged", "path", d.Path, "error", d.Err.Error(), "kept_as", aside, "previous_used", found.From == checkpoint.Previous)
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
	s.opt.Log.Info("record is of another boot; its leases ended with it", "grants", len(found.Record.Grants), "claims_of_pods_kept", len(out.Grants))
	return out, nil
}
