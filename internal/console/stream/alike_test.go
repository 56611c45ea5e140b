// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package stream

import (
	"maps"
	"reflect"
	"strconv"
	"testing"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/scheduler"
)

func identical(x, y any) bool { return reflect.ValueOf(x).Pointer() == reflect.ValueOf(y).Pointer() }

// Equal maps become one map, and different maps stay different. What is used stays remembered; other maps do not.
func TestAlikeMaps(t *testing.T) {
	var a alike
	labels := func() map[string]string { return map[string]string{"app": "train", "team": "nlp"} }
	first := a.one(labels())
	if second := a.one(labels()); !identical(first, second) || !maps.Equal(second, labels()) {
		t.Errorf("equal maps: %v, %v", first, second)
	}
	for _, other := range []map[string]string{{"app": "train"}, {"app": "train", "team": "nl"}, {`app"`: "train"},
		{"app": "train\" \"team", "nlp": ""}} {
		if got := a.one(maps.Clone(other)); !maps.Equal(got, other) {
			t.Errorf("%v became %v", other, got)
		}
	}
	if got := a.one(nil); got != nil {
		t.Errorf("nothing became %v", got)
	}
	for i := range 4 * mostAlike {
		a.one(map[string]string{"job": strconv.Itoa(i)})
		if i%mostAlike == 0 && !identical(first, a.one(labels())) {
			t.Fatalf("the map in use was forgotten after %d others", i)
		}
	}
	if n := len(a.maps.now) + len(a.maps.before); n > 2*mostAlike {
		t.Errorf("%d maps are remembered", n)
	}
}

// Equal requests share their memory, and stay those of their pods.
func TestAlikeRequests(t *testing.T) {
	var a alike
	want := func(namespace, name, container, gib string) scheduler.PodRequest {
		limits := map[string]string{sharing.ResourceMemory: gib}
		w, ok, err := scheduler.PodRequestOf(sharing.Pod{UID: name, Namespace: namespace, Name: name, Priority: 7,
			Containers: []sharing.PodContainer{{Name: container, Limits: limits}}})
		if !ok || err != nil {
			t.Fatal(ok, err)
		}
		w.CPU, w.Memory = 100, sharing.GiB
		return w
	}
	first := a.want(want("ns", "a", "main", "10"))
	for _, c := range []struct {
		namespace, container, gib string
		shared                    bool
	}{{"ns", "main", "10", true}, {"other", "main", "10", false}, {"ns", "side", "10", false},
		{"ns", "main", "20", false}} {
		before := want(c.namespace, "b", c.container, c.gib)
		after := a.want(before)
		if !reflect.DeepEqual(before, after) {
			t.Errorf("%+v: %+v became %+v", c, before, after)
		}
		if identical(after.Containers, first.Containers) != c.shared {
			t.Errorf("%+v: shared %t", c, !c.shared)
		}
	}
}
