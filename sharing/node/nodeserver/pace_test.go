// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package nodeserver

import (
	"errors"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	nodeapi "github.com/kerf-gpu/kerf/api/node/v1alpha1"
	"github.com/kerf-gpu/kerf/sharing"
)

// TestPaceOfAMillionGrants lets a user try a million grants within 10 s. It gets its burst and its rate. Another user
// and root are not affected, and successful grants can be activated.
func TestPaceOfAMillionGrants(t *testing.T) {
	now := time.Unix(0, 0)
	p := newPace(func() time.Time { return now })
	const tries = 1_000_000
	taken := 0
	for range tries {
		now = now.Add(10 * time.Second / tries)
		if err := p.allow(1000, "reserve"); err == nil {
			taken++
			if err := p.allow(1000, "activate"); err != nil {
				t.Fatalf("grant %d was taken: %v", taken, err)
			}
		} else if !errors.Is(err, sharing.ErrUnavailable) {
			t.Fatal(err)
		}
	}
	if want := userRate().Burst + int(10*time.Second/userRate().Every); taken < want-1 || taken > want+1 {
		t.Errorf("%d are taken, want %d", taken, want)
	}
	for range 100_000 {
		if err := p.allow(0, "reserve"); err != nil {
			t.Fatalf("root: %v", err)
		}
	}
	if err := p.allow(1001, "reserve"); err != nil {
		t.Errorf("another user: %v", err)
	}
}

// TestLongIDs are in no grant, and in no log.
func TestLongIDs(t *testing.T) {
	c, r := start(t)
	attach(t, r)
	id := strings.Repeat("k", maxID+1)
	_, err := c.Resize(t.Context(), &nodeapi.ResizeRequest{Id: id, MemoryBytes: 1 << 30})
	wantCode(t, err, codes.NotFound)
	_, err = c.Activate(t.Context(), &nodeapi.ActivateRequest{Id: id})
	wantCode(t, err, codes.NotFound)
}
