// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
)

// level is an enforcement level as kerf status shows it.
type level string

// The exit statuses of a gpuload that asked for too much.
const (
	refused = 9
	killed  = 128 + int(syscall.SIGKILL)
)

// levelOf is the weakest level that shares of the node's GPUs have.
func levelOf(s status) level {
	ranks := []string{"unknown", "none", "reactive", "userspace", "driver"}
	weakest := len(ranks) - 1
	for _, g := range s.GPUs {
		best := 0
		for _, l := range g.Levels {
			best = max(best, slices.Index(ranks, l))
		}
		weakest = min(weakest, best)
	}
	return level(ranks[weakest])
}

// enforced reports whether something enforces a share of this level.
func (l level) enforced() bool { return l == "reactive" || l.rejects() }

// rejects reports whether memory above the cap is rejected, and not only noticed.
func (l level) rejects() bool { return l == "userspace" || l == "driver" }

// means is what happens above the cap.
func (l level) means() string {
	switch l {
	case "driver":
		return "the driver rejects memory above the cap"
	case "userspace":
		return "libkerf rejects memory above the cap"
	case "reactive":
		return "Kerf kills programs above their cap"
	}
	return "nothing enforces them"
}

func (l level) fate() string {
	if l.rejects() {
		return "rejected"
	}
	return "killed"
}

// status is how a gpuload ends that asked for too much.
func (l level) status() int {
	if l.rejects() {
		return refused
	}
	return killed
}

// patience is how long a gpuload that asked for too much stays: what only notices it needs a moment.
func (l level) patience() string {
	if l.rejects() {
		return "0s"
	}
	return "1m"
}

// granted is what kerf run says of a load's grant.
type granted struct {
	Name, Level string
	Reason      string `json:"levelReason"`
}

// granted reads it. What cannot be read has no level.
func (l *load) granted() granted {
	g := granted{Name: l.name}
	data, err := os.ReadFile(l.file)
	if err == nil {
		err = json.Unmarshal(data, &g)
	}
	if err != nil {
		return granted{Name: l.name, Reason: err.Error()}
	}
	return g
}

// judge is the result of something shown with shares, on a node that enforces them at a level.
func judge(what string, node level, shares []granted, problems []string) result {
	var bare []string
	for _, g := range shares {
		switch is := level(g.Level); {
		case !is.enforced():
			bare = append(bare, fmt.Sprintf("%s has level %q (%s)", g.Name, is, g.Reason))
		case is != node:
			problems = append(problems, fmt.Sprintf("%s has level %s, and shares here have level %s", g.Name, is, node))
		}
	}
	switch {
	case len(bare) > 0:
		return result{what: what, word: wordUnenforced, why: strings.Join(append(bare, problems...), "; ")}
	case len(problems) > 0:
		return result{what: what, word: wordNotOK, why: strings.Join(problems, "; ")}
	}
	return result{what: what, word: wordOK, level: node}
}
