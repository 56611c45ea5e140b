// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package record is the agent's checkpoint, from which a restarted agent recovers its grants. It has the boot ID,
// cgroup and inode, and the amounts that are set.
//
// It promises that Decode accepts only what Encode wrote: a checksum covers every byte of the body. Unknown fields,
// another schema or a bad checksum are errors. It has separate types, so that a change of the model does not change the
// file by accident.
//
// It does not say what is true: a record is overruled by cgroups and by the driver's read-back.
package record

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/kerf-gpu/kerf/sharing"
)

// Schema is the newest version. This program reads it and all before. Schema 2 added what containers need, and schema 3
// the backend and bursts. Schema 4 added priorities and shared caps, and schema 5 MIG instances. Schema 6
// added requests of ResourceClaims. A record without them is written as schema 5, so that an agent before can read it.
const Schema = 6

// schemaWithoutClaims is the schema of a record without requests of ResourceClaims.
const schemaWithoutClaims = 5

// maxSize bounds what is read: 10,000 grants are about 5 MiB.
const maxSize = 16 << 20

// maxGrant bounds the annotation: a grant of 64 GPUs is about 8 KiB.
const maxGrant = 64 << 10

// Record is one node's attachments.
type Record struct {
	// BootID is the kernel's boot id at the time of writing. Cgroups do not outlive a boot, so a record of
	// another boot holds no attachment.
	BootID string `json:"boot_id"`
	// Grants are in the order of their ids.
	Grants []Grant `json:"grants"`
}

// Grant is one grant: of a process, once its cgroup is made, or of a container.
type Grant struct {
	ID        string `json:"id"`
	Name      string `json:"name,omitempty"`
	UID       uint32 `json:"uid"`
	PID       int    `json:"pid"`
	PodUID    string `json:"pod_uid,omitempty"`
	Container string `json:"container,omitempty"`
	Profile   string `json:"profile,omitempty"`
	MinLevel  string `json:"min_level,omitempty"`
	Level     string `json:"level"`
	// Backend holds the grant to its size, by name, "none" for nothing; empty in what schemas 1 and 2 wrote.
	Backend string `json:"backend,omitempty"`
	// MPSDomain is who may share a daemon with it, where the backend is MPS.
	MPSDomain string `json:"mps_domain,omitempty"`
	Whole     bool   `json:"whole,omitempty"`
	Recovered bool   `json:"recovered,omitempty"`
	// Namespace and PodName are for people.
	Namespace string `json:"namespace,omitempty"`
	PodName   string `json:"pod_name,omitempty"`
	// Kind is the container's part in its pod (app, sidecar, init), and Requests are what kubelet admitted it with.
	Kind     string   `json:"kind,omitempty"`
	Requests []string `json:"asks,omitempty"`
	// Claims names the requests of ResourceClaims among them, for people.
	Claims []string `json:"claims,omitempty"`
	// Priority is the pod's.
	Priority int32 `json:"priority,omitempty"`
	// With is the grant whose cap this one shares.
	With string `json:"with,omitempty"`
	// Cgroup is empty while no process uses the grant.
	Cgroup string `json:"cgroup,omitempty"`
	Inode  uint64 `json:"inode,omitempty"`
	// Use is the container instance that has the grant, or is about to.
	Use    *Use    `json:"use,omitempty"`
	Shares []Share `json:"fragments"`
	// ClaimEnded is true once kubelet has unprepared the ResourceClaim of the grant.
	ClaimEnded bool `json:"claim_ended,omitempty"`
}

// Use is one container instance's use of a grant.
type Use struct {
	ContainerID string   `json:"container_id"`
	Container   string   `json:"container,omitempty"`
	Requests    []string `json:"asks,omitempty"`
	Part        []Share  `json:"part,omitempty"`
}

// Share is a share of one GPU. The names in the file stay, because agents read the files of earlier versions.
type Share struct {
	GPU     string        `json:"gpu"`
	Memory  sharing.Bytes `json:"memory_bytes"`
	Burst   sharing.Bytes `json:"burst_bytes,omitempty"`
	Percent uint32        `json:"percent,omitempty"`
	Whole   bool          `json:"whole,omitempty"`
	// MIG is nil for a share of the GPU, or all of it.
	MIG *Instance `json:"mig,omitempty"`
}

