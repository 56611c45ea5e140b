// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package rules keeps the SharingConfig that the scheduler goes by, and the ConfigMaps that the leading scheduler writes of it.
//
// It promises that a document is taken whole or not at all, and that one with mistakes changes nothing.
package rules

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/kerf-gpu/kerf/sharing/config"
	"github.com/kerf-gpu/kerf/sharing/config/change"
	"k8s.io/klog/v2"
)

// Sources say where the document is, and what is written of it. ConfigMaps are given as NAMESPACE/NAME; an empty string is none.
type Sources struct {
	// File has the document until ConfigMap was seen. ConfigMap is watched.
	File, ConfigMap string
	// ProfileAmounts gets the profiles' amounts, for the admission policies. LastGood keeps the last good document.
	ProfileAmounts, LastGood string
}

// Rules are those in force. Make them with New.
type Rules struct {
	// apply hands a valid document to who decides by it.
	apply func(config.Config)
	shown configMetrics
	// A value comes to amountsDue and lastGoodDue when what the leader writes may be another.
	amountsDue, lastGoodDue chan struct{}
	running                 sync.WaitGroup

	// mu guards what follows.
	mu sync.Mutex
	// hash is that of the document in force, empty for none; files are the text and profiles those of it.
	hash     string
	files    []config.File
	profiles []config.Profile
	// refusal is why the newest document was not taken, or none is known yet, of which untold is what no event has said; nil where
	// there need be none.
	refusal, untold error
	// elected is true where schedulers elect the one that decides, and leader is how its lease names it.
	elected bool
	leader  string
}

// New are rules without a document, whose metrics register makes known; nil makes them known to nobody.
func New(apply func(config.Config), register Register) (*Rules, error) {
	r := &Rules{apply: apply, amountsDue: make(chan struct{}, 1), lastGoodDue: make(chan struct{}, 1)}
	if register == nil {
		return r, nil
	}
	var err error
	r.shown, err = newConfigMetrics(register)
	return r, err
}

// Wait waits for what Follow started, whose context has ended.
func (r *Rules) Wait() { r.running.Wait() }

// Led takes note of who decides, as the schedulers' lease names it.
func (r *Rules) Led(holder string) {
	r.mu.Lock()
	changed := !r.elected || r.leader != holder
	r.elected, r.leader = true, holder
	r.mu.Unlock()
	if changed {
		r.tellOwned()
	}
}

// Leads reports whether the scheduler on this host decides. A scheduler that stands by writes nothing, so that one that is late
// does not take back what the leader wrote.
func (r *Rules) Leads(host string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return !r.elected || strings.HasPrefix(r.leader, host+"_") // what follows is chosen at random
}

// Read reads the agents' configuration from the file, takes it whole or not at all, and returns the hash of what it read.
// A scheduler that ended for a document with mistakes would leave its cluster without one: it goes on, by the last good document
// or by none.
func (r *Rules) Read(ctx context.Context, from Sources) (seen string) {
	switch {
	case from.File != "":
		found := fileCandidate(from.File)
		if found.Err != nil {
			r.refuse(ctx, found)
		} else {
			r.take(ctx, found)
		}
		return found.Hash
	case from.ConfigMap != "":
		r.mu.Lock()
		r.refusal = fmt.Errorf("configmap %s was not read yet", from.ConfigMap)
		r.mu.Unlock()
	}
	return ""
}

// take puts a valid document in force.
func (r *Rules) take(ctx context.Context, found change.Candidate) { r.put(ctx, found, false) }

// put puts a valid document in force, where first is true only if none is.
func (r *Rules) put(ctx context.Context, found change.Candidate, first bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.hash == found.Hash || first && r.hash != "" {
		return
	}
	r.hash, r.files = found.Hash, found.Files
	r.apply(found.Config)
	r.profiles = found.Config.Profiles()
	r.shown.inForce(found.Hash)
	r.tellOwned()
	klog.FromContext(ctx).Info("The sharing config is in force", "sha256", found.Hash, "from", found.From)
}

// refuse takes note of a document that is not taken. What is in force stays; where nothing is, the last good one is asked for, and
// until that or another is there no pod is placed that asks for a GPU.
func (r *Rules) refuse(ctx context.Context, found change.Candidate) {
	r.mu.Lock()
	r.refusal, r.untold = found.Err, found.Err
	hash := r.hash
	r.mu.Unlock()
	r.shown.refused()
	if log := klog.FromContext(ctx); hash != "" {
		log.Error(found.Err, "The sharing config is not taken; what was read before stays in force", "sha256", found.Hash, "inForce", hash)
	} else {
		log.Error(found.Err, "The sharing config is not taken; until the last good one is found no pod is placed that asks for a GPU", "sha256", found.Hash)
	}
	r.tellOwned()
}

// mostNote is the most bytes of an event's text that the API server takes, with room for what is put around it.
const mostNote = 900

// tellRefusal writes the event of a document that was refused, once; not before the events of a scheduler that starts are
// heard, which is when its lists are read.
func (r *Rules) tellRefusal(event func(note string), started func() bool) {
	if event == nil || !started() {
		return
	}
	r.mu.Lock()
	untold, hash := r.untold, r.hash
	r.untold = nil
	r.mu.Unlock()
	if untold == nil {
		return
	}
	stays := "no earlier one is known, and pods that ask for a GPU wait"
	if hash != "" {
		stays = "the document with the sha256 " + hash + " stays in force"
	}
	event(fmt.Sprintf("kerf-scheduler does not take the sharing configuration: %s: %s", stays, shortened(oneLine(untold), mostNote-len(stays))))
}

// shortened leaves at most so many bytes.
func shortened(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "..."
}

// oneLine is all that is wrong, in one line.
func oneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }

// ErrNone is why nothing is placed while a scheduler knows no valid document.
var ErrNone = errors.New("kerf-scheduler knows no valid sharing configuration, and gives no GPU without one")

// Err is an error while there are to be rules and there are none.
func (r *Rules) Err() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.hash != "" || r.refusal == nil {
		return nil
	}
	return fmt.Errorf("%w: %s; mend it, as 'kerf config validate' says", ErrNone, shortened(oneLine(r.refusal), mostNote))
}

// tellOwned has what the leader writes looked at now. It does not wait.
func (r *Rules) tellOwned() {
	for _, due := range []chan struct{}{r.amountsDue, r.lastGoodDue} {
		select {
		case due <- struct{}{}:
		default:
		}
	}
}
