// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/dra"
	"github.com/kerf-gpu/kerf/sharing/ledger"
)

const (
	gpu  = sharing.GPUID("GPU-aaaaaaaa-0000-4000-8000-000000000000")
	uid1 = "11111111-0000-4000-8000-000000000000"
	uid2 = "22222222-0000-4000-8000-000000000000"
)

// node keeps grants, and writes a checkpoint of them at Save.
type node struct {
	grants, disk []ledger.Grant
	full         error
	// awaited are the pods whose MIG instances were awaited, and missing is why one is not there.
	awaited []string
	missing error
}

func (n *node) AwaitInstances(_ context.Context, podUID string) error {
	n.awaited = append(n.awaited, podUID)
	return n.missing
}

func (n *node) ReservePod(_ context.Context, asks []sharing.ContainerRequest) error {
	if n.full != nil {
		return n.full
	}
	for _, a := range asks {
		has := slices.IndexFunc(n.grants, func(g ledger.Grant) bool {
			return g.Owner.PodUID == a.Ref.PodUID && g.Owner.Container == a.Ref.Container
		})
		if has < 0 {
			g := ledger.Grant{Reservation: ledger.Reservation{Owner: ledger.Owner{PodUID: a.Ref.PodUID,
				Container: a.Ref.Container}, Request: a.Request}}
			g.Requests = a.Requests
			n.grants = append(n.grants, g)
		}
	}
	return nil
}

func (n *node) EndClaims(uids []string) error {
	n.grants = slices.DeleteFunc(n.grants, func(g ledger.Grant) bool {
		return slices.ContainsFunc(g.Requests, func(a sharing.ResourceRequest) bool {
			return slices.Contains(uids,
				a.ClaimUID())
		})
	})
	return n.Save()
}

func (n *node) Save() error            { n.disk = slices.Clone(n.grants); return nil }
func (n *node) Grants() []ledger.Grant { return n.grants }
func (n *node) GPUs() []sharing.GPUID  { return []sharing.GPUID{gpu} }

// pods are known at once, or not at all.
type pods map[string]sharing.Pod

func (p pods) Pod(_ context.Context, uid string) (sharing.Pod, bool, error) {
	pod, ok := p[uid]
	return pod, ok, nil
}

// bench is a Preparer on a node, with what it has written and reported.
type bench struct {
	*Preparer
	node     *node
	written  []string
	reported []string
	fail     string
}

var errCrash = errors.New("crash")

func newBench() *bench {
	b := &bench{node: &node{}}
	known := pods{}
	for _, name := range []string{"p", "q"} {
		known["uid-"+name] = sharing.Pod{UID: "uid-" + name, Namespace: "team", Name: name,
			Claims: []sharing.PodClaim{{Name: "one", Claim: "one"}, {Name: "two", Claim: "two"}},
			Containers: []sharing.PodContainer{{Name: "main", Claims: []sharing.ContainerClaim{{Name: "one"}}},
				{Name: "side", Claims: []sharing.ContainerClaim{{Name: "two"}}}}}
	}
	b.Preparer = New(Options{Log: slog.New(slog.DiscardHandler), Node: b.node, Pods: known,
		Write: func(asks []sharing.ResourceRequest) error {
			b.written = sharing.FormatResourceRequests(asks)
			return nil
		},
		Reject: func(_ context.Context, ref sharing.ContainerRef, message string) {
			b.reported = append(b.reported, ref.Pod+": "+message)
		},
		Eval: func(point string) error {
			if point == b.fail {
				return fmt.Errorf("%s: %w", point, errCrash)
			}
			return nil
		}})
	return b
}

func claim(uid, name string, gib uint64, pods ...string) dra.Claim {
	return dra.Claim{UID: uid, Namespace: "team", Name: name, Pods: pods, Results: []dra.Result{{Request: "gpu",
		Pool: "n", Device: dra.DeviceName(gpu, dra.KindShare), Memory: gib << 30, StatesMemory: true}}}
}

func TestPrepare(t *testing.T) {
	b := newBench()
	both := []dra.Claim{claim(uid1, "one", 10, "uid-p"), claim(uid2, "two", 20, "uid-p")}
	for range 2 { // again is the same
		if err := b.Prepare(t.Context(), both); err != nil {
			t.Fatal(err)
		}
		want := []string{"claim:" + uid1 + ".gpu", "claim:" + uid2 + ".gpu"}
		if len(b.node.disk) != 2 || !slices.Equal(b.written, want) {
			t.Fatalf("on disk %+v, written %q", b.node.disk, b.written)
		}
	}
	if m := b.node.grants[1].Request.Memory; m != 20*sharing.GiB {
		t.Errorf("the second has %s", m)
	}
	for range 2 {
		if err := b.Unprepare([]string{uid1}); err != nil || len(b.node.disk) != 1 || len(b.written) != 1 {
			t.Fatalf("on disk %+v, written %q: %v", b.node.disk, b.written, err)
		}
	}
	if err := b.Unprepare([]string{uid2, "unknown"}); err != nil || len(b.node.disk) != 0 || len(b.written) != 0 {
		t.Errorf("on disk %+v, written %q: %v", b.node.disk, b.written, err)
	}
}

