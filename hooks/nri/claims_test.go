// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package nri

import (
	"slices"
	"testing"

	"github.com/kerf-gpu/kerf/sharing"
)

// TestClaims: a container that ResourceClaims admit uses a grant that exists. Nothing that its pod says makes one.
func TestClaims(t *testing.T) {
	c := newContainerd(t).start()
	b := plug(t, c.socket(), &fakeNode{}).serving(t)
	b.know(specOf("train", memory("main", sharing.ContainerInit, "10")))
	const uid = "11111111-0000-4000-8000-000000000000"
	one, two := sharing.ClaimRequest(uid, "one"), sharing.ClaimRequest(uid, "two")
	pod := podOf("train", shareSide, "main", "kerf.dev/profile", "large")
	if _, err := c.create(pod, containerOf("main", sharing.HookDevice, two.Device(), one.Device())); err != nil {
		t.Fatal(err)
	}
	ask := b.node.asked["id-main"]
	if !ask.ExistingOnly || ask.Kind != sharing.ContainerInit || !slices.Equal(ask.Requests,
		[]sharing.ResourceRequest{one, two}) ||
		ask.Request.GPUs != 0 || ask.Request.Profile != "" || ask.With != "" {
		t.Errorf("requested %+v", ask)
	}
	if len(b.node.reserved) != 0 {
		t.Errorf("reserved %+v", b.node.reserved)
	}
	if _, err := c.create(pod, containerOf("both", append(guarded(), one.Device())...)); err == nil {
		t.Error("a container with a claim and an amount was created")
	}
	if _, err := c.create(pod, containerOf("bare", one.Device())); err == nil {
		t.Error("a container with a claim and no hook was created")
	}
}
