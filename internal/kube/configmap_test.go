// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"encoding/json"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A ConfigMap is read by a list and a watch of its name only, and reported as it comes, changes and goes.
func TestFollowConfigMap(t *testing.T) {
	a := newAPI(t)
	var asked atomic.Value
	events := make(chan metav1.WatchEvent)
	object := func(text, version string) corev1.ConfigMap {
		return corev1.ConfigMap{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "rules", ResourceVersion: version},
			Data:       map[string]string{"a.yaml": text},
		}
	}
	a.mu.Lock()
	a.broken = func(w http.ResponseWriter, r *http.Request) {
		asked.Store(r.URL.Path + "?" + r.URL.Query().Get("fieldSelector"))
		if r.URL.Query().Get("sendInitialEvents") != "" { // as one that does not stream lists
			status(w, http.StatusBadRequest, metav1.StatusReasonBadRequest, nil)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		if r.URL.Query().Get("watch") == "" {
			_ = json.NewEncoder(w).Encode(corev1.ConfigMapList{
				TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMapList"},
				ListMeta: metav1.ListMeta{ResourceVersion: "1"},
				Items:    []corev1.ConfigMap{object("one", "1")},
			})
			return
		}
		w.(http.Flusher).Flush()
		for {
			select {
			case <-r.Context().Done():
				return
			case e := <-events:
				_ = json.NewEncoder(w).Encode(e)
				w.(http.Flusher).Flush()
			}
		}
	}
	a.mu.Unlock()
	c := a.client(t, false)
	reported := make(chan map[string]string)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.WatchConfigMap(ctx, "ns", "rules", func(data map[string]string, _ error) {
			select {
			case reported <- data:
			case <-ctx.Done():
			}
		})
	}()
	next := func(want map[string]string) {
		t.Helper()
		select {
		case got := <-reported:
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		case <-time.After(time.Minute):
			t.Fatal("nothing is reported")
		}
	}
	send := func(kind, text, version string) {
		o := object(text, version)
		raw, err := json.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		e := metav1.WatchEvent{Type: kind}
		e.Object.Raw = raw
		events <- e
	}
	next(map[string]string{"a.yaml": "one"})
	send("MODIFIED", "two", "2")
	next(map[string]string{"a.yaml": "two"})
	send("DELETED", "two", "3")
	next(nil)
	send("ADDED", "three", "4")
	next(map[string]string{"a.yaml": "three"})
	if want := "/api/v1/namespaces/ns/configmaps?metadata.name=rules"; asked.Load() != want {
		t.Errorf("requested %v, want %s", asked.Load(), want)
	}
	cancel()
	<-done
}