// TestCrashes stops at each step. Either kubelet tries again, or it unprepares the claim: nothing is left of it.
func TestCrashes(t *testing.T) {
	for _, point := range Failpoints() {
		for _, again := range []bool{true, false} {
			b := newBench()
			one := []dra.Claim{claim(uid1, "one", 10, "uid-p")}
			b.fail = point
			err := b.Prepare(t.Context(), one)
			if point == pointUnprepared && err == nil {
				err = b.Unprepare([]string{uid1})
			}
			if !errors.Is(err, errCrash) {
				t.Fatalf("%s: %v", point, err)
			}
			b.fail, b.node.grants = "", slices.Clone(b.node.disk) // a new agent
			if again {
				if err := b.Prepare(t.Context(), one); err != nil || len(b.node.disk) != 1 || len(b.written) != 1 {
					t.Errorf("%s, again: %+v, %q, %v", point, b.node.disk, b.written, err)
				}
			}
			if err := b.Unprepare([]string{uid1}); err != nil || len(b.node.disk)+len(b.written) != 0 {
				t.Errorf("%s: left %+v, %q, %v", point, b.node.disk, b.written, err)
			}
		}
	}
}

func TestRejected(t *testing.T) {
	percent := claim(uid1, "one", 80, "uid-p")
	percent.Results[0].StatesMemory = false
	for name, tc := range map[string]struct {
		claim    dra.Claim
		full     error
		is       error
		reported string
	}{
		"percent alone": {claim: percent, is: sharing.ErrInvalid, reported: "states no memory"},
		"not enough free": {claim: claim(uid1, "one", 10, "uid-p"), full: sharing.ErrExhausted,
			is: sharing.ErrExhausted, reported: "p: "},
		"an unknown pod":  {claim: claim(uid1, "one", 10, "uid-x"), is: sharing.ErrUnavailable},
		"reserved for no": {claim: claim(uid1, "one", 10), is: sharing.ErrUnavailable},
	} {
		b := newBench()
		b.node.full = tc.full
		err := b.Prepare(t.Context(), []dra.Claim{tc.claim})
		if !errors.Is(err, tc.is) || len(b.node.grants)+len(b.written) != 0 ||
			(tc.reported != "") != (len(b.reported) == 1) ||
			!strings.Contains(strings.Join(b.reported, ""), tc.reported) {
			t.Errorf("%s: %v, reported %q, written %q", name, err, b.reported, b.written)
		}
		if err := b.Unprepare([]string{uid1}); err != nil {
			t.Errorf("%s: it cannot be cleaned up: %v", name, err)
		}
	}
}

// TestPrepared: after a restart, the claims of the grants are known by the pods that have them.
func TestPrepared(t *testing.T) {
	b := newBench()
	if err := b.Prepare(t.Context(), []dra.Claim{claim(uid1, "one", 10, "uid-p")}); err != nil {
		t.Fatal(err)
	}
	got, err := b.Prepared(t.Context())
	if err != nil || len(got) != 2 || got[0].Namespace != "team" || got[0].Name != "one" || got[1].Name != "two" ||
		!slices.Equal(got[0].UIDs, []string{uid1}) {
		t.Errorf("%+v, %v", got, err)
	}
	b.node.grants[0].Owner.PodUID = "uid-x"
	if got, err := b.Prepared(t.Context()); !errors.Is(err, sharing.ErrUnavailable) || len(got) != 0 {
		t.Errorf("of an unknown pod: %+v, %v", got, err)
	}
	if err := b.Unprepare([]string{uid1}); err != nil {
		t.Fatal(err)
	}
	if got, err := b.Prepared(t.Context()); err != nil || len(got) != 0 {
		t.Errorf("without grants: %+v, %v", got, err)
	}
}

// TestInstances: a claim is prepared once the MIG instances of its pod exist. kubelet asks again until then.
func TestInstances(t *testing.T) {
	b := newBench()
	b.node.missing = sharing.ErrUnavailable
	one := []dra.Claim{claim(uid1, "one", 10, "uid-p")}
	if err := b.Prepare(t.Context(), one); !errors.Is(err, sharing.ErrUnavailable) || len(b.written) != 0 ||
		len(b.node.disk) != 1 || len(b.reported) != 1 {
		t.Errorf("written %q, on disk %+v, reported %q: %v", b.written, b.node.disk, b.reported, err)
	}
	b.node.missing = nil
	if err := b.Prepare(t.Context(), one); err != nil || len(b.written) != 1 || len(b.node.disk) != 1 ||
		!slices.Equal(b.node.awaited, []string{"uid-p", "uid-p"}) {
		t.Errorf("written %q, awaited %q: %v", b.written, b.node.awaited, err)
	}
}

// TestSecondPod: a claim that two pods have in common belongs to the one that has its grant.
func TestSecondPod(t *testing.T) {
	b := newBench()
	if err := b.Prepare(t.Context(), []dra.Claim{claim(uid1, "one", 10, "uid-x", "uid-q")}); err != nil {
		t.Fatal(err)
	}
	if err := b.Prepare(t.Context(), []dra.Claim{claim(uid1, "one", 10, "uid-p", "uid-q")}); err != nil {
		t.Fatal(err)
	}
	if len(b.node.grants) != 1 || b.node.grants[0].Owner.PodUID != "uid-q" {
		t.Errorf("%+v", b.node.grants)
	}
}
