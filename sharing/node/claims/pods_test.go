// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/dra"
	"github.com/kerf-gpu/kerf/sharing/ledger"
)

// latePods are known after a time; the others never.
type latePods struct {
	began time.Time
	after map[string]time.Duration
}

func (p latePods) Pod(ctx context.Context, uid string) (sharing.Pod, bool, error) {
	var known <-chan time.Time
	if after, is := p.after[uid]; is {
		known = time.After(time.Until(p.began.Add(after)))
	}
	select {
	case <-known:
		return sharing.Pod{UID: uid, Namespace: "team", Claims: []sharing.PodClaim{{Name: "one", Claim: "one"}}}, true,
			nil
	case <-ctx.Done():
		return sharing.Pod{}, false, nil
	}
}

// TestEachPodHasItsTime: a pod that is never reported takes no time from the next.
func TestEachPodHasItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench()
		for _, pod := range []string{"uid-a", "uid-b"} {
			g := ledger.Grant{Reservation: ledger.Reservation{Owner: ledger.Owner{PodUID: pod, Container: "main"}}}
			g.Requests = []sharing.ResourceRequest{sharing.ClaimRequest(uid1, "gpu")}
			b.node.grants = append(b.node.grants, g)
		}
		late := func() latePods {
			return latePods{time.Now(), map[string]time.Duration{"uid-b": podPatience + time.Second}}
		}
		b.Pods = late()
		if got, err := b.Prepared(t.Context()); len(got) != 1 || err == nil ||
			!strings.Contains(err.Error(), "uid-a") || strings.Contains(err.Error(), "uid-b") {
			t.Errorf("%+v, %v", got, err)
		}
		b.Pods = late()
		pod, err := b.podOf(t.Context(), []dra.Claim{claim(uid1, "one", 10, "uid-a", "uid-b")})
		if err != nil || pod.UID != "uid-b" {
			t.Errorf("%+v, %v", pod, err)
		}
	})
}
