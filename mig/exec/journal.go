// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package exec

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/kerf-gpu/kerf/mig"
	"github.com/kerf-gpu/kerf/sharing"
)

// schema is the version of the file.
const schema = 1

// maxJournal bounds what is read; a journal is some kilobytes at most.
const maxJournal = 1 << 20

// journal is what is on disk of one GPU.
type journal struct {
	// BootID is the kernel's boot at the time of writing: instances do not outlive it.
	BootID string `json:"boot_id"`
	GPU    string `json:"gpu"`
	PCI    string `json:"pci"`
	// Mode is true once Kerf has put the GPU in MIG mode, and not taken it out again.
	Mode bool `json:"mode,omitempty"`
	// Ending is true while Kerf ends the MIG mode of a GPU, until that is current.
	Ending bool `json:"ending,omitempty"`
	// Turning is the mode that is being set of a GPU whose mode is demand's to change; nil while none is.
	Turning *bool `json:"turning,omitempty"`
	// Mine are the instances that Kerf made, as they were before Change.Doing.
	Mine   []owned `json:"mine"`
	Change *change `json:"change,omitempty"`
}

// change is one that is under way.
type change struct {
	Before []place `json:"before"`
	Wanted []place `json:"wanted"`
	// Undo is true once Wanted was given up for Before.
	Undo bool `json:"undo,omitempty"`
	// Remake is true for the layout that a reboot has taken: there is no state before it to go back to.
	Remake bool `json:"remake,omitempty"`
	// Doing is the call that is about to be made, or was just made; nil before the first.
	Doing *doing `json:"doing,omitempty"`
}

type doing struct {
	Op string `json:"op"`
	place
	GI int `json:"gi"`
}

type owned struct {
	place
	GI   int    `json:"gi"`
	CI   int    `json:"ci"`
	UUID string `json:"uuid,omitempty"`
}

// place is mig.Place. The file has separate types, so that a change of the model does not change the file.
type place struct {
	Profile int `json:"profile"`
	Start   int `json:"start"`
}

func (p place) mig() mig.Place { return mig.Place{Profile: p.Profile, Start: p.Start} }

func toPlaces(list []mig.Place) []place {
	out := make([]place, len(list))
	for i, p := range list {
		out[i] = place{p.Profile, p.Start}
	}
	return out
}

func fromPlaces(list []place) []mig.Place {
	out := make([]mig.Place, len(list))
	for i, p := range list {
		out[i] = p.mig()
	}
	return out
}

func toOwned(list []Own) []owned {
	out := make([]owned, len(list))
	for i, o := range list {
		out[i] = owned{place{o.Place.Profile, o.Place.Start}, o.GI, o.CI, o.UUID}
	}
	return out
}

func fromOwned(list []owned) []Own {
	out := make([]Own, len(list))
	for i, o := range list {
		out[i] = Own{o.mig(), o.GI, o.CI, o.UUID}
	}
	return out
}

// envelope is the outer form of the file. SHA256 is over the bytes of Body as written.
type envelope struct {
	Schema int             `json:"schema"`
	SHA256 string          `json:"sha256"`
	Body   json.RawMessage `json:"body"`
}

func encode(j journal) ([]byte, error) {
	body, err := json.Marshal(j)
	if err != nil {
		return nil, fmt.Errorf("encode mig journal: %w (%w)", err, sharing.ErrInvalid)
	}
	sum := sha256.Sum256(body)
	data, err := json.Marshal(envelope{schema, hex.EncodeToString(sum[:]), body})
	if err != nil {
		return nil, fmt.Errorf("encode mig journal: %w (%w)", err, sharing.ErrInvalid)
	}
	return append(data, '\n'), nil
}

// errDamaged is wrapped by decode's errors: what is there was not written by encode, or not all of it is there.
var errDamaged = errors.New("the mig journal is damaged")

func decode(data []byte) (journal, error) {
	if len(data) > maxJournal || !bytes.HasSuffix(data, []byte("}\n")) {
		return journal{}, errDamaged
	}
	var e envelope
	if err := strict(data, &e); err != nil {
		return journal{}, err
	}
	if e.Schema > schema {
		return journal{},
			fmt.Errorf("the mig journal has schema %d and this program reads %d: run the newer one again: %w", e.Schema,
				schema, sharing.ErrUnsupported)
	}
	sum := sha256.Sum256(e.Body)
	if e.Schema < 1 || e.SHA256 != hex.EncodeToString(sum[:]) {
		return journal{}, errDamaged
	}
	var j journal
	err := strict(e.Body, &j)
	return j, err
}

func strict(data []byte, to any) error {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(to); err != nil {
		return fmt.Errorf("%w: %w", errDamaged, err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return fmt.Errorf("%w: more follows its end", errDamaged)
	}
	return nil
}
