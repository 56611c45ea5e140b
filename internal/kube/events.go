// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"

	"github.com/kerf-gpu/kerf/sharing"
)

const (
	component = "kerf-agent"
	// eventQueue is how many events may wait for the API server; the next are dropped.
	eventQueue = 256
	// eventPause is between two tries of one event, and eventLife is when it is given up.
	eventPause = 2 * time.Second
	eventLife  = 5 * time.Minute
	// maxMessage is the most bytes of a message that the API server takes.
	maxMessage = 1024
)

// events sends events in the background. It takes the correlator of client-go's recorder and not its broadcaster. The
// broadcaster drops an event when the API server answers 429 or 5xx. It sets no deadline on a request, and has no owner
// that waits for its goroutine.
type events struct {
	core  *core
	node  string
	log   *slog.Logger
	queue chan *corev1.Event
}

func newEvents(core *core, node string, log *slog.Logger) *events {
	return &events{core: core, node: node, log: log, queue: make(chan *corev1.Event, eventQueue)}
}

// Event records an event for a pod, for its container if ref names one, or for the node if ref names no pod. It never
// waits: while the API server is away some events wait in a queue, and the rest is dropped. Repeated events are
// counted in one, and events that come too fast are left out. reason is CamelCase. The message gets an upper-case
// letter at the start and a period at the end, becomes valid UTF-8, and has at most 1024 bytes.
func (c *Client) Event(ctx context.Context, ref sharing.ContainerRef, reason, message string, warning bool) {
	e := c.events.build(ref, reason, message, warning)
	select {
	case c.events.queue <- e:
	default:
		c.log.WarnContext(ctx, "dropped event because the queue is full", "about", ref.String(), "reason", reason)
	}
}

func (s *events) build(ref sharing.ContainerRef, reason, message string, warning bool) *corev1.Event {
	about := corev1.ObjectReference{
		APIVersion: "v1", Kind: "Pod", Namespace: ref.Namespace, Name: ref.Pod, UID: types.UID(ref.PodUID),
	}
	switch {
	case ref.Pod == "":
		// The node's events lie where kubelet puts them, under kubelet's idea of its UID.
		about = corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: s.node, UID: types.UID(s.node)}
	case ref.Container != "":
		about.FieldPath = "spec.containers{" + ref.Container + "}"
	}
	namespace := about.Namespace
	if namespace == "" {
		namespace = metav1.NamespaceDefault
	}
	kind := corev1.EventTypeNormal
	if warning {
		kind = corev1.EventTypeWarning
	}
	now := metav1.Now()
	return &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Name: fmt.Sprintf("%s.%x", about.Name, now.UnixNano()), Namespace: namespace},
		InvolvedObject: about, Type: kind, Reason: reason, Message: tidy(sentence(message)), Count: 1,
		FirstTimestamp: now, LastTimestamp: now,
		Source:              corev1.EventSource{Component: component, Host: s.node},
		ReportingController: component, ReportingInstance: s.node,
	}
}

// sentence makes a sentence of a text, which may also be the reason of a status.
func sentence(text string) string {
	text = strings.TrimSpace(text)
	if first, size := utf8.DecodeRuneInString(text); size > 0 {
		text = string(unicode.ToUpper(first)) + text[size:]
	}
	if text == "" || strings.HasSuffix(text, ".") {
		return text
	}
	return text + "."
}

// tidy makes a message one that the API server takes.
func tidy(message string) string {
	const more = "..."
	message = strings.ToValidUTF8(message, "\uFFFD")
	if len(message) <= maxMessage {
		return message
	}
	cut := maxMessage - len(more)
	for !utf8.RuneStart(message[cut]) {
		cut--
	}
	return message[:cut] + more
}

// run sends what Event queues, one after the other, until ctx ends. What waits then is dropped.
func (s *events) run(ctx context.Context) {
	repeats := record.NewEventCorrelatorWithOptions(record.CorrelatorOptions{})
	for {
		select {
		case <-ctx.Done():
			return
		case e := <-s.queue:
			r, err := repeats.EventCorrelate(e)
			if err != nil || r.Skip {
				continue
			}
			s.send(ctx, repeats, r)
		}
	}
}

// send tries until the event is taken, refused, or old.
func (s *events) send(ctx context.Context, repeats *record.EventCorrelator, r *record.EventCorrelateResult) {
	old := time.Now().Add(eventLife)
	for {
		sent, err := s.try(ctx, r)
		if err == nil {
			repeats.UpdateState(sent)
			return
		}
		if ctx.Err() != nil {
			return
		}
		if !passing(err) || time.Now().After(old) {
			s.log.Debug("dropped event", "about", r.Event.InvolvedObject.Name, "reason", r.Event.Reason, "error",
				err)
			return
		}
		pause := time.NewTimer(eventPause)
		select {
		case <-ctx.Done():
		case <-pause.C:
		}
		pause.Stop()
	}
}

// try counts a repeated event up, or makes it where it is new or has expired.
func (s *events) try(ctx context.Context, r *record.EventCorrelateResult) (*corev1.Event, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	in := s.core.Events(r.Event.Namespace)
	if r.Event.Count > 1 {
		sent, err := in.Patch(ctx, r.Event.Name, types.StrategicMergePatchType, r.Patch, metav1.PatchOptions{})
		if !apierrors.IsNotFound(err) {
			return sent, err
		}
	}
	e := r.Event.DeepCopy()
	e.ResourceVersion = ""
	return in.Create(ctx, e, metav1.CreateOptions{})
}

// passing tells errors that may pass from refusals.
func passing(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return true // no answer
	}
	code := status.Status().Code
	return code == http.StatusTooManyRequests || code >= http.StatusInternalServerError
}
