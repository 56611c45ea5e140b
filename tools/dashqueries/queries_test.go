// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"slices"
	"testing"
)

func TestQueriesOf(t *testing.T) {
	const text = `{"title": "D", "templating": {"list": [{"name": "price", "current": {"value": "2.5"}}, {"name": "pod", "current": {"value": "$__all"}}, {"name": "node"}]},
		"panels": [{"title": "A", "targets": [{"expr": "sum(a{pod=~\"$pod\", node=~\"$node\"}) * $price"}, {"expr": "rate(b[$__range:1m])"}]}]}`
	got, err := queriesOf([]byte(text))
	want := []query{{"D: A", `sum(a{pod=~".*", node=~".*"}) * 2.5`}, {"D: A", "rate(b[1h:1m])"}}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%q, %v", got, err)
	}
	if rules := rulesOf(got).Groups[0].Rules; len(rules) != 2 || rules[1].Expr != want[1].expr ||
		rules[0].Labels["query"] == rules[1].Labels["query"] {
		t.Errorf("%+v", rules)
	}
	for name, text := range map[string]string{"no panels": `{"title": "D"}`,
		"an empty query": `{"panels": [{"targets": [{"expr": ""}]}]}`} {
		if _, err := queriesOf([]byte(text)); !errors.Is(err, errNone) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := queriesOf([]byte("{")); err == nil {
		t.Error("half a dashboard is one")
	}
}
