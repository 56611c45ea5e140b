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
	"github.com/kerf-gpu/kerf/sharing/config"
)

const (
	driver   = config.BackendDriver
	libkerf  = config.BackendLibkerf
	reactive = config.BackendReactive
)

var (
	yes   = Support{Answer: Supported}
	no    = Support{Answer: NotSupported, Reason: "too old", Remedy: "update it"}
	maybe = Support{Reason: "no answer"}
)

func TestChoose(t *testing.T) {
	all := []config.Backend{driver, libkerf, reactive}
	for name, tt := range map[string]struct {
		list []config.Backend
		on   []On
		want Choice
	}{
		"the strongest":         {all, []On{{"0", Report{driver: yes, libkerf: yes, reactive: yes}}}, Choice{driver, sharing.LevelDriver, ""}},
		"the next":              {all, []On{{"0", Report{driver: no, libkerf: yes, reactive: yes}}}, Choice{libkerf, sharing.LevelClient, "driver: too old; update it"}},
		"told of what it is":    {all, []On{{"0", Report{driver: no, libkerf: {Supported, "new names", ""}}}}, Choice{libkerf, sharing.LevelClient, "driver: too old; update it; libkerf: new names"}},
		"only what is listed":   {all[:1], []On{{"0", Report{driver: no, libkerf: yes, reactive: yes}}}, Choice{config.BackendNone, sharing.LevelNone, "driver: too old; update it"}},
		"in the list's order":   {[]config.Backend{driver, reactive}, []On{{"0", Report{driver: no, libkerf: yes, reactive: yes}}}, Choice{reactive, sharing.LevelReactive, "driver: too old; update it"}},
		"not told, passed over": {all, []On{{"0", Report{driver: maybe, libkerf: no, reactive: yes}}}, Choice{reactive, sharing.LevelReactive, "driver: no answer; libkerf: too old; update it"}},
		"nothing, one not told": {all, []On{{"0", Report{driver: no, libkerf: maybe, reactive: no}}}, Choice{config.BackendNone, sharing.LevelUnknown, "driver: too old; update it; libkerf: no answer; reactive: too old; update it"}},
		"not of this agent":     {[]config.Backend{driver, libkerf}, []On{{"0", Report{driver: no}}}, Choice{config.BackendNone, sharing.LevelNone, "driver: too old; update it; libkerf: this agent does not have it"}},
		"common to all GPUs": {all, []On{{"0", Report{driver: yes, libkerf: yes, reactive: yes}}, {"3", Report{driver: no, libkerf: yes, reactive: yes}}},
			Choice{libkerf, sharing.LevelClient, "driver: GPU 3: too old; update it"}},
		"nothing common": {all, []On{{"0", Report{driver: yes, libkerf: no, reactive: no}}, {"1", Report{driver: no, libkerf: yes, reactive: maybe}}},
			Choice{config.BackendNone, sharing.LevelNone, "driver: GPU 1: too old; update it; libkerf: GPU 0: too old; update it; reactive: GPU 0: too old; update it"}},
	} {
		t.Run(name, func(t *testing.T) {
			if d := cmp.Diff(tt.want, Choose(tt.list, tt.on...)); d != "" {
				t.Error(d)
			}
		})
	}
}

// Against the definition: works everywhere, and nothing before it in the list does.
func TestChooseProperty(t *testing.T) {
	rnd := rand.New(rand.NewPCG(4, 6))
	for range 20000 {
		list := []config.Backend{driver}
		for _, b := range config.Backends()[1:] {
			if rnd.IntN(2) == 0 {
				list = append(list, b)
			}
		}
		var on []On
		for i := range 1 + rnd.IntN(3) {
			r := Report{}
			for _, b := range config.Backends() {
				if a := Answer(rnd.IntN(4)); a <= NotSupported {
					r[b] = Support{Answer: a, Reason: fmt.Sprint("r", b, i)}
				}
			}
			on = append(on, On{fmt.Sprint(i), r})
		}
		works := func(b config.Backend) bool {
			return !slices.ContainsFunc(on, func(o On) bool { return !o.Report.Of(b).OK() })
		}
		refuted := func(b config.Backend) bool {
			return slices.ContainsFunc(on, func(o On) bool { return o.Report.Of(b).Answer == NotSupported })
		}
		got := Choose(list, on...)
		i := slices.IndexFunc(list, works)
		want := Choice{Level: sharing.LevelNone}
		stronger := list
		if i >= 0 {
			want.Backend, want.Level, stronger = list[i], list[i].Level(), list[:i]
		} else if slices.ContainsFunc(list, func(b config.Backend) bool { return !refuted(b) }) {
			want.Level = sharing.LevelUnknown
		}
		if got.Backend != want.Backend || got.Level != want.Level {
			t.Fatalf("%v on %v: %+v, want %+v", list, on, got, want)
		}
		for _, b := range stronger {
			if !strings.Contains(got.Why, b.String()+": ") {
				t.Fatalf("%v on %v: %q does not tell of %v", list, on, got.Why, b)
			}
		}
	}
}
