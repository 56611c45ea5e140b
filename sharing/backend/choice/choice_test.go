// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package choice

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kerf-gpu/kerf/sharing"
)

const (
	driver   = sharing.BackendDriver
	mps      = sharing.BackendMPS
	libkerf  = sharing.BackendLibkerf
	reactive = sharing.BackendReactive
)

var (
	yes   = Support{Answer: Supported}
	no    = Support{Answer: NotSupported, Reason: "too old", Remedy: "update it"}
	maybe = Support{Reason: "no answer"}
)

func TestChoose(t *testing.T) {
	all := []sharing.Backend{driver, libkerf, reactive}
	type gpu struct {
		name   string
		report Report
	}
	for name, tt := range map[string]struct {
		list []sharing.Backend
		on   []gpu
		want Choice
	}{
		"the strongest": {all, []gpu{{"0", Report{driver: yes, libkerf: yes, reactive: yes}}},
			Choice{driver, sharing.LevelDriver, ""}},
		"the next": {all, []gpu{{"0", Report{driver: no, libkerf: yes, reactive: yes}}},
			Choice{libkerf, sharing.LevelUserspace, "driver: too old; update it"}},
		"informed of what it is": {all, []gpu{{"0", Report{driver: no, libkerf: {Supported, "new names", ""}}}},
			Choice{libkerf, sharing.LevelUserspace, "driver: too old; update it; libkerf: new names"}},
		"only what is listed": {all[:1], []gpu{{"0", Report{driver: no, libkerf: yes, reactive: yes}}},
			Choice{sharing.BackendNone, sharing.LevelNone, "driver: too old; update it; mps: not listed in backends; " +
				"libkerf: not listed in backends; reactive: not listed in backends"}},
		"in the list's order": {[]sharing.Backend{driver, reactive},
			[]gpu{{"0", Report{driver: no, libkerf: yes, reactive: yes}}},
			Choice{reactive, sharing.LevelReactive, "driver: too old; update it"}},
		"unknown, passed over": {all, []gpu{{"0", Report{driver: maybe, libkerf: no, reactive: yes}}},
			Choice{reactive, sharing.LevelReactive, "driver: no answer; libkerf: too old; update it"}},
		"nothing, one unknown": {all, []gpu{{"0", Report{driver: no, libkerf: maybe, reactive: no}}},
			Choice{sharing.BackendNone, sharing.LevelUnknown,
				"driver: too old; update it; libkerf: no answer; reactive: too old; update it; mps: not listed in " +
					"backends"}},
		"not of this agent": {[]sharing.Backend{driver, libkerf}, []gpu{{"0", Report{driver: no}}},
			Choice{sharing.BackendNone, sharing.LevelNone, "driver: too old; update it; libkerf: this agent does not " +
				"have it; mps: not listed in backends; reactive: not listed in backends"}},
		"common to all GPUs": {all, []gpu{{"0", Report{driver: yes, libkerf: yes, reactive: yes}},
			{"3", Report{driver: no, libkerf: yes, reactive: yes}}},
			Choice{libkerf, sharing.LevelUserspace, "driver: GPU 3: too old; update it"}},
		"nothing common": {all, []gpu{{"0", Report{driver: yes, libkerf: no, reactive: no}},
			{"1", Report{driver: no, libkerf: yes, reactive: maybe}}},
			Choice{sharing.BackendNone, sharing.LevelNone, "driver: GPU 1: too old; update it; libkerf: GPU 0: too " +
				"old; update it; reactive: GPU 0: too old; update it; mps: not listed in backends"}},
	} {
		t.Run(name, func(t *testing.T) {
			var on []On
			for _, g := range tt.on {
				on = append(on, On{g.name, tt.list, g.report})
			}
			if d := cmp.Diff(tt.want, Choose(on...)); d != "" {
				t.Error(d)
			}
		})
	}
}

