// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package machine_test

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// journal is the part of a GPU's journal that tells how far a change is.
type journal struct {
	Ending  bool  `json:"ending"`
	Turning *bool `json:"turning"`
	Change  *struct {
		Undo   bool `json:"undo"`
		Remake bool `json:"remake"`
		Doing  *struct {
			Op string `json:"op"`
		} `json:"doing"`
	} `json:"change"`
}

// journalOf reads a GPU's journal, empty where there is none. It asks no agent.
func (m *machine) journalOf(gpu int) journal {
	m.t.Helper()
	uuid := decode[[]struct {
		UUID string `json:"uuid"`
	}](m.t, m.gpusim("gpus", "-o", "json").out)[gpu].UUID
	data, err := os.ReadFile(filepath.Join(m.dir, "mig", uuid+".json"))
	if errors.Is(err, fs.ErrNotExist) {
		return journal{}
	}
	if err != nil {
		m.t.Fatal(err)
	}
	return decode[struct {
		Body journal `json:"body"`
	}](m.t, string(data)).Body
}

// step is where a change is by its journal, in a word or two.
func (j journal) step() string {
	switch c := j.Change; {
	case j.Turning != nil:
		return "mode by demand"
	case j.Ending:
		return "end of the mode"
	case c == nil:
		return "no change"
	case c.Undo:
		return "undo"
	case c.Remake:
		return "made again"
	case c.Doing == nil:
		return "intent"
	default:
		return c.Doing.Op
	}
}

// moment is one at which an agent was killed.
type moment struct {
	// at is the point that it came to, and whether the call or the write there was done.
	at string
	// step is where its journal had it.
	step string
}

// noteKill notes where an agent was killed that had passed a point so many times.
func (m *machine) noteKill(point string, passed int) {
	m.t.Helper()
	at := strings.TrimPrefix(point, "mig-") + ", before"
	if passed%2 == 1 {
		at = strings.TrimPrefix(point, "mig-") + ", after"
	}
	if m.moments == nil {
		m.moments = map[moment]int{}
	}
	m.moments[moment{at, m.journalOf(0).step()}]++
}

// met tells at which steps agents were killed, and how often; in the soak, which takes each moment, all of these must
// be among them, before and after.
func (m *machine) met(point string, all ...string) {
	m.t.Helper()
	var lines []string
	for _, k := range slices.SortedFunc(maps.Keys(m.moments),
		func(a, b moment) int { return strings.Compare(a.at+a.step, b.at+b.step) }) {
		lines = append(lines, fmt.Sprintf("%-16s %-20s %4d", k.at, k.step, m.moments[k]))
	}
	m.t.Logf("killed at the moments\n%s", strings.Join(lines, "\n"))
	if !soaking() {
		return
	}
	for _, step := range all {
		for _, when := range []string{"before", "after"} {
			if at := strings.TrimPrefix(point, "mig-") + ", " + when; m.moments[moment{at, step}] == 0 {
				m.t.Errorf("no agent was killed at %s %s", at, step)
			}
		}
	}
}
