// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestPartOfATrack(t *testing.T) {
	labels := map[string]string{"namespace": "a"}
	p, ok := Track{GPU: "g", Model: "m", Labels: labels, Points: []Point{
		{Share: 0.5, Granted: 100, Busy: 0.25, BusyKnown: true, Watts: 60, WattsKnown: true, Used: 40, UsedKnown: true},
		{Share: 0.5, Granted: 100, BusyKnown: true, Used: 50, UsedKnown: true},
		{},
		{Share: math.NaN()},
		{Share: 1, Granted: 400},
	}}.Part(time.Minute)
	want := Part{Labels: labels, Record: Record{
		GPU: "g", Model: "m", Share: 2.0 / 3, GrantedBytes: 200, Seconds: 180, Known: 120, Idle: 60, Busy: 15,
		Joules: 3600, Powered: 60,
		Memory: Histogram{40: 60, 50: 60}, Compute: Histogram{25: 60, 0: 60},
	}}
	if d := cmp.Diff(want, p); d != "" || !ok {
		t.Error(ok, d)
	}
	if _, ok := (Track{Points: []Point{{Busy: 1, BusyKnown: true}}}).Part(time.Minute); ok {
		t.Error("there is a part of nothing that was granted")
	}
}

// Labels of pods group like all else.
func TestGroupingByALabel(t *testing.T) {
	rows := Report([]Part{
		{Record{Share: 1, Seconds: 3600}, map[string]string{"label:team": "x"}},
		{Record{Share: 1, Seconds: 3600}, map[string]string{"label:team": "x"}},
		{Record{Share: 1, Seconds: 3600}, nil},
	}, []string{"label:team"}, func(string) (float64, bool) { return 0, false }, 0)
	if len(rows) != 2 || rows[0].Labels["label:team"] != "" || rows[1].Granted != 2 {
		t.Errorf("%+v", rows)
	}
	for by, ok := range map[string]bool{"label:team": true, "label:example.com/team": true, "label:": false,
		"labels": false, "label:a\"b": false} {
		if err := CheckKeys("--by", []string{by}); (err == nil) != ok {
			t.Errorf("%q: %v", by, err)
		}
	}
}
