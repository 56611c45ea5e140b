// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package audit is the form of a node's audit log. Each line is one JSON object with the hash of the line before it and
// its own hash. So a line that was changed, removed or inserted is found.
//
// It promises that Verifier accepts what Chain writes, and that it detects each changed line if a later line exists. It
// does not detect lines removed at the end, or a whole log that was written again by someone with write access. For
// that, keep the last hash elsewhere. It is pure; package audit/file has the files.
package audit

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/usage"
)

// Types of entries.
const (
	// Start: the agent began to write; Reason says after what.
	Start = "start"
	// Reserve: a grant was reserved. Release: it was released.
	Reserve = "reserve"
	Release = "release"
	// Activate: an attachment became active. End: it ended.
	Activate = "activate"
	End      = "end"
	// Resize: the memory of a grant was changed while it ran.
	Resize = "resize"
	// Violation: a grant used more than its cap, or a process used a GPU without a grant. Reason is the action.
	Violation = "violation"
	// Config: a config was applied or rejected.
	Config = "config"
	// MIG: an instance was created for a grant, or the creation failed.
	MIG = "mig"
	// MIGStep: a change of MIG mode or instances was done, or failed.
	MIGStep = "mig-step"
	// Health: a GPU's health changed.
	Health = "health"
	// Fault: something was done about who is on a faulty GPU.
	Fault = "fault"
	// Usage: what a grant used since the last such entry. Idle: it has used no GPU time for long.
	Usage = "usage"
	Idle  = "idle"
	// Lost: entries could not be written; Reason says how many.
	Lost = "lost"
)

// Entry is one line. Fields without a value are left out.
type Entry struct {
	// Seq counts up by one from line to line, over files.
	Seq uint64 `json:"seq"`
	// Time is the node's clock, in UTC.
	Time time.Time `json:"time"`
	Type string    `json:"type"`
	// Node is its name in Kubernetes.
	Node    string   `json:"node,omitempty"`
	Subject *Subject `json:"subject,omitempty"`
	// Grant is the grant's id, Name the name that its user gave it.
	Grant   string `json:"grant,omitempty"`
	Name    string `json:"name,omitempty"`
	Profile string `json:"profile,omitempty"`
	// Level is the enforcement level, and Backend what holds it.
	Level   string  `json:"level,omitempty"`
	Backend string  `json:"backend,omitempty"`
	Shares  []Share `json:"shares,omitempty"`
	// Usage is what was used, of a Usage entry.
	Usage []usage.Record `json:"usage,omitempty"`
	// Reason is for people. By is the caller if that is not Subject: a user ID, or a program of Kerf.
	Reason string `json:"reason,omitempty"`
	By     string `json:"by,omitempty"`
	// Error says that it was refused or went wrong.
	Error string `json:"error,omitempty"`
	// Prev is the Sum of the line before, empty for the first of all.
	Prev string `json:"prev,omitempty"`
	// Sum is the hash of the line without this field. It stands last.
	Sum string `json:"sum,omitempty"`
}

// Subject is the owner of a grant: a pod's container, or a process of a user.
type Subject struct {
	Namespace string `json:"namespace,omitempty"`
	Pod       string `json:"pod,omitempty"`
	PodUID    string `json:"pod_uid,omitempty"`
	Container string `json:"container,omitempty"`
	UID       uint32 `json:"uid"`
	PID       int    `json:"pid,omitempty"`
	// Claims are the requests of ResourceClaims that the grant comes from, as CLAIM/REQUEST.
	Claims []string `json:"claims,omitempty"`
	// Labels are the pod's, of a Usage entry.
	Labels map[string]string `json:"labels,omitempty"`
}

// Share is a share of one GPU.
type Share struct {
	GPU         string `json:"gpu"`
	MemoryBytes uint64 `json:"memory_bytes,omitempty"`
	Percent     int    `json:"percent,omitempty"`
	Whole       bool   `json:"whole,omitempty"`
	MIG         string `json:"mig,omitempty"`
}

// MaxLine is the longest line that is read, in bytes, the newline among them. MaxText bounds the texts of an entry when
// it is written, so that a line is far shorter.
const (
	MaxLine = 64 << 10
	MaxText = 4 << 10
)

