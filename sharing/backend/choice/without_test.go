// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package choice

import (
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kerf-gpu/kerf/sharing"
)

func TestWithout(t *testing.T) {
	all := sharing.Backends()
	others := slices.DeleteFunc(slices.Clone(all), func(b sharing.Backend) bool { return b == sharing.BackendMPS })
	mps := []sharing.Backend{sharing.BackendMPS}
	pods := PodsByMPS("why")
	for name, tt := range map[string]struct {
		got  Without
		want []sharing.Backend
	}{
		"pods with MPS":     {PodsByMPS(""), nil},
		"pods without MPS":  {pods, mps},
		"one GPU":           {Without(nil).OnGPUs(1), nil},
		"two GPUs":          {Without(nil).OnGPUs(2), mps},
		"shared cap":        {Without(nil).Together(), []sharing.Backend{sharing.BackendDriver, sharing.BackendMPS}},
		"an empty GPU":      {pods.Alongside(false, false), mps},
		"a GPU with MPS":    {Without(nil).Alongside(true, false), others},
		"a GPU with shares": {Without(nil).Alongside(false, true), mps},
		"pods next to MPS":  {pods.Alongside(true, false), all},
	} {
		if d := cmp.Diff(tt.want, slices.Sorted(maps.Keys(tt.got))); d != "" {
			t.Errorf("%s (-want +got):\n%s", name, d)
		}
		for b, s := range tt.got {
			if s.OK() || s.Reason == "" {
				t.Errorf("%s: %s: %+v", name, b, s)
			}
		}
	}
	if len(pods) != 1 {
		t.Errorf("changed: %v", pods)
	}
}

func TestRecorded(t *testing.T) {
	for name, tt := range map[string]struct {
		level sharing.Level
		want  sharing.Backend
	}{
		"":         {sharing.LevelDriver, sharing.BackendDriver},
		"none":     {sharing.LevelDriver, sharing.BackendNone},
		"libkerf":  {sharing.LevelUnknown, sharing.BackendLibkerf},
		"reactive": {sharing.LevelNone, sharing.BackendReactive},
	} {
		if got, err := Recorded(name, tt.level); err != nil || got != tt.want {
			t.Errorf("%q: %v, %v; want %v", name, got, err, tt.want)
		}
	}
	if got, err := Recorded("", sharing.LevelReactive); err != nil || got != sharing.BackendReactive {
		t.Errorf("%v, %v", got, err)
	}
	if got, err := Recorded("other", sharing.LevelDriver); err == nil {
		t.Errorf("taken for %v", got)
	}
}
