// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kerf-gpu/kerf/sharing"
)

func TestContextSize(t *testing.T) {
	type note struct {
		readings []sharing.Bytes
		least    sharing.Bytes
		want     sharing.Bytes
	}
	many := note{readings: []sharing.Bytes{7, 7, 7, 7, 7, 7, 7, 7, 7, 7}, want: 7}
	for name, notes := range map[string][]note{
		"nothing":                         {{want: 0}},
		"a guess, the least":              {{least: 50, want: 50}, {least: 80, want: 50}, {least: 20, want: 20}},
		"a reading is better":             {{least: 20, want: 20}, {readings: []sharing.Bytes{60}, want: 60}, {least: 10, want: 60}},
		"one too small does not stay":     {{readings: []sharing.Bytes{5}, want: 5}, {readings: []sharing.Bytes{60, 60}, want: 60}},
		"nor one too large":               {{readings: []sharing.Bytes{900}, want: 900}, {readings: []sharing.Bytes{60}, want: 60}},
		"what was long ago is forgotten":  {{readings: []sharing.Bytes{1, 2, 3}, want: 2}, many},
		"none is so large":                {{readings: []sharing.Bytes{MostContext + 1}, want: MostContext}},
		"nor is the least":                {{least: MostContext + 1, want: MostContext}},
		"a reading of nothing at the end": {{readings: []sharing.Bytes{60}, want: 60}, {want: 60}},
	} {
		t.Run(name, func(t *testing.T) {
			var c ContextSize
			for i, n := range notes {
				if c.Note(n.readings, n.least); c.Bytes() != n.want {
					t.Errorf("note %d: %d, want %d", i, c.Bytes(), n.want)
				}
			}
		})
	}
}

// Only a process that has made one context, for which it put aside what was asked for, tells the size of one.
func TestReadingsOfContexts(t *testing.T) {
	count := func(waiting sharing.Bytes) Count {
		c := quiet(1, 100)
		c.Waiting = map[sharing.GPUID]sharing.Bytes{gpu: waiting}
		return c
	}
	for name, tt := range map[string]struct {
		waiting, context sharing.Bytes
		want             []sharing.Bytes
	}{
		"one": {30, 30, []sharing.Bytes{35}}, "two": {60, 30, nil}, "none": {0, 30, nil}, "when it was unknown": {0, 0, nil},
		"the first of all": {90, 0, []sharing.Bytes{35}},
	} {
		t.Run(name, func(t *testing.T) {
			l := one(count(tt.waiting), count(tt.waiting), 100-tt.waiting+35)
			l.Context = map[sharing.GPUID]sharing.Bytes{gpu: tt.context}
			var a Account
			if d := cmp.Diff(tt.want, a.Step(l).Contexts[gpu]); d != "" {
				t.Error(d)
			}
		})
	}
}
