// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package stream

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/kerf-gpu/kerf/internal/console/model"
)

const (
	// interval is the shortest time between two deltas to one viewer.
	interval = time.Second
	// writeTimeout bounds the time of one delta to a viewer.
	writeTimeout = 30 * time.Second
	// keepAlive is how often a quiet stream says that it lives. The scope of the viewer is looked at as often.
	keepAlive = 20 * time.Second
	// chunk is about how many bytes one event has, so that a browser can draw the first nodes early.
	chunk = 256 << 10
)

// ScopeOf is what the viewer may see now.
type ScopeOf func(context.Context) (model.Scope, error)

// Serve sends the state and then deltas until the viewer goes away or its scope cannot be read. Each event has objects
// by key; null is for one that is gone. Event reset tells the viewer to drop what it has, and event ready follows a
// complete state.
func (h *Broadcaster) Serve(w http.ResponseWriter, r *http.Request, scopeOf ScopeOf) error {
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	control := http.NewResponseController(w)
	var at model.Cursor
	var had model.Scope
	var memory []model.Item
	out := bufio.NewWriterSize(w, 32<<10)
	for {
		scope, err := scopeOf(r.Context())
		if err != nil {
			return err
		}
		if !same(scope, had) {
			had, at = scope, model.Cursor{}
		}
		changed, next, reset, woken := h.Since(at, memory)
		if err := control.SetWriteDeadline(time.Now().Add(writeTimeout)); errors.Is(err, net.ErrClosed) {
			return nil // The viewer is gone, or the console stops.
		} else if err != nil {
			return fmt.Errorf("bound a write: %w", err)
		}
		if reset {
			_, _ = out.WriteString("event: reset\ndata: {}\n\n")
		}
		if err := write(out, changed, scope); err != nil {
			return err
		}
		clear(changed) // so that no earlier version of an object stays
		memory = changed
		if woken != nil {
			_, _ = out.WriteString("event: ready\ndata: {}\n\n")
		}
		if err := out.Flush(); err != nil {
			return nil //nolint:nilerr // the viewer is gone
		}
		if err := control.Flush(); err != nil {
			return nil //nolint:nilerr // as above
		}
		at = next
		if woken != nil && !pause(r.Context(), woken) {
			return nil
		}
	}
}

// pause waits for the next change, and for the interval. It returns false if ctx ends.
func pause(ctx context.Context, woken <-chan struct{}) bool {
	soonest, latest := time.NewTimer(interval), time.NewTimer(keepAlive)
	defer soonest.Stop()
	defer latest.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-woken:
	case <-latest.C:
	}
	select {
	case <-ctx.Done():
		return false
	case <-soonest.C:
	}
	return true
}

// write writes the objects that the scope sees as events.
func write(out *bufio.Writer, changed []model.Item, scope model.Scope) error {
	size := 0
	for _, i := range changed {
		body, err := seen(i, scope)
		if err != nil {
			return err
		}
		if body == nil {
			continue
		}
		if size == 0 {
			_, _ = out.WriteString("data: {")
		} else {
			_ = out.WriteByte(',')
		}
		key, err := json.Marshal(i.Key)
		if err != nil {
			return fmt.Errorf("encode key: %w", err)
		}
		_, _ = out.Write(key)
		_ = out.WriteByte(':')
		_, _ = out.Write(body)
		if size += len(body); size > chunk {
			_, _ = out.WriteString("}\n\n")
			size = 0
		}
	}
	if size > 0 {
		_, _ = out.WriteString("}\n\n")
	}
	return nil
}

// seen is the object's JSON as the scope sees it; nil if it does not.
func seen(i model.Item, scope model.Scope) ([]byte, error) {
	kind, key, _ := strings.Cut(i.Key, "/")
	if namespace, _, _ := strings.Cut(key, "/"); kind == "pod" && !scope.Sees(namespace) {
		return nil, nil
	}
	switch {
	case i.Body == nil:
		return []byte("null"), nil
	case scope.All:
		return i.Body, nil
	case kind == "node":
		return narrowed(i, scope.Node)
	case kind == "pod":
		return narrowed(i, scope.Pod)
	}
	return i.Body, nil
}

// narrowed is the object's JSON after a change of the object.
func narrowed[T any](i model.Item, to func(T) T) ([]byte, error) {
	var v T
	if err := json.Unmarshal(i.Body, &v); err != nil {
		return nil, fmt.Errorf("read %s: %w", i.Key, err)
	}
	return json.Marshal(to(v))
}

// same is true if both scopes see the same.
func same(a, b model.Scope) bool {
	if a.All != b.All || len(a.Namespaces) != len(b.Namespaces) {
		return false
	}
	for n := range a.Namespaces {
		if a.Namespaces[n] != b.Namespaces[n] {
			return false
		}
	}
	return true
}
