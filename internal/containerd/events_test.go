// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package containerd

import (
	"context"
	"errors"
	"testing"

	apievents "github.com/containerd/containerd/api/events"
	apitypes "github.com/containerd/containerd/api/types"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/kerf-gpu/kerf/sharing"
)

// follow starts Events and returns what it tells, and how to end it.
func follow(t *testing.T, c *Client) (<-chan Event, func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	out, done := make(chan Event, 64), make(chan error, 1)
	go func() { done <- c.Events(ctx, func(e Event) { out <- e }) }()
	return out, func() error { cancel(); return <-done }
}

func TestEvents(t *testing.T) {
	f := &fake{}
	c, path := open(t, f)
	events, stop := follow(t, c)
	if e := <-events; e.Kind != EventConnected {
		t.Fatalf("first %+v", e)
	}
	for _, e := range []*apitypes.Envelope{
		// an exec's end
		envelope(t, NamespaceKubernetes, topicExit, &apievents.TaskExit{ContainerID: "a", ID: "exec-1"}),
		envelope(t, NamespaceKubernetes, topicTaskGone, &apievents.TaskDelete{ContainerID: "a", ID: "exec-1"}),
		envelope(t, NamespaceKerf, topicHello, &apievents.NamespaceUpdate{Name: "of another client"}),
		envelope(t, NamespaceKerf, topicExit, &apievents.ContainerDelete{ID: "x"}), // another type
		{Topic: topicExit, Event: &anypb.Any{TypeUrl: "containerd.events.TaskExit", Value: []byte{0xff}}},
		{Topic: topicExit}, {Topic: "/other"},
		envelope(t, NamespaceKubernetes, topicExit, &apievents.TaskExit{ContainerID: "a", ID: "a"}),
		envelope(t, NamespaceKubernetes, topicTaskGone, &apievents.TaskDelete{ContainerID: "a"}),
		envelope(t, NamespaceKerf, topicContainer, &apievents.ContainerDelete{ID: "b"}),
	} {
		f.send(e)
	}
	for _, want := range []Event{
		{EventExit, NamespaceKubernetes, "a"}, {EventTaskDeleted, NamespaceKubernetes, "a"},
		{EventContainerDeleted, NamespaceKerf, "b"},
	} {
		if got := <-events; got != want {
			t.Errorf("got %+v, want %+v", got, want)
		}
	}
	// After a restart of the runtime it tells to look at everything, and goes on.
	f.stop()
	again := &fake{}
	again.start(t, path)
	if e := <-events; e.Kind != EventConnected {
		t.Errorf("after a restart %+v", e)
	}
	again.send(envelope(t, NamespaceKubernetes, topicExit, &apievents.TaskExit{ContainerID: "c", ID: "c"}))
	if got, want := <-events, (Event{EventExit, NamespaceKubernetes, "c"}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}

// A runtime that is not there yet, or never tells anything, is waited for.
func TestEventsWait(t *testing.T) {
	c, path := open(t, nil)
	events, stop := follow(t, c)
	f := &fake{}
	f.start(t, path)
	if e := <-events; e.Kind != EventConnected {
		t.Errorf("first %+v", e)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
	deaf, _ := open(t, &fake{deaf: true})
	events, stop = follow(t, deaf)
	select {
	case e := <-events:
		t.Errorf("deaf: %+v", e)
	default:
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}

func TestNoEvents(t *testing.T) {
	c, _ := open(t, &fake{eventless: true})
	if err := c.Events(t.Context(), func(e Event) { t.Errorf("%+v", e) }); !errors.Is(err, sharing.ErrUnsupported) {
		t.Errorf("got %v", err)
	}
}
