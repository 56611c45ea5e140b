// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The node's level is the weakest of its GPUs', each of which counts by the strongest that a share can have there.
func TestLevelOf(t *testing.T) {
	for levels, want := range map[string]level{
		`["exclusive","driver"]`: "driver", `["exclusive","userspace"]`: "userspace", `["exclusive","none"]`: "none",
		`["exclusive","unknown"]`: "unknown", `["exclusive"]`: "unknown",
	} {
		var s status
		if err := json.Unmarshal([]byte(`{"gpus":[{"levels":["exclusive","driver"]},{"levels":`+levels+`}]}`),
			&s); err != nil {
			t.Fatal(err)
		}
		if got := levelOf(s); got != want {
			t.Errorf("%s: %s, want %s", levels, got, want)
		}
	}
}

// Nothing is ok of a share that is not enforced, whatever else was seen.
func TestJudge(t *testing.T) {
	held, bare, lost := granted{"a", "userspace", ""}, granted{"b", "none", "driver: too old"},
		granted{Name: "c", Reason: "no such file"}
	for name, tt := range map[string]struct {
		node     level
		shares   []granted
		problems []string
		word     string
		why      string
	}{
		"enforced":         {"userspace", []granted{held, held}, nil, wordOK, ""},
		"not enforced":     {"none", []granted{bare}, nil, wordUnenforced, `b has level "none" (driver: too old)`},
		"one is not":       {"userspace", []granted{held, bare}, nil, wordUnenforced, "b has level"},
		"one is not known": {"userspace", []granted{held, lost}, nil, wordUnenforced, `c has level "" (no such file)`},
		"and a problem": {"userspace", []granted{bare}, []string{"it was not rejected"}, wordUnenforced,
			"it was not rejected"},
		"weaker than others": {"driver", []granted{held}, nil, wordNotOK,
			"a has level userspace, and shares here have level driver"},
		"a problem": {"userspace", []granted{held}, []string{"it was not rejected"}, wordNotOK, "it was not rejected"},
	} {
		r := judge("shown", tt.node, tt.shares, tt.problems)
		if r.word != tt.word || (r.why == "") != (tt.why == "") || !strings.Contains(r.why, tt.why) ||
			(r.level != "") != (r.word == wordOK) {
			t.Errorf("%s: %+v, want %s", name, r, tt.word)
		}
		s := &show{results: []result{{what: "before", word: wordOK}, r}}
		if s.sum() != (tt.word == wordOK) {
			t.Errorf("%s: the demo ends with the wrong status", name)
		}
	}
}

// A load's level is what kerf run wrote, and none where that is not there.
func TestGranted(t *testing.T) {
	l := &load{name: "a", file: filepath.Join(t.TempDir(), "a.json")}
	if g := l.granted(); g.Level != "" || g.Reason == "" || level(g.Level).enforced() {
		t.Errorf("without a file: %+v", g)
	}
	if err := os.WriteFile(l.file, []byte(`{"name":"a","level":"reactive","levelReason":"driver: old"}`),
		0o600); err != nil {
		t.Fatal(err)
	}
	if g := l.granted(); g != (granted{"a", "reactive", "driver: old"}) {
		t.Errorf("%+v", g)
	}
}
