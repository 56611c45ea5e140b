// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package whatif

import (
	"errors"
	"strings"

	"github.com/kerf-gpu/kerf/sharing/config"
)

// Checked is what is said of a config.
type Checked struct {
	Valid  bool      `json:"valid"`
	Errors []Problem `json:"errors"`
	// Plan is what the config would change; nil if it is not valid, or the viewer may not see all pods.
	Plan any `json:"plan,omitempty"`
}

// Problem is one error of a config. Line is from 1; 0 means the whole text.
type Problem struct {
	Line    int    `json:"line"`
	Path    string `json:"path"`
	Problem string `json:"problem"`
	Remedy  string `json:"remedy,omitempty"`
}

// Check is the answer for the error of a config; nil is none.
func Check(err error) Checked {
	out := Checked{Valid: err == nil, Errors: []Problem{}}
	var all config.Errors
	switch {
	case errors.As(err, &all):
		for _, e := range all {
			out.Errors = append(out.Errors, Problem{Line: e.Line, Path: e.What.Field, Problem: e.What.Error(),
				Remedy: e.What.Remedy})
		}
	case err != nil:
		out.Errors = append(out.Errors, Problem{Problem: err.Error()})
	}
	return out
}

// Without is the answer without the namespaces that its viewer may not see. Types of pods begin with moved or pending,
// and the namespace. Notes can name pods, and are left out.
func (a Answer) Without(sees func(namespace string) bool) Answer {
	kept := a.Pods[:0:0]
	for _, p := range a.Pods {
		for _, word := range []string{"moved: ", "pending: "} {
			if rest, ok := strings.CutPrefix(p.Type, word); ok {
				if namespace, _, _ := strings.Cut(rest, "/"); !sees(namespace) {
					p.Type = word + "pods of other namespaces"
				}
			}
		}
		kept = append(kept, p)
	}
	a.Pods, a.Notes = kept, nil
	return a
}
