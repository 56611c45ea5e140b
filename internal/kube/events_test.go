// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/test/eventually"
)

func (a *api) sent() []corev1.Event {
	a.mu.Lock()
	defer a.mu.Unlock()
	var out []corev1.Event
	for _, e := range a.events {
		out = append(out, *e)
	}
	return out
}

func TestEventIsSent(t *testing.T) {
	ref := sharing.ContainerRef{PodUID: uid(1), Namespace: "team", Pod: "p", Container: "main"}
	inPod := ref
	inPod.Container = ""
	for name, tc := range map[string]struct {
		ref                    sharing.ContainerRef
		warning                bool
		kind, object, path, in string
	}{
		"container": {ref, true, "Warning", "Pod", "spec.containers{main}", "team"},
		"pod":       {inPod, false, "Normal", "Pod", "", "team"},
		"node":      {sharing.ContainerRef{}, true, "Warning", "Node", "", "default"},
	} {
		t.Run(name, func(t *testing.T) {
			a := newAPI(t)
			c := a.client(t, true)
			c.Event(context.Background(), tc.ref, "NoRoom", "not enough free for 100GiB", tc.warning)
			eventually.True(t, "the event arrives", func() bool { return len(a.sent()) == 1 })
			e := a.sent()[0]
			o := e.InvolvedObject
			if e.Type != tc.kind || o.Kind != tc.object || o.FieldPath != tc.path || e.Namespace != tc.in ||
				e.Reason != "NoRoom" || e.Message != "Not enough free for 100GiB." {
				t.Errorf("event %+v", e)
			}
			if e.Source.Component != component || e.Source.Host != node || tc.ref.Pod != "" &&
				string(o.UID) != tc.ref.PodUID {
				t.Errorf("event of %+v about %+v", e.Source, o)
			}
		})
	}
}

func TestEventsThatRepeatAreCounted(t *testing.T) {
	a := newAPI(t)
	c := a.client(t, true)
	ref := sharing.ContainerRef{PodUID: uid(1), Namespace: "team", Pod: "p"}
	for range 4 {
		c.Event(context.Background(), ref, "NoRoom", "not enough free", true)
	}
	eventually.True(t, "all are counted", func() bool { s := a.sent(); return len(s) == 1 && s[0].Count == 4 })
	// Many different messages about one pod end in one event, and only a few are sent.
	for i := range 100 {
		c.Event(context.Background(), ref, "Odd", fmt.Sprintf("line %d", i), true)
	}
	eventually.True(t, "the queue is empty", func() bool { return len(c.events.queue) == 0 })
	c.Event(context.Background(), sharing.ContainerRef{}, "Last", "the last", false)
	eventually.True(t, "the last arrives", func() bool {
		for _, e := range a.sent() {
			if e.Reason == "Last" {
				return true
			}
		}
		return false
	})
	if n := len(a.sent()); n > 15 {
		t.Errorf("%d events for one pod", n)
	}
}

func TestEventsWaitForTheAPIServer(t *testing.T) {
	a := newAPI(t)
	a.away(fails)
	c := a.client(t, false)
	const room = 8
	c.events.queue = make(chan *corev1.Event, room)
	a.run(t, c)
	ref := func(i int) sharing.ContainerRef {
		return sharing.ContainerRef{PodUID: uid(i), Namespace: "team", Pod: fmt.Sprintf("p%d", i)}
	}
	for i := range room * 2 { // more than fit: none may wait
		c.Event(context.Background(), ref(i), "NoRoom", "not enough free", true)
	}
	a.away(nil)
	eventually.True(t, "those that had room arrive", func() bool { return len(a.sent()) >= room })
}

func TestRefusedEventsDoNotHoldUpOthers(t *testing.T) {
	a := newAPI(t)
	a.away(proxied)
	c := a.client(t, true)
	c.Event(context.Background(), sharing.ContainerRef{Namespace: "team", Pod: "p", PodUID: uid(1)}, "NoRoom",
		"not enough free", true)
	eventually.True(t, "it is refused", func() bool { return len(c.events.queue) == 0 })
	a.away(nil)
	c.Event(context.Background(), sharing.ContainerRef{}, "Last", "the last", false)
	eventually.True(t, "the next arrives", func() bool { return len(a.sent()) > 0 })
}

func TestTidy(t *testing.T) {
	for name, tc := range map[string]struct{ in, want string }{
		"short":         {"not enough free", "not enough free"},
		"as long":       {strings.Repeat("x", maxMessage), strings.Repeat("x", maxMessage)},
		"longer":        {strings.Repeat("x", maxMessage+1), strings.Repeat("x", maxMessage-3) + "..."},
		"cut at a rune": {strings.Repeat("ü", maxMessage), strings.Repeat("ü", (maxMessage-3)/2) + "..."},
		"not UTF-8":     {"a\xffb", "a\uFFFDb"},
	} {
		if got := tidy(tc.in); got != tc.want || len(got) > maxMessage || !utf8.ValidString(got) {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}

func TestSentence(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"": "", "the node terminates": "The node terminates.", "GPU 0 is lost.": "GPU 0 is lost.",
		" ünder way\n": "Ünder way.", "Kerf tries again: no memory": "Kerf tries again: no memory.",
	} {
		if got := sentence(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}