const (
	sumLength = 2 * sha256.Size
	sumBegin  = `,"sum":"`
	sumEnd    = `"}`
)

// Tail is the end of a chain: what the next line hangs on. The zero value is the end of an empty log.
type Tail struct {
	Seq uint64
	Sum string
}

// Append returns the line of an entry at the end of a chain, with its newline, and the chain's new end. Seq, Prev and
// Sum of the entry are set here; its Time is given in UTC; texts that are too long are truncated.
func (t Tail) Append(e Entry) (line []byte, next Tail, err error) {
	e.Seq, e.Prev, e.Sum, e.Time = t.Seq+1, t.Sum, "", e.Time.UTC()
	for _, s := range []*string{&e.Reason, &e.Error, &e.By, &e.Name, &e.Profile} {
		*s = truncate(*s)
	}
	body, err := json.Marshal(e)
	if err != nil {
		return nil, t, fmt.Errorf("write audit entry %d: %w (%w)", e.Seq, err, sharing.ErrInvalid)
	}
	sum := sumOf(body)
	line = slices.Concat(body[:len(body)-1], []byte(sumBegin+sum+sumEnd+"\n"))
	if len(line) > MaxLine {
		return nil, t, fmt.Errorf("write audit entry %d: it has %d bytes: %w", e.Seq, len(line), sharing.ErrInvalid)
	}
	return line, Tail{Seq: e.Seq, Sum: sum}, nil
}

func truncate(s string) string {
	if len(s) > MaxText {
		return s[:MaxText] + "..."
	}
	return s
}

func sumOf(body []byte) string {
	h := sha256.Sum256(body)
	return hex.EncodeToString(h[:])
}

// Parse reads one line, without its newline, and checks its own hash. The error wraps sharing.ErrInvalid.
func Parse(line []byte) (Entry, error) {
	var e Entry
	tail := len(sumBegin) + sumLength + len(sumEnd)
	if len(line) >= MaxLine || len(line) <= tail {
		return e, fmt.Errorf("read audit entry: it has %d bytes: %w", len(line), sharing.ErrInvalid)
	}
	body, end := line[:len(line)-tail], line[len(line)-tail:]
	sum := string(end[len(sumBegin) : len(sumBegin)+sumLength])
	if !bytes.HasPrefix(end, []byte(sumBegin)) || !bytes.HasSuffix(end, []byte(sumEnd)) {
		return e, fmt.Errorf("read audit entry: it does not end in its sum: %w", sharing.ErrInvalid)
	}
	if is := sumOf(append(bytes.Clone(body), '}')); is != sum {
		return e, fmt.Errorf("read audit entry: its sum is %s and says %q: %w", is, sum, sharing.ErrInvalid)
	}
	if err := json.Unmarshal(line, &e); err != nil {
		return Entry{}, fmt.Errorf("read audit entry: %w (%w)", err, sharing.ErrInvalid)
	}
	return e, nil
}

// Verifier follows a chain line by line. The zero value takes the first line as the begin, whatever it hangs on: older
// files may have been rotated away.
type Verifier struct {
	tail  Tail
	began bool
	first uint64
}

// Next takes the next line, without its newline. The error wraps sharing.ErrInvalid; what follows is then checked from
// this line on, where it can be read.
func (v *Verifier) Next(line []byte) (Entry, error) {
	e, err := Parse(line)
	if err != nil {
		return e, err
	}
	was := v.tail
	v.tail = Tail{Seq: e.Seq, Sum: e.Sum}
	if !v.began {
		v.began, v.first = true, e.Seq
		return e, nil
	}
	if e.Seq != was.Seq+1 || e.Prev != was.Sum {
		return e,
			fmt.Errorf("entry %d does not hang on entry %d before it: lines were changed, taken out or put in: %w",
				e.Seq, was.Seq, sharing.ErrInvalid)
	}
	return e, nil
}

// Tail is the end of what was read.
func (v *Verifier) Tail() Tail { return v.tail }

// First is the number of the first entry, 0 before any.
func (v *Verifier) First() uint64 { return v.first }
