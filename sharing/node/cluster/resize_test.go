// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kerf-gpu/kerf/api/gpunode"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/config"
	"github.com/kerf-gpu/kerf/sharing/ledger"
	"github.com/kerf-gpu/kerf/sharing/node/lifecycle"
)

// resizedNode is a node with one pod, and what its resizer does.
type resizedNode struct {
	*resizer

	has     sharing.Bytes
	free    sharing.Bytes
	tries   int
	events  []string
	changes chan struct{}
	// mu guards has, free, tries and events while the resizer runs.
	mu sync.Mutex
}

func newResizedNode(t *testing.T, profile string) *resizedNode {
	t.Helper()
	conf, err := config.New(config.Spec{Pools: []config.Pool{{Name: "default"}}, Profiles: []config.Profile{
		{Name: "small", Memory: 10 * sharing.GiB, MaxPerPod: 20 * sharing.GiB},
		{Name: "fixed", Memory: 10 * sharing.GiB}}})
	if err != nil {
		t.Fatal(err)
	}
	n := &resizedNode{has: 10 * sharing.GiB, free: 30 * sharing.GiB, changes: make(chan struct{})}
	n.resizer = &resizer{log: slog.New(slog.DiscardHandler), pause: resizePause,
		changed: func() <-chan struct{} { return n.changes },
		config:  func() config.Config { return conf },
		grants: func() []ledger.Grant {
			n.mu.Lock()
			defer n.mu.Unlock()
			return []ledger.Grant{{Reservation: ledger.Reservation{ID: "k-1", Owner: ledger.Owner{PodUID: "u",
				Namespace: "team",
				PodName:   "train", Container: "main"}, Request: sharing.Request{Profile: profile},
				Placement: sharing.Placement{{GPU: sharing.GPURef{UUID: "GPU-1"}, Memory: n.has}}}}}
		},
		resize: func(_ context.Context, by lifecycle.Peer, id ledger.GrantID, memory sharing.Bytes) error {
			n.mu.Lock()
			defer n.mu.Unlock()
			n.tries++
			if by.UID != 0 || id != "k-1" {
				t.Errorf("resizes %s in the name of %+v", id, by)
			}
			if memory > n.has+n.free {
				return fmt.Errorf("limit grant %q: %s free of 79GiB: %w", id, n.free, sharing.ErrExhausted)
			}
			n.has, n.free = memory, n.has+n.free-memory
			return nil
		},
		event: func(_ context.Context, ref sharing.ContainerRef, reason, message string, warning bool) {
			n.mu.Lock()
			defer n.mu.Unlock()
			n.events = append(n.events, fmt.Sprintf("%s %s %t: %s", ref, reason, warning, message))
		}}
	return n
}

// set is what an administrator writes.
func (n *resizedNode) set(gib int64) {
	n.want([]gpunode.GrantMemory{{PodUID: "u", Container: "main", MemoryGiB: gib}})
}

func (n *resizedNode) expect(t *testing.T, has sharing.Bytes, events ...string) {
	t.Helper()
	n.once(t.Context())
	if n.has != has || !slices.Equal(n.events, events) {
		t.Errorf("the container has %s, want %s; events %q, want %q", n.has, has, n.events, events)
	}
	n.events = nil
}

// An administrator changes the memory up and down, within the profile. A failure is an event on the pod, once.
func TestResizeByGPUNode(t *testing.T) {
	n := newResizedNode(t, "small")
	n.expect(t, 10*sharing.GiB)
	n.set(15)
	n.expect(t, 15*sharing.GiB,
		"team/train/main GPUMemoryResized false: The memory of container main is 15GiB, was 10GiB.")
	n.expect(t, 15*sharing.GiB)
	n.set(8)
	n.expect(t, 8*sharing.GiB,
		"team/train/main GPUMemoryResized false: The memory of container main is 8GiB, was 15GiB.")
	n.set(21)
	n.expect(t, 8*sharing.GiB, "team/train/main GPUMemoryResizeFailed true: The memory of container main stays 8GiB "+
		`instead of 21GiB: profile "small" allows at most 20GiB.`)
	n.expect(t, 8*sharing.GiB)
	n.set(20)
	n.expect(t, 20*sharing.GiB,
		"team/train/main GPUMemoryResized false: The memory of container main is 20GiB, was 8GiB.")
	if n.tries != 3 {
		t.Errorf("%d tries", n.tries)
	}
	n.want([]gpunode.GrantMemory{{PodUID: "gone", Container: "main", MemoryGiB: 9}, {Container: "main", MemoryGiB: 9}})
	n.expect(t, 20*sharing.GiB)
}

// A profile without a larger bound keeps its size, and a profile that is gone allows nothing.
func TestResizeWithinProfile(t *testing.T) {
	for profile, why := range map[string]string{"fixed": `profile "fixed" allows at most 10GiB`,
		"gone": `the config has no profile "gone"`} {
		n := newResizedNode(t, profile)
		n.set(12)
		n.expect(t, 10*sharing.GiB, "team/train/main GPUMemoryResizeFailed true: The memory of container main stays "+
			"10GiB instead of 12GiB: "+why+".")
	}
	n := newResizedNode(t, "")
	n.set(40)
	n.expect(t, 40*sharing.GiB,
		"team/train/main GPUMemoryResized false: The memory of container main is 40GiB, was 10GiB.")
}

// What does not fit is tried again later, and not at each change of the node.
func TestResizeTriesAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newResizedNode(t, "")
		n.set(50)
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			n.run(ctx)
		}()
		t.Cleanup(func() { stop(); <-done })
		for range 5 {
			n.changes <- struct{}{}
			time.Sleep(2 * resizePause)
		}
		synctest.Wait()
		n.mu.Lock()
		if n.tries != 1 || len(n.events) != 1 {
			t.Errorf("%d tries, events %q", n.tries, n.events)
		}
		n.free = 60 * sharing.GiB
		n.mu.Unlock()
		time.Sleep(2 * resizeRetry)
		synctest.Wait()
		n.mu.Lock()
		defer n.mu.Unlock()
		if n.has != 50*sharing.GiB || n.tries != 2 {
			t.Errorf("after %d tries it has %s", n.tries, n.has)
		}
	})
}

// The most memory is that of the pod, else the burst limit, else the guarantee.
func TestMostMemory(t *testing.T) {
	const gib = sharing.GiB
	for name, tt := range map[string]struct {
		profile config.Profile
		want    sharing.Bytes
	}{
		"guarantee":     {config.Profile{Memory: 10 * gib}, 10 * gib},
		"burst":         {config.Profile{Memory: 10 * gib, Burst: sharing.Burst{Memory: 40 * gib}}, 40 * gib},
		"burst percent": {config.Profile{Memory: 10 * gib, Burst: sharing.Burst{Percent: 250}}, 25 * gib},
		"pod": {config.Profile{Memory: 10 * gib, MaxPerPod: 15 * gib, Burst: sharing.Burst{Percent: 250}},
			15 * gib},
		"compute only":   {config.Profile{Percent: 20}, 0},
		"out of 64 bits": {config.Profile{Memory: 1 << 63, Burst: sharing.Burst{Percent: 10000}}, 1 << 63},
	} {
		if got := mostMemory(tt.profile); got != tt.want {
			t.Errorf("%s: %s, want %s", name, got, tt.want)
		}
	}
}
