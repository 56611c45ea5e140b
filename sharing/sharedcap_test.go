// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package sharing

import (
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// sharer is a container's ask, of one GPU if nothing else is said.
func sharer(name, with string, r Request) ContainerRequest {
	if r.GPUs == 0 {
		r.GPUs = 1
	}
	return ContainerRequest{Ref: ContainerRef{PodUID: "u", Container: name}, With: with, Request: r}
}

func TestJoinAsks(t *testing.T) {
	t.Parallel()
	main := sharer("main", "", Request{Memory: 6 * GiB, Percent: 20})
	tests := map[string]struct {
		asks []ContainerRequest
		want map[string]Request // SharedCap
		errs []string
	}{
		"no one shares": {asks: []ContainerRequest{main, sharer("side", "", Request{Memory: GiB})},
			want: map[string]Request{}},
		"amounts add up": {
			asks: []ContainerRequest{sharer("side", "main", Request{Memory: 4 * GiB, Percent: 5}), main,
				sharer("alone", "", Request{Memory: GiB})},
			want: map[string]Request{"side": {Memory: 10 * GiB, Percent: 25, GPUs: 1},
				"main": {Memory: 10 * GiB, Percent: 25, GPUs: 1}},
		},
		"three": {
			asks: []ContainerRequest{sharer("a", "main", Request{Memory: GiB, Percent: 1}), main,
				sharer("b", "main", Request{Memory: GiB, Percent: 1})},
			want: map[string]Request{
				"a": {Memory: 8 * GiB, Percent: 22, GPUs: 1}, "main": {Memory: 8 * GiB, Percent: 22, GPUs: 1},
				"b": {Memory: 8 * GiB, Percent: 22, GPUs: 1},
			},
		},
		"over two GPUs": {
			asks: []ContainerRequest{sharer("main", "", Request{Percent: 20, GPUs: 2}),
				sharer("side", "main", Request{Percent: 10, GPUs: 2})},
			want: map[string]Request{"main": {Percent: 30, GPUs: 2}, "side": {Percent: 30, GPUs: 2}},
		},
		"none of that name": {
			asks: []ContainerRequest{sharer("side", "mian", Request{Memory: GiB}), main},
			errs: []string{
				`annotation share-cap-with.kerf.dev/side "mian" is no container of this pod that requests a share of a GPU; name a container with a limit`},
		},
		"a chain": {
			asks: []ContainerRequest{main, sharer("side", "main", Request{Memory: GiB, Percent: 1}),
				sharer("third", "side", Request{Memory: GiB, Percent: 1})},
			errs: []string{
				`annotation share-cap-with.kerf.dev/third "side" shares the cap of container "main" itself; name that one`},
		},
		"each other": {
			asks: []ContainerRequest{sharer("a", "b", Request{Memory: GiB}), sharer("b", "a", Request{Memory: GiB})},
			errs: []string{`share-cap-with.kerf.dev/a "b" shares the cap of container "a" itself`,
				`share-cap-with.kerf.dev/b "a" shares the cap of container "b" itself`},
		},
		"an init container": {
			asks: []ContainerRequest{main, {Ref: ContainerRef{Container: "first"}, With: "main", Kind: ContainerInit,
				Request: Request{Memory: GiB, Percent: 1, GPUs: 1}}},
			errs: []string{`share-cap-with.kerf.dev/first "main" joins an init container`},
		},
		"whole GPUs": {
			asks: []ContainerRequest{sharer("main", "", Request{Kind: KindWhole}),
				sharer("side", "main", Request{Memory: GiB})},
			errs: []string{`joins whole GPUs, which have no cap`},
		},
		"a profile": {
			asks: []ContainerRequest{main, sharer("side", "main", Request{Memory: GiB, Percent: 1, Profile: "small"})},
			errs: []string{`joins the request of a profile`},
		},
		"other resources": {
			asks: []ContainerRequest{main, sharer("side", "main", Request{Memory: GiB}),
				sharer("more", "main", Request{Memory: 2 * GiB, Percent: 2, GPUs: 2})},
			errs: []string{`share-cap-with.kerf.dev/side "main" joins other resources`,
				`share-cap-with.kerf.dev/more "main" joins other resources, or another number of GPUs`},
		},
		"another GPU": {
			asks: []ContainerRequest{main, sharer("side", "main",
				Request{Memory: GiB, Percent: 1, Models: []string{"*T4*"}})},
			errs: []string{`joins another choice of GPU; annotate the pod`},
		},
		"too much together": {
			asks: []ContainerRequest{main, sharer("side", "main", Request{Memory: GiB, Percent: 81})},
			errs: []string{`annotation share-cap-with.kerf.dev/side "101%" is more than 1 GPU`},
		},
		"more than can be counted": {
			asks: []ContainerRequest{sharer("main", "", Request{Memory: 1<<64 - 1}),
				sharer("side", "main", Request{Memory: GiB})},
			errs: []string{`joins more memory than can be counted`},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := MergeSharedCaps(tt.asks)
			checkErrors(t, err, tt.errs)
			if err != nil {
				return
			}
			capped := map[string]Request{}
			for i, a := range got {
				if a.SharedCap.GPUs > 0 {
					capped[a.Ref.Container] = a.SharedCap
				}
				a.SharedCap = Request{}
				if d := cmp.Diff(tt.asks[i], a); d != "" {
					t.Errorf("more than the shared cap changed (-want +got):\n%s", d)
				}
			}
			if d := cmp.Diff(tt.want, capped); d != "" {
				t.Errorf("requests with a shared cap (-want +got):\n%s", d)
			}
		})
	}
}