// Each GPU may have a separate list: the backend of a grant over several GPUs is in all of them.
func TestChooseOfSeveralLists(t *testing.T) {
	works := Report{driver: yes, mps: yes, libkerf: yes, reactive: yes}
	old := Report{driver: no, mps: yes, libkerf: yes, reactive: yes}
	unlisted := func(gpu string) string { return "GPU " + gpu + ": its list of backends does not have it" }
	for name, tt := range map[string]struct {
		on   []On
		want Choice
	}{
		"what both list": {
			[]On{{"0", []sharing.Backend{driver, libkerf, reactive}, old}, {"1", []sharing.Backend{driver, reactive},
				works}},
			Choice{reactive, sharing.LevelReactive, "driver: GPU 0: too old; update it; libkerf: " + unlisted("1")},
		},
		"what the first does not list": {
			[]On{{"0", []sharing.Backend{driver, reactive}, old}, {"1", []sharing.Backend{driver, libkerf, reactive},
				works}},
			Choice{reactive, sharing.LevelReactive, "driver: GPU 0: too old; update it; libkerf: " + unlisted("0")},
		},
		"nothing in common": {
			[]On{{"0", []sharing.Backend{driver, mps}, old}, {"1", []sharing.Backend{driver, libkerf}, old}},
			Choice{sharing.BackendNone, sharing.LevelNone, "driver: GPU 0: too old; update it; mps: " + unlisted("1") +
				"; libkerf: " + unlisted("0") + "; reactive: not listed in backends"},
		},
		"unknown of one, and not listed of the other": {
			[]On{{"0", []sharing.Backend{driver}, Report{driver: no}}, {"1", []sharing.Backend{driver, libkerf},
				Report{driver: no, libkerf: maybe}}},
			Choice{sharing.BackendNone, sharing.LevelNone, "driver: GPU 0: too old; update it; libkerf: " +
				unlisted("0") + "; mps: not listed in backends; reactive: not listed in backends"},
		},
		"of equals, the first GPU's order": {
			[]On{{"0", []sharing.Backend{driver, libkerf, mps}, old}, {"1", []sharing.Backend{driver, mps, libkerf},
				old}},
			Choice{libkerf, sharing.LevelUserspace, "driver: GPU 0: too old; update it"},
		},
		"no GPU": {nil, Choice{Level: sharing.LevelNone}},
	} {
		t.Run(name, func(t *testing.T) {
			if d := cmp.Diff(tt.want, Choose(tt.on...)); d != "" {
				t.Error(d)
			}
		})
	}
}

// Against the definition: listed and working everywhere, and nothing stronger is.
func TestChooseProperty(t *testing.T) {
	rnd := rand.New(rand.NewPCG(4, 6))
	for range 20000 {
		var on []On
		var stronger []sharing.Backend // of what any of them lists, strongest first
		for i := range 1 + rnd.IntN(3) {
			o := On{GPU: fmt.Sprint(i), List: []sharing.Backend{driver}, Report: Report{}}
			for _, b := range sharing.Backends()[1:] {
				if rnd.IntN(2) == 0 {
					o.List = append(o.List, b)
				}
			}
			for _, b := range sharing.Backends() {
				if a := Answer(rnd.IntN(4)); a <= NotSupported {
					o.Report[b] = Support{Answer: a, Reason: fmt.Sprint("r", b, i)}
				}
			}
			on = append(on, o)
		}
		for _, b := range sharing.Backends() {
			if slices.ContainsFunc(on, func(o On) bool { return slices.Contains(o.List, b) }) {
				stronger = append(stronger, b)
			}
		}
		works := func(b sharing.Backend) bool {
			return !slices.ContainsFunc(on, func(o On) bool {
				return !slices.Contains(o.List, b) ||
					!o.Report.Of(b).OK()
			})
		}
		refuted := func(b sharing.Backend) bool {
			return slices.ContainsFunc(on, func(o On) bool {
				return !slices.Contains(o.List, b) ||
					o.Report.Of(b).Answer == NotSupported
			})
		}
		got := Choose(on...)
		want := Choice{Level: sharing.LevelNone}
		if i := slices.IndexFunc(stronger, works); i >= 0 {
			want.Backend, want.Level, stronger = stronger[i], stronger[i].Level(), stronger[:i]
		} else if slices.ContainsFunc(stronger, func(b sharing.Backend) bool { return !refuted(b) }) {
			want.Level = sharing.LevelUnknown
		}
		if got.Backend != want.Backend || got.Level != want.Level {
			t.Fatalf("%v: %+v, want %+v", on, got, want)
		}
		for _, b := range stronger {
			if b.Level() != want.Level && !strings.Contains(got.Reason, b.String()+": ") {
				t.Fatalf("%v: %q does not tell of %v", on, got.Reason, b)
			}
		}
	}
}
