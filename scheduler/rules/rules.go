// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package rules keeps the SharingConfig that the scheduler goes by, and the ConfigMaps that the leading scheduler
// writes of it.
//
// It promises that a config is applied whole or not at all, and that one with errors changes nothing.
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

// Sources say where the config is, and what is written of it. ConfigMaps are given as NAMESPACE/NAME; an empty string
// is none.
type Sources struct {
	// File has the config until ConfigMap was seen. ConfigMap is watched.
	File, ConfigMap string
	// ProfileAmounts gets the profiles' amounts, for the admission policies. LastGood keeps the last known good config.
	ProfileAmounts, LastGood string
}

// Rules are the applied ones. Make them with New.
type Rules struct {
	// apply hands a valid document to who decides by it.
	apply func(config.Config)
	shown configMetrics
	// A value comes to amountsDue and lastGoodDue when what the leader writes may be another.
	amountsDue, lastGoodDue chan struct{}
	running                 sync.WaitGroup

	// mu guards what follows.
	mu sync.Mutex
	// hash is that of the applied config, empty for none; files are its text and profiles its profiles.
	hash     string
	files    []config.File
	profiles []config.Profile
	// refusal is why the newest config was rejected, or that none is known yet; unreported is the part without an
	// event. Nil if none is required.
	refusal, unreported error
	// elected is true where schedulers elect the one that decides, and leader is how its lease names it.
	elected bool
	leader  string
}

// New returns rules without a config. register registers their metrics; nil registers none.
func New(apply func(config.Config), register Register) (*Rules, error) {
	r := &Rules{apply: apply, amountsDue: make(chan struct{}, 1), lastGoodDue: make(chan struct{}, 1)}
	if register == nil {
		return r, nil
	}
	var err error
	r.shown, err = newConfigMetrics(register)
	return r, err
}

// Wait waits until everything that Watch started has ended. End the context of Watch first.
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

// Leads reports whether the scheduler on this host decides. A scheduler that stands by writes nothing, so that one that
// is late does not take back what the leader wrote.
func (r *Rules) Leads(host string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return !r.elected || strings.HasPrefix(r.leader, host+"_") // what follows is chosen at random
}

// Read reads the agents' config from the file, applies it whole or not at all, and returns its hash. A scheduler that
// exits for a config with errors would leave its cluster without one. So it continues with the last known good
// config, or with none.
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

// take applies a valid config.
func (r *Rules) take(ctx context.Context, found change.Candidate) { r.put(ctx, found, false) }

// put applies a valid config; with first only if none is applied.
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
	log := klog.FromContext(ctx)
	log.Info("config applied", "sha256", found.Hash, "from", found.From)
	if outdated := config.Warning(found.Files...); outdated != "" {
		log.Info("read config of an old version", "from", found.From, "warning", outdated)
	}
}

// refuse notes a rejected config. The applied one stays. If none is applied, the last known good one is requested.
// Until one is applied, no pod that requests a GPU is placed.
func (r *Rules) refuse(ctx context.Context, found change.Candidate) {
	r.mu.Lock()
	r.refusal, r.unreported = found.Err, found.Err
	hash := r.hash
	r.mu.Unlock()
	r.shown.refused()
	if log := klog.FromContext(ctx); hash != "" {
		log.Error(found.Err, "config rejected, the previous one stays applied", "sha256",
			found.Hash, "applied", hash)
	} else {
		log.Error(found.Err,
			"config rejected and no last known good config found, pods with GPU requests are pending",
			"sha256", found.Hash)
	}
	r.tellOwned()
}

// mostNote is the most bytes of an event's text that the API server takes, with room for what is put around it.
const mostNote = 900

// tellRefusal writes the event of a rejected config, once. A starting scheduler waits until its events are heard, which
// is when its lists are read.
func (r *Rules) tellRefusal(event func(note string), started func() bool) {
	if event == nil || !started() {
		return
	}
	r.mu.Lock()
	unreported, hash := r.unreported, r.hash
	r.unreported = nil
	r.mu.Unlock()
	if unreported == nil {
		return
	}
	stays := "no earlier one is known, and pods that request a GPU wait"
	if hash != "" {
		stays = "the config with the sha256 " + hash + " stays applied"
	}
	event(fmt.Sprintf("kerf-scheduler does not take the sharing configuration: %s: %s", stays,
		shortened(oneLine(unreported), mostNote-len(stays))))
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
	return fmt.Errorf("%w: %s; fix it; see 'kerf config validate'", ErrNone,
		shortened(oneLine(r.refusal), mostNote))
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