// Instance is a MIG instance's place.
type Instance struct {
	Profile string `json:"profile"`
	ID      int    `json:"id"`
	Start   int    `json:"start"`
	Size    int    `json:"size"`
}

// NewerError says that a newer program wrote the record: this one must leave it alone.
type NewerError struct {
	// Found is the schema of the file.
	Found int
}

// Error names both schemas and the remedy.
func (e *NewerError) Error() string {
	return fmt.Sprintf("the record has schema %d and this kerf-agent reads %d: run the newer kerf-agent again, or "+
		"end all grants and remove the record", e.Found, Schema)
}

// Unwrap makes it ErrUnsupported.
func (e *NewerError) Unwrap() error { return sharing.ErrUnsupported }

// envelope is the outer form of the file. SHA256 is over the bytes of Body as written.
type envelope struct {
	Schema int             `json:"schema"`
	SHA256 string          `json:"sha256"`
	Body   json.RawMessage `json:"body"`
}

// Decode reads what Encode wrote. It returns a *NewerError for a newer schema, and an error that wraps
// sharing.ErrInvalid for everything that is not a whole and unharmed record.
func Decode(data []byte) (Record, error) {
	if len(data) > maxSize {
		return Record{}, fmt.Errorf("record of %d bytes is larger than %d: %w", len(data), maxSize, sharing.ErrInvalid)
	}
	// A newer schema may have other outer fields, so its number is read first and alone.
	var head struct {
		Schema int `json:"schema"`
	}
	if err := json.Unmarshal(data, &head); err != nil {
		return Record{}, fmt.Errorf("decode record: %w", errors.Join(sharing.ErrInvalid, err))
	}
	if n := trailing(data); head.Schema > Schema && n > 1 && n <= Schema {
		return Record{}, fmt.Errorf("record has schema %d in its head and %d at its end: %w", head.Schema, n,
			sharing.ErrInvalid)
	}
	if head.Schema > Schema {
		return Record{}, &NewerError{Found: head.Schema}
	}
	var env envelope
	if err := strict(data, &env); err != nil {
		return Record{}, fmt.Errorf("decode record: %w", errors.Join(sharing.ErrInvalid, err))
	}
	if env.Schema < 1 || env.Schema > Schema {
		return Record{}, fmt.Errorf("record has schema %d, which no version wrote: %w", env.Schema, sharing.ErrInvalid)
	}
	sum := sha256.Sum256(env.Body)
	if hex.EncodeToString(sum[:]) != env.SHA256 {
		return Record{}, fmt.Errorf("record's checksum does not match its body: %w", sharing.ErrInvalid)
	}
	var r Record
	if err := strict(env.Body, &r); err != nil {
		return Record{}, fmt.Errorf("decode record body: %w", errors.Join(sharing.ErrInvalid, err))
	}
	return r, nil
}

// trailing is the number of line breaks at the end. Encode writes as many as the number of the schema, which the
// checksum does not cover. So a flipped bit cannot make a record look like one of a newer agent. Agents before that
// wrote one.
func trailing(data []byte) int { return len(data) - len(bytes.TrimRight(data, "\n")) }

// EncodeGrant renders one grant alone, for the annotation of its container.
func EncodeGrant(g Grant) (string, error) {
	out, err := json.Marshal(g)
	if err != nil {
		return "", fmt.Errorf("encode grant %q: %w", g.ID, err)
	}
	return string(out), nil
}

// DecodeGrant reads what EncodeGrant wrote. The error wraps sharing.ErrInvalid.
func DecodeGrant(s string) (Grant, error) {
	if len(s) > maxGrant {
		return Grant{}, fmt.Errorf("grant of %d bytes is larger than %d: %w", len(s), maxGrant, sharing.ErrInvalid)
	}
	var g Grant
	if err := strict([]byte(s), &g); err != nil {
		return Grant{}, fmt.Errorf("decode grant: %w", errors.Join(sharing.ErrInvalid, err))
	}
	return g, nil
}

// strict decodes one JSON value with known fields and nothing behind it.
func strict(data []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return fmt.Errorf("data follows the state: %w", sharing.ErrInvalid)
	}
	return nil
}
