// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package change

import (
	"time"

	"github.com/kerf-gpu/kerf/sharing/config"
)

// Candidate is a config as it was found somewhere, valid or not.
type Candidate struct {
	// From says where, for people; Hash is config.Hash of Files.
	From, Hash string
	Files      []config.File
	// Config and Pool are set where Err is nil.
	Config config.Config
	Pool   config.Pool
	Err    error
}

// Settling waits for configs that follow each other quickly to come to an end. It has no clock. The zero value waits
// for nothing; set StableFor and MaxWait.
type Settling struct {
	// StableFor is how long nothing new must have come, and MaxWait how long is waited in all.
	StableFor, MaxWait time.Duration

	hash        string
	first, last time.Time
	good, bad   *Candidate
}

// Seen takes a config as known: the next one of the same hash is no news.
func (s *Settling) Seen(hash string) { s.hash = hash }

// Add takes in what was found. What it was already is no news.
func (s *Settling) Add(now time.Time, c Candidate) {
	if c.Hash == s.hash {
		return
	}
	s.hash, s.last = c.Hash, now
	if s.first.IsZero() {
		s.first = now
	}
	if c.Err == nil {
		s.good, s.bad = &c, nil
		return
	}
	s.bad = &c
}

// Due returns the last valid document and, if it came after that, the last one that is not, once it is time; nil for
// none. Else wait says how long it is until then, 0 where nothing is waited for.
func (s *Settling) Due(now time.Time) (good, bad *Candidate, wait time.Duration) {
	if s.first.IsZero() {
		return nil, nil, 0
	}
	at := s.last.Add(s.StableFor)
	if latest := s.first.Add(s.MaxWait); latest.Before(at) {
		at = latest
	}
	if now.Before(at) {
		return nil, nil, at.Sub(now)
	}
	good, bad = s.good, s.bad
	s.good, s.bad, s.first, s.last = nil, nil, time.Time{}, time.Time{}
	return good, bad, 0
}
