// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package containerd

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"
	"time"

	apievents "github.com/containerd/containerd/api/events"
	eventsv1 "github.com/containerd/containerd/api/services/events/v1"
	apitypes "github.com/containerd/containerd/api/types"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"
	"github.com/containerd/typeurl/v2"
	"google.golang.org/grpc"

	"github.com/kerf-gpu/kerf/sharing"
)

// EventKind is what an event tells.
type EventKind uint8

// The kinds of event.
const (
	// EventConnected: events flow from now on, after a time in which they did not. Look at everything.
	EventConnected EventKind = iota
	// EventExit: the container's first process has ended.
	EventExit
	// EventTaskDeleted: what ran of the container is cleaned up.
	EventTaskDeleted
	// EventContainerDeleted: the container is deleted.
	EventContainerDeleted
)

// Event is one thing that happened to a container.
type Event struct {
	Kind EventKind
	// Namespace and ContainerID are empty for EventConnected.
	Namespace, ContainerID string
}

const (
	topicExit      = "/tasks/exit"
	topicTaskGone  = "/tasks/delete"
	topicContainer = "/containers/delete"
	// topicHello is Kerf's event: its return proves that the subscription is active.
	topicHello = "/kerf/hello"

	// helloEvery is how often the hello is sent until it returns, and helloWithin how long it may take.
	helloEvery  = 200 * time.Millisecond
	helloWithin = 10 * time.Second
	// retryFirst and retryMost bound the pause between two tries to connect.
	retryFirst = 100 * time.Millisecond
	retryMost  = 2 * time.Second
)

// Events calls fn, in one goroutine, for the ends of containers in the namespaces of Kubernetes and of kerf. When ctx
// ends, it returns nil. It reconnects whenever the container runtime goes away. Events in between are lost, so fn gets
// EventConnected after every connect, also the first. The function fn should be quick. The only error is that of a
// container runtime without such events (CRI-O): ErrUnsupported, or ErrInvalid.
func (c *Client) Events(ctx context.Context, fn func(Event)) error {
	pause := retryFirst
	for ctx.Err() == nil {
		connected, err := c.follow(ctx, fn)
		if errors.Is(err, sharing.ErrUnsupported) || errors.Is(err, sharing.ErrInvalid) {
			return err
		}
		if connected {
			pause = retryFirst
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
		pause = min(2*pause, retryMost)
	}
	return nil
}

// follow subscribes once and calls fn until the stream ends; connected reports whether the subscription was ever
// active.
func (c *Client) follow(parent context.Context, fn func(Event)) (connected bool, err error) {
	ctx, cancel := context.WithCancel(parent)
	defer cancel()
	hello := "kerf-" + rand.Text()
	stream, err := eventsv1.NewEventsClient(c.conn).Subscribe(ctx, &eventsv1.SubscribeRequest{Filters: filters()})
	if err != nil {
		return false, c.Plain(parent, "subscribe to events", err)
	}
	greeted := make(chan error, 1)
	stop := make(chan struct{})
	go func() { greeted <- c.greet(ctx, cancel, hello, stop) }()
	connected, err = receive(stream, hello, fn, stop)
	if !connected {
		close(stop)
	}
	cancel()
	// The greeter ends the stream when it cannot greet, and then knows why.
	if helloErr := <-greeted; !connected && errdefs.IsCanceled(errgrpc.ToNative(err)) {
		err = helloErr
	}
	return connected, c.Plain(parent, "follow events", err)
}

// receive reads the stream to its end. It closes stop once the hello has come back.
func receive(stream grpc.ServerStreamingClient[apitypes.Envelope], hello string, fn func(Event),
	stop chan struct{}) (connected bool, err error) {
	for {
		envelope, err := stream.Recv()
		if err != nil {
			return connected, err
		}
		if envelope.GetTopic() == topicHello {
			var m apievents.NamespaceUpdate
			if !connected && typeurl.UnmarshalTo(envelope.GetEvent(), &m) == nil && m.GetName() == hello {
				connected = true
				close(stop)
				fn(Event{Kind: EventConnected})
			}
			continue
		}
		// What comes before the hello is covered by the full look that follows it.
		if e, ok := eventOf(envelope); ok && connected {
			fn(e)
		}
	}
}

// greet publishes the hello until it has come back, and ends the stream when it does not.
func (c *Client) greet(ctx context.Context, giveUp context.CancelFunc, hello string, stop <-chan struct{}) error {
	// Any event type that containerd knows would do: only this package reads the topic.
	body, err := typeurl.MarshalAnyToProto(&apievents.NamespaceUpdate{Name: hello})
	if err != nil {
		giveUp()
		return err
	}
	client := eventsv1.NewEventsClient(c.conn)
	late := time.After(helloWithin)
	tick := time.NewTicker(helloEvery)
	defer tick.Stop()
	for {
		_, err = client.Publish(namespaces.WithNamespace(ctx, NamespaceKerf),
			&eventsv1.PublishRequest{Topic: topicHello, Event: body})
		if err != nil {
			giveUp()
			return err
		}
		select {
		case <-stop:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		case <-late:
			giveUp()
			return fmt.Errorf("the runtime sends no events: %w", sharing.ErrUnavailable)
		case <-tick.C:
		}
	}
}

func filters() []string {
	out := []string{"topic==" + strconv.Quote(topicHello)}
	for _, namespace := range []string{NamespaceKubernetes, NamespaceKerf} {
		for _, topic := range []string{topicExit, topicTaskGone, topicContainer} {
			out = append(out, "namespace=="+strconv.Quote(namespace)+",topic=="+strconv.Quote(topic))
		}
	}
	return out
}

// eventOf reads an envelope; false for what is not the end of a container.
func eventOf(envelope *apitypes.Envelope) (Event, bool) {
	e := Event{Namespace: envelope.GetNamespace()}
	event := envelope.GetEvent()
	switch envelope.GetTopic() {
	case topicExit:
		var m apievents.TaskExit
		if typeurl.UnmarshalTo(event, &m) != nil || m.GetID() != m.GetContainerID() {
			return Event{}, false // another process of the container, such as an exec
		}
		e.Kind, e.ContainerID = EventExit, m.GetContainerID()
	case topicTaskGone:
		var m apievents.TaskDelete
		if typeurl.UnmarshalTo(event, &m) != nil || m.GetID() != "" && m.GetID() != m.GetContainerID() {
			return Event{}, false
		}
		e.Kind, e.ContainerID = EventTaskDeleted, m.GetContainerID()
	case topicContainer:
		var m apievents.ContainerDelete
		if typeurl.UnmarshalTo(event, &m) != nil {
			return Event{}, false
		}
		e.Kind, e.ContainerID = EventContainerDeleted, m.GetID()
	}
	return e, e.ContainerID != ""
}
