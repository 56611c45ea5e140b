// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"errors"
	"testing"

	"github.com/kerf-gpu/kerf/sharing"
)

func part(namespace, model string, r Record) Part {
	r.Model = model
	return Part{Record: r, Labels: map[string]string{"namespace": namespace, "model": model}}
}

func TestReport(t *testing.T) {
	const hour = 3600
	price := func(model string) (float64, bool) { return 4, model == "H100" }
	parts := []Part{
		part("b", "H100", Record{Share: 0.5, Seconds: 2 * hour, Known: 2 * hour, Busy: 0.25 * hour, Idle: hour,
			Joules: 3.6e6, Powered: 2 * hour, Memory: Histogram{20: 7200}, Compute: Histogram{0: 3600, 25: 3600}}),
		part("b", "H100", Record{Share: 0.5, Seconds: 2 * hour, Known: hour, Busy: 0, Idle: hour,
			Memory: Histogram{10: 3600}, Compute: Histogram{0: 3600}}),
		part("a", "T4", Record{Share: 1, Seconds: hour}),
		part("b", "H100", Record{Share: 0.25, Seconds: hour, Known: hour, Busy: 0.5 * hour}), // used twice its share
	}
	rows := Report(parts, []string{"namespace"}, price, 0.5)
	if len(rows) != 2 || rows[0].Labels["namespace"] != "a" {
		t.Fatalf("%+v", rows)
	}
	a, b := rows[0], rows[1]
	if a.Granted != 1 || a.Unknown != 1 || a.Used != 0 || a.Wasted != 0 || a.Cost != nil || a.KWh != nil ||
		a.MemoryP99 != nil || a.Enough != nil {
		t.Errorf("of whom nothing is known: %+v", a)
	}
	if !near(b.Granted, 2.25) || !near(b.Used, 0.75) || !near(b.Unknown, 0.5) || !near(b.Idle, 1) ||
		!near(b.Wasted, 1.25) {
		t.Errorf("hours: %+v", b)
	}
	if b.KWh == nil || !near(*b.KWh, 1) || b.Cost == nil || !near(*b.Cost, 2.25*4+0.5) {
		t.Errorf("energy %v, cost %v", b.KWh, b.Cost)
	}
	if *b.MemoryP99 != 20 || *b.ComputeP99 != 50 || *b.Enough != 56 || !near(*b.SavedHours, 2.25*0.44) ||
		!near(*b.SavedMoney, 9*0.44) {
		t.Errorf("right size: %d %d %d %f %f", *b.MemoryP99, *b.ComputeP99, *b.Enough, *b.SavedHours, *b.SavedMoney)
	}
	if all := Report(parts, nil, price, 0); len(all) != 1 || !near(all[0].Granted, a.Granted+b.Granted) ||
		all[0].Cost != nil {
		t.Errorf("all: %+v", all)
	}
}

func TestABusyGrantHasNothingToSpare(t *testing.T) {
	r := Report([]Part{part("a", "m", Record{Share: 0.5, Seconds: 10, Known: 10, Busy: 5, Memory: Histogram{5: 10},
		Compute: Histogram{50: 10}})}, nil, func(string) (float64, bool) { return 0, false }, 0)[0]
	if *r.ComputeP99 != 100 || r.Enough != nil || r.SavedHours != nil {
		t.Errorf("%+v", r)
	}
}

func TestCheckKeys(t *testing.T) {
	for _, by := range [][]string{{"colour"}, {"pod", "pod"}} {
		if err := CheckKeys("--by", by); !errors.Is(err, sharing.ErrInvalid) {
			t.Errorf("%v: %v", by, err)
		}
	}
	if err := CheckKeys("--by", Keys()); err != nil {
		t.Error(err)
	}
}
