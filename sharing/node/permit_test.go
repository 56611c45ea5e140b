// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"testing"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/config"
)

// The rules of a profile refuse new grants and leave those that there are.
func TestProfileRules(t *testing.T) {
	b := newPodBench(t)
	b.start()
	use := func(p config.Profile) {
		t.Helper()
		p.Name, p.Memory = "p", 10*sharing.GiB
		c, err := config.New(config.Spec{Pools: config.Default().Pools(), Profiles: []config.Profile{p}})
		if err != nil {
			t.Fatal(err)
		}
		b.apply(c, c.Pools()[0])
	}
	by := func(ask sharing.ContainerRequest) sharing.ContainerRequest {
		ask.Request.Profile = "p"
		return ask
	}
	grant := func(asks ...sharing.ContainerRequest) error { return b.ReservePod(t.Context(), asks) }

	use(config.Profile{Namespaces: []string{"other"}})
	refused(t, grant(by(b.app("a", "gpu-memory-gib:10"))), sharing.ErrInvalid, `for the namespaces other, not for "ns"`,
		"p.namespaces")
	_, err := b.Reserve(t.Context(), b.tenant().Peer, "", sharing.Request{Profile: "p"})
	refused(t, err, sharing.ErrInvalid, "p.namespaces")

	use(config.Profile{MaxPerPod: 15 * sharing.GiB})
	two := []sharing.ContainerRequest{by(b.app("a", "gpu-memory-gib:10")),
		by(b.ask("a", "other", sharing.ContainerApp, "gpu-memory-gib:10"))}
	refused(t, grant(two...), sharing.ErrInvalid, "at most 15GiB, and its containers have 20GiB together",
		"p.maxMemoryPerPod")
	if left := b.PodGrants(); len(left) > 0 {
		t.Fatalf("a refused pod has grants: %v", left)
	}
	if err := grant(two[0]); err != nil {
		t.Fatal(err)
	}
	refused(t, grant(two...), sharing.ErrInvalid, "p.maxMemoryPerPod")
	if err := grant(two[0], by(b.initc("a", "first", "gpu-memory-gib:5"))); err != nil {
		t.Errorf("an init container that uses the grant: %v", err)
	}

	use(config.Profile{Namespaces: []string{"other"}})
	if err := grant(two[0]); err != nil {
		t.Errorf("a grant that is there, under new rules: %v", err)
	}
}
