// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package access_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"testing"

	"github.com/kerf-gpu/kerf/internal/kube/access"
)

// Follow lists, hears of changes, goes on from the newest version, and lists again after the version expired.
func TestFollow(t *testing.T) {
	lists, versions := 0, []string{}
	c := open(t, func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		if q.Get("watch") == "" {
			lists++
			_, _ = fmt.Fprintf(w, `{"metadata":{"resourceVersion":"%d0"},"items":[{"metadata":{"name":"a"}}]}`, lists)
			return
		}
		versions = append(versions, q.Get("resourceVersion"))
		switch len(versions) {
		case 1:
			_, _ = fmt.Fprint(w, `{"type":"ADDED","object":{"metadata":{"name":"b","resourceVersion":"11"}}}
				{"type":"DELETED","object":{"metadata":{"name":"a","resourceVersion":"12"}}}
				{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"15"}}}`)
		case 2:
			_, _ = fmt.Fprint(w, `{"type":"ERROR","object":{"kind":"Status","code":410}}`)
		default:
			<-r.Context().Done()
		}
	})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var heard []string
	name := func(raw json.RawMessage) string {
		var o struct{ Metadata struct{ Name string } }
		if err := json.Unmarshal(raw, &o); err != nil {
			t.Error(err)
		}
		return o.Metadata.Name
	}
	err := c.Watch(ctx, "/api/v1/pods", nil, access.Follower{
		Begun: func() { heard = append(heard, "begun") },
		Listed: func() error {
			heard = append(heard, "listed")
			if lists == 2 {
				cancel()
			}
			return nil
		},
		Changed: func(raw json.RawMessage, gone bool) error {
			heard = append(heard, fmt.Sprintf("%s gone=%t", name(raw), gone))
			return nil
		},
		Failed: func(err error) error { return err },
	})
	want := []string{"begun", "a gone=false", "listed", "b gone=false", "a gone=true", "begun", "a gone=false",
		"listed"}
	if err != nil || !slices.Equal(heard, want) {
		t.Errorf("heard %q, want %q: %v", heard, want, err)
	}
	if want := []string{"10", "15"}; len(versions) < 2 || !slices.Equal(versions[:2], want) {
		t.Errorf("watched from %q, want %q", versions, want)
	}
}

// The follower gets an error, and it ends Watch if the follower says so.
func TestFollowFails(t *testing.T) {
	c := open(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) })
	enough := errors.New("enough")
	err := c.Watch(t.Context(), "/api/v1/pods", nil, access.Follower{
		Begun:   func() {},
		Listed:  func() error { t.Error("listed"); return nil },
		Changed: func(json.RawMessage, bool) error { t.Error("changed"); return nil },
		Failed:  func(error) error { return enough },
	})
	if !errors.Is(err, enough) {
		t.Errorf("error %v", err)
	}
}
