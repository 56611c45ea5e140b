// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package node

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
	"github.com/kerf-gpu/kerf/sharing/node/claims"
)

var errClaimCrash = errors.New("crash")

// claimNode is the runtime of a bench as the preparer of claims needs it.
type claimNode struct{ b *bench }

func (n claimNode) ReservePod(ctx context.Context, asks []sharing.ContainerRequest) error {
	return n.b.ReservePod(ctx, asks)
}
func (n claimNode) EndClaims(uids []string) error { return n.b.EndClaims(uids) }
func (n claimNode) Save() error                   { return n.b.Store.Save() }
func (n claimNode) Grants() []ledger.Grant        { return n.b.Store.Grants() }
func (n claimNode) GPUs() (out []sharing.GPUID) {
	for _, g := range n.b.gpus {
		out = append(out, g.UUID)
	}
	return out
}
func (n claimNode) AwaitInstances(ctx context.Context, podUID string) error {
	return n.b.AwaitInstances(ctx, podUID)
}

// claimPods are the pods of the API server.
type claimPods struct{}

func (claimPods) Pod(_ context.Context, uid string) (sharing.Pod, bool, error) {
	return sharing.Pod{UID: uid, Namespace: "ns", Name: "p",
		Claims: []sharing.PodClaim{{Name: "gpu", Claim: "one"}},
		Containers: []sharing.PodContainer{{Name: "main",
			Claims: []sharing.ContainerClaim{{Name: "gpu"}}}}}, uid == "uid-p", nil
}

// claimBench is a node with the preparer of claims. It crashes at a failpoint.
type claimBench struct {
	*bench
	*claims.Preparer
	// restart is how the agent starts again.
	restart func()
	at      string
	shown   []string
}

func (c *claimBench) prepare() {
	c.Preparer = claims.New(claims.Options{Log: slog.New(slog.DiscardHandler), Node: claimNode{c.bench},
		Pods: claimPods{},
		Write: func(asks []sharing.ResourceRequest) error {
			c.shown = sharing.FormatResourceRequests(asks)
			return nil
		},
		Eval: func(point string) error {
			if point == c.at {
				return fmt.Errorf("%s: %w", point, errClaimCrash)
			}
			return nil
		}})
}

// crash ends the agent without a last write, and starts it again as the agent does.
func (c *claimBench) crash() {
	c.t.Helper()
	c.restart()
	c.prepare()
	if err := c.Restore(); err != nil {
		c.t.Fatal(err)
	}
}

// Restore is the preparer's: the runtime was restored at its start.
func (c *claimBench) Restore() error { return c.Preparer.Restore() }

// request has kubelet prepare the claim with a device, and returns the answer.
func (c *claimBench) request(device string) error {
	memory := uint64(10 * sharing.GiB)
	return c.Prepare(c.t.Context(), []dra.Claim{{UID: claimUID, Namespace: "ns", Name: "one", Pods: []string{"uid-p"},
		Results: []dra.Result{{Request: claimName, Pool: "n", Device: device, Memory: memory, StatesMemory: true}}}})
}

// TestClaimCrashes crashes the agent at each step of Prepare and Unprepare, for a share and a MIG instance. kubelet
// then asks again, or unprepares. The container gets its cap, no memory is booked twice, and nothing is left.
func TestClaimCrashes(t *testing.T) {
	ask := sharing.ContainerRequest{Ref: sharing.ContainerRef{PodUID: "uid-p", Namespace: "ns", Pod: "p",
		Container: "main"}, Requests: []sharing.ResourceRequest{sharing.ClaimRequest(claimUID, claimName)}}
	for _, kind := range []dra.Kind{dra.KindShare, dra.KindMIG} {
		for _, point := range claims.Failpoints() {
			for _, again := range []bool{true, false} {
				t.Run(fmt.Sprintf("%s, %s, again %t", kind, point, again), func(t *testing.T) {
					c, device := newClaimBench(t, kind)
					c.at = point
					err := c.request(device)
					if err == nil { // the point is one of Unprepare
						err = c.Unprepare([]string{claimUID})
					}
					if !errors.Is(err, errClaimCrash) {
						t.Fatal(err)
					}
					c.at = ""
					c.crash()
					if again {
						c.starts(ask, device)
					}
					for range 2 {
						if err := c.Unprepare([]string{claimUID}); err != nil {
							t.Fatal(err)
						}
					}
					c.eventually("no grant is left", func() bool {
						c.Reconcile(t.Context())
						return len(c.PodGrants()) == 0
					})
					c.empty()
					c.consistent()
					if len(c.shown) != 0 {
						t.Errorf("the container runtime has %q", c.shown)
					}
				})
			}
		}
	}
}

// newClaimBench is a node, and the device that the scheduler allocated on it.
func newClaimBench(t *testing.T, kind dra.Kind) (*claimBench, string) {
	t.Helper()
	if kind == dra.KindShare {
		b := newPodBench(t)
		b.still()
		stop := b.loops()
		// The loops of the crashed agent end, since its record has one writer.
		c := &claimBench{bench: b, restart: func() { stop(); b.still(); stop = b.loops() }}
		c.prepare()
		return c, dra.DeviceName(b.gpus[0].UUID, dra.KindShare)
	}
	m := newMIGBench(t)
	stop := m.begin()
	c := &claimBench{bench: m.bench, restart: func() { stop(); stop = m.begin() }}
	c.prepare()
	name, _ := dra.InstanceName(m.gpus[0].UUID, sharing.InstanceRef{Profile: "3g", Start: 1})
	return c, name
}

