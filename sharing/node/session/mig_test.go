// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package session

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kerf-gpu/kerf/mig"
	"github.com/kerf-gpu/kerf/sharing"
)

// listing is a runtime that knows its containers from a moment on.
type listing struct {
	from    time.Time
	changed chan struct{}
}

func (l *listing) Changed() <-chan struct{} { return l.changed }

func (l *listing) GrantsOn(sharing.GPUID) ([]mig.Granted, error) {
	if time.Now().Before(l.from) {
		return nil, fmt.Errorf("not yet: %w", sharing.ErrUnavailable)
	}
	return nil, nil
}

// TestAwaitContainers: the first layout waits for the container runtime's list, and not for ever.
func TestAwaitContainers(t *testing.T) {
	for name, tc := range map[string]struct{ listed, want time.Duration }{
		"the list is there": {0, 0},
		"it comes":          {3 * time.Second, 3 * time.Second},
		"it does not come":  {time.Hour, 5 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				l := &listing{from: began.Add(tc.listed), changed: make(chan struct{})}
				time.AfterFunc(tc.listed, func() { close(l.changed) })
				awaitContainers(t.Context(), l, []sharing.GPU{{UUID: "a"}, {UUID: "b"}}, containersPatience)
				if took := time.Since(began); took != tc.want {
					t.Errorf("it waited %s, want %s", took, tc.want)
				}
			})
		})
	}
}