// In whatever order and number containers share, what they ask for together is the sum of what they ask for.
func TestJoinAsksAddsUp(t *testing.T) {
	t.Parallel()
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1))
		names := []string{"a", "b", "c", "d", "e", "f"}[:1+r.IntN(6)]
		var asks []ContainerRequest
		sums := map[string]Request{}
		for i, name := range names {
			// #nosec G115 -- small
			a := sharer(name, "", Request{Memory: Bytes(1+r.IntN(9)) * GiB, Percent: Percent(1 + r.IntN(10))})
			root := name
			if i > 1 && r.IntN(2) == 0 { // with a or b, which share no cap
				a.With = names[r.IntN(2)]
				root = a.With
			}
			asks = append(asks, a)
			s := sums[root]
			s.Memory, s.Percent, s.GPUs = s.Memory+a.Request.Memory, s.Percent+a.Request.Percent, s.GPUs+1
			sums[root] = s
		}
		r.Shuffle(len(asks), func(i, j int) { asks[i], asks[j] = asks[j], asks[i] })
		got, err := MergeSharedCaps(asks)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if again, err := MergeSharedCaps(got); err != nil || cmp.Diff(got, again) != "" {
			t.Fatalf("seed %d, joined again: %v %s", seed, err, cmp.Diff(got, again))
		}
		for _, a := range got {
			root := a.With
			if root == "" {
				root = a.Ref.Container
			}
			want := sums[root]
			members := want.GPUs
			want.GPUs = 1
			if members == 1 {
				want = Request{}
			}
			if d := cmp.Diff(want, a.SharedCap); d != "" {
				t.Fatalf("seed %d, %s (-want +got):\n%s", seed, a.Ref.Container, d)
			}
		}
	}
}

func TestSharesCap(t *testing.T) {
	t.Parallel()
	all := map[string]string{"share-cap-with.kerf.dev/side": " main ", "share-with.other.dev/x": "y",
		"kerf.dev/placement-policy": "spread"}
	for container, want := range map[string]bool{"main": true, "side": true, "x": false, "y": false, "": false} {
		if got := SharesCap(all, container); got != want {
			t.Errorf("%q: %v", container, got)
		}
	}
	if got := ShareWith(all, "side"); got != "main" {
		t.Errorf("with %q", got)
	}
}