// starts has kubelet ask again, and start the container. The agent crashes while it runs.
func (c *claimBench) starts(ask sharing.ContainerRequest, device string) {
	c.t.Helper()
	for range 2 {
		if err := c.request(device); err != nil {
			c.t.Fatal(err)
		}
		if v, _ := c.Store.GPU(c.gpus[0].Ref()); v.Grants != 1 || !slices.Equal(c.shown,
			sharing.FormatResourceRequests(ask.Requests)) {
			c.t.Fatalf("%d grants, the container runtime has %q", v.Grants, c.shown)
		}
	}
	run := c.run(admitted(ask))
	if dra.DeviceName(c.gpus[0].UUID, dra.KindShare) == device {
		run.limits(map[sharing.GPURef]sharing.Bytes{c.gpus[0].Ref(): 10 * sharing.GiB})
	} else if p := run.in.Placement; len(p) != 1 || p[0].MIG.Start != 1 || run.in.Device.UUID == "" {
		c.t.Errorf("the container gets %+v of %+v", run.in.Device, p)
	}
	c.crash()
	c.active(ask, run)
	if err := c.Unprepare([]string{claimUID}); err != nil { // kubelet does not, while it runs
		c.t.Fatal(err)
	}
	c.Reconcile(c.t.Context())
	c.active(ask, run)
	run.remove()
}

// TestClaimOverABoot: the machine boots while a claim is prepared. The CDI device is written again, and the container
// starts again with its cap.
func TestClaimOverABoot(t *testing.T) {
	c, device := newClaimBench(t, dra.KindShare)
	ask := sharing.ContainerRequest{Ref: sharing.ContainerRef{PodUID: "uid-p", Namespace: "ns", Pod: "p",
		Container: "main"}, Requests: []sharing.ResourceRequest{sharing.ClaimRequest(claimUID, claimName)}}
	if err := c.request(device); err != nil {
		t.Fatal(err)
	}
	c.run(admitted(ask)).remove()
	c.opt.BootID, c.shown = "the next boot", nil
	c.caps.forget()
	c.crash()
	if want := sharing.FormatResourceRequests(ask.Requests); !slices.Equal(c.shown, want) {
		t.Errorf("the container runtime has %q, want %q", c.shown, want)
	}
	c.active(ask, nil)
	again := c.run(admitted(ask))
	again.limits(map[sharing.GPURef]sharing.Bytes{c.gpus[0].Ref(): 10 * sharing.GiB})
	again.remove()
	if err := c.Unprepare([]string{claimUID}); err != nil {
		t.Fatal(err)
	}
	c.gone("p")
}

// TestClaimIsUnpreparedDuringAStart: a pod is deleted between the creation of its container and the hook. The container
// starts with its cap, or not at all if the grant was released before.
func TestClaimIsUnpreparedDuringAStart(t *testing.T) {
	for _, released := range []bool{false, true} {
		b := newPodBench(t)
		b.still() // without loops: the test says when the agent reconciles
		c := &claimBench{bench: b}
		c.prepare()
		ask := sharing.ContainerRequest{Ref: sharing.ContainerRef{PodUID: "uid-p", Namespace: "ns", Pod: "p",
			Container: "main"}, Requests: []sharing.ResourceRequest{sharing.ClaimRequest(claimUID, claimName)}}
		if err := c.request(dra.DeviceName(b.gpus[0].UUID, dra.KindShare)); err != nil {
			t.Fatal(err)
		}
		run := c.inject(admitted(ask)).make()
		if err := c.Unprepare([]string{claimUID}); err != nil {
			t.Fatal(err)
		}
		if released {
			c.Reconcile(t.Context())
		}
		switch err := run.hooks(); {
		case released && !errors.Is(err, sharing.ErrUnavailable):
			t.Errorf("its grant was released, and it starts: %v", err)
		case released:
		case err != nil: // The grant lasts until the container is removed.
			t.Error(err)
		default:
			run.limits(map[sharing.GPURef]sharing.Bytes{c.gpus[0].Ref(): 10 * sharing.GiB})
		}
		run.remove()
		c.gone("p")
	}
}

// TestSharedClaimNeedsASharedCap: two containers reference one claim, and no backend of the node enforces one cap for
// both. The claim is rejected, and the error names the backends that do.
func TestSharedClaimNeedsASharedCap(t *testing.T) {
	b := newPodBench(t)
	b.start()
	m := b.claimed("p", "main", claimUID, sharing.ContainerApp, 6*sharing.GiB, 0)
	s := b.claimed("p", "side", claimUID, sharing.ContainerApp, 4*sharing.GiB, 0)
	s.With = "main"
	for _, level := range []sharing.Level{sharing.LevelUnknown, sharing.LevelDriver} {
		m.Request.MinLevel, s.Request.MinLevel = level, level
		all, err := sharing.MergeSharedCaps([]sharing.ContainerRequest{m, s})
		if err != nil {
			t.Fatal(err)
		}
		err = b.ReservePod(t.Context(), all)
		if err == nil || !strings.Contains(err.Error(), "give each container a ResourceClaim, or list "+
			"libkerf or reactive") {
			t.Errorf("with at least %s: %v", level, err)
		}
		b.Reconcile(t.Context())
		b.empty()
	}
}
