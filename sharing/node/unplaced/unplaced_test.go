// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package unplaced

import (
	"errors"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/allocator"
)

func ref(pod string) sharing.ContainerRef {
	return sharing.ContainerRef{PodUID: "uid-" + pod, Namespace: "ns", Pod: pod, Container: "main"}
}

// A pod is listed from its first rejection for lack of capacity until it is placed or gone. Its wait begins with its
// first attempt.
func TestNote(t *testing.T) {
	full, fuller := &allocator.NoFit{Summary: "full"}, &allocator.NoFit{Summary: "fuller"}
	other := errors.New("no driver")
	start := time.Unix(1e9, 0)
	var p Pods
	for i, s := range []struct {
		pod  string
		err  error
		gone bool
		news bool
		why  error
		list []string
	}{
		{pod: "b", err: other, why: other},
		{pod: "b", err: full, news: true, why: full, list: []string{"b"}},
		{pod: "b", err: full, why: full, list: []string{"b"}},
		{pod: "b", err: other, why: other, list: []string{"b"}},
		{pod: "a", err: full, news: true, why: full, list: []string{"a", "b"}},
		{pod: "b", err: fuller, news: true, why: fuller, list: []string{"a", "b"}},
		{pod: "b", news: true, why: fuller, list: []string{"a"}},
		{pod: "b", list: []string{"a"}},
		{pod: "a", gone: true, news: true},
		{pod: "a", gone: true},
	} {
		if s.gone {
			if news := p.Forget(ref(s.pod).PodUID); news != s.news {
				t.Errorf("step %d: news %t", i, news)
			}
		} else {
			w, news := p.Record(ref(s.pod), start.Add(time.Duration(i)*time.Second), s.err)
			if news != s.news || !errors.Is(w.Err, s.why) || s.why == nil && w.Err != nil {
				t.Errorf("step %d: news %t, %v", i, news, w.Err)
			}
			if first := start; s.pod == "b" && i < 7 && !w.Since.Equal(first) {
				t.Errorf("step %d: waits since %s", i, w.Since)
			}
		}
		var list []string
		for _, one := range p.List() {
			list = append(list, one.Ref.Pod)
		}
		if !slices.Equal(list, s.list) {
			t.Errorf("step %d: %q, want %q", i, list, s.list)
		}
	}
}

// The list is bounded, and a pod that is on it stays.
func TestBound(t *testing.T) {
	var p Pods
	for i := range most + 3 {
		p.Record(ref(strconv.Itoa(i)), time.Time{}, &allocator.NoFit{Summary: "full"})
	}
	if _, news := p.Record(ref("0"), time.Time{}, &allocator.NoFit{Summary: "fuller"}); len(p.List()) != most || !news {
		t.Errorf("%d pods, news %t", len(p.List()), news)
	}
}
