// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package claims prepares ResourceClaims on a node: it reserves the grants of the containers that reference them, and
// has their CDI devices written. A claim's grant is like any other: checkpoint, hook, caps and release are the same.
//
// Promised: Prepare and Unprepare may be repeated after a failure or a crash at any step. Prepare gives all claims of a
// pod their grants, or none. What Prepare left half done, Unprepare removes.
package claims

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/dra"
	"github.com/kerf-gpu/kerf/sharing/ledger"
)

// podPatience is how long Prepare waits for each pod that the API server has not reported yet.
const podPatience = 5 * time.Second

// The failpoints of crash tests.
const (
	pointReserved   = "claim-after-reserve"
	pointRecorded   = "claim-after-record"
	pointCreated    = "claim-after-instances"
	pointPrepared   = "claim-after-spec"
	pointUnprepared = "unclaim-after-record"
)

// Failpoints are the names of all failpoints of this package.
func Failpoints() []string {
	return []string{pointReserved, pointRecorded, pointCreated, pointPrepared, pointUnprepared}
}

// Node is what this package needs of the node runtime.
type Node interface {
	// ReservePod reserves grants for all of these containers, or for none. It may be repeated.
	ReservePod(ctx context.Context, asks []sharing.ContainerRequest) error
	// EndClaims ends the grants of claims, by UID, once nothing uses them. It returns when that is on disk.
	EndClaims(uids []string) error
	// Save returns once the grants are on disk.
	Save() error
	// AwaitInstances returns once the MIG instances of a pod's grants exist. It may be repeated.
	AwaitInstances(ctx context.Context, podUID string) error
	// Grants are all grants of the node, and GPUs all GPUs.
	Grants() []ledger.Grant
	GPUs() []sharing.GPUID
}

// Pods is what this package needs of the API server's view.
type Pods interface {
	// Pod returns a pod of this node, and waits for it until ctx ends. False means that it is not known, an error that
	// the API server has not been read at all.
	Pod(ctx context.Context, uid string) (sharing.Pod, bool, error)
}

// Options are what a Preparer is made of.
type Options struct {
	Log  *slog.Logger
	Node Node
	Pods Pods
	// Write writes the CDI devices of exactly these requests of claims.
	Write func(asks []sharing.ResourceRequest) error
	// Reject reports to a pod why its claims were rejected.
	Reject func(ctx context.Context, pod sharing.ContainerRef, message string)
	// Eval evaluates a failpoint; nil outside of crash tests.
	Eval func(point string) error
}

// Preparer prepares claims. It is safe for concurrent use.
type Preparer struct {
	Options
	// mu makes one write of the CDI devices wait for another, so that the last one is of the newest grants. It is held
	// over writes to the disk, but not while Prepare waits for pods, GPUs or instances.
	mu sync.Mutex
}

// New returns a Preparer.
func New(opt Options) *Preparer {
	if opt.Eval == nil {
		opt.Eval = func(string) error { return nil }
	}
	return &Preparer{Options: opt}
}

// Restore has the CDI devices of the prepared claims written again: those of an agent before may name another hook.
func (p *Preparer) Restore() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.Write(p.prepared(nil))
}

// Prepare reserves what a pod's containers get from claims. kubelet passes all claims of one pod that it has not
// prepared yet.
//
// ErrInvalid or ErrUnsupported: the node can never enforce the claims. ErrUnavailable or another error: kubelet tries
// again.
func (p *Preparer) Prepare(ctx context.Context, claims []dra.Claim) error {
	pod, err := p.podOf(ctx, claims)
	if err != nil {
		return err
	}
	ref := sharing.ContainerRef{PodUID: pod.UID, Namespace: pod.Namespace, Pod: pod.Name}
	if err := p.prepare(ctx, pod, claims); err != nil {
		p.Log.Warn("rejected claims", "pod", pod.Namespace+"/"+pod.Name, "pod_uid", pod.UID, "claims", names(claims),
			"error", err)
		if p.Reject != nil {
			p.Reject(ctx, ref, fmt.Sprintf("Kerf did not prepare GPU claims %v of the pod: %v.", names(claims), err))
		}
		return err
	}
	return nil
}

func (p *Preparer) prepare(ctx context.Context, pod sharing.Pod, claims []dra.Claim) error {
	if err := p.reserve(ctx, pod, claims); err != nil {
		return err
	}
	if err := p.Node.AwaitInstances(ctx, pod.UID); err != nil {
		return err
	}
	if err := p.Eval(pointCreated); err != nil {
		return err
	}
	return p.show(claims)
}

// reserve returns once the grants of a pod are on disk.
func (p *Preparer) reserve(ctx context.Context, pod sharing.Pod, claims []dra.Claim) error {
	asks, err := dra.Requests(pod, claims, p.Node.GPUs())
	if err != nil {
		return err
	}
	if err := p.Node.ReservePod(ctx, asks); err != nil {
		return err
	}
	if err := p.Eval(pointReserved); err != nil {
		return err
	}
	// On disk before kubelet knows: the next agent finds the grants, and kubelet does not ask again.
	if err := p.Node.Save(); err != nil {
		return err
	}
	return p.Eval(pointRecorded)
}

// show has the CDI devices of claims written.
func (p *Preparer) show(claims []dra.Claim) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var more []sharing.ResourceRequest
	for _, c := range claims {
		more = append(more, c.ResourceRequests()...)
	}
	if err := p.Write(p.prepared(more)); err != nil {
		return err
	}
	return p.Eval(pointPrepared)
}

// Prepared names the claims of all grants. kubelet does not prepare them again after a restart of the agent. The error
// says which pod is not known yet.
func (p *Preparer) Prepared(ctx context.Context) ([]dra.ClaimRef, error) {
	uids := map[string][]string{}
	for _, g := range p.Node.Grants() {
		if g.Withdrawn != ledger.NotWithdrawn || !sharing.OfClaims(g.Requests) {
			continue
		}
		for _, a := range g.Requests {
			uids[g.Owner.PodUID] = append(uids[g.Owner.PodUID], a.ClaimUID())
		}
	}
	var out []dra.ClaimRef
	var errs []error
	for _, pod := range slices.Sorted(maps.Keys(uids)) {
		known, ok, err := p.pod(ctx, pod)
		if !ok {
			errs = append(errs, fmt.Errorf("pod %q is not known: %w", pod, errors.Join(err, sharing.ErrUnavailable)))
		}
		for _, c := range known.Claims {
			out = append(out, dra.ClaimRef{Namespace: known.Namespace, Name: c.Claim, UIDs: uids[pod]})
		}
	}
	return out, errors.Join(errs...)
}

// Unprepare ends the grants of claims, by UID. Their memory is free once no process uses it. A claim that is not
// prepared is no error.
func (p *Preparer) Unprepare(uids []string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.Node.EndClaims(uids); err != nil {
		return err
	}
	if err := p.Eval(pointUnprepared); err != nil {
		return err
	}
	return p.Write(p.prepared(nil))
}

// prepared are the requests of all claims that have a grant and are not unprepared, and more. The grant may be that of
// a pod that ended: kubelet keeps a claim prepared for the next pod.
func (p *Preparer) prepared(more []sharing.ResourceRequest) []sharing.ResourceRequest {
	out := slices.Clone(more)
	for _, g := range p.Node.Grants() {
		if g.Withdrawn != ledger.ClaimEnded && sharing.OfClaims(g.Requests) {
			out = append(out, g.Requests...)
		}
	}
	sharing.SortResourceRequests(out)
	return slices.Compact(out)
}

// podOf is the pod for which kubelet prepares the claims: one that all of them are reserved for. If there are several,
// it is the one that has a grant already, else the first that runs on this node.
func (p *Preparer) podOf(ctx context.Context, claims []dra.Claim) (sharing.Pod, error) {
	var uids []string
	for i, c := range claims {
		if i == 0 {
			uids = slices.Clone(c.Pods)
		}
		uids = slices.DeleteFunc(uids, func(uid string) bool { return !slices.Contains(c.Pods, uid) })
	}
	has := func(uid string) bool {
		return slices.ContainsFunc(p.Node.Grants(), func(g ledger.Grant) bool {
			return g.Owner.PodUID == uid && slices.ContainsFunc(g.Requests, func(a sharing.ResourceRequest) bool {
				return slices.ContainsFunc(claims, func(c dra.Claim) bool { return a.ClaimUID() == c.UID })
			})
		})
	}
	slices.SortStableFunc(uids, func(a, b string) int {
		switch x, y := has(a), has(b); {
		case x && !y:
			return -1
		case y && !x:
			return 1
		}
		return 0
	})
	var errs []error
	for _, uid := range uids {
		pod, ok, err := p.pod(ctx, uid)
		if ok && !pod.Terminal {
			return pod, nil
		}
		errs = append(errs, err)
	}
	return sharing.Pod{}, fmt.Errorf("no pod of this node is known for which claims %v are reserved: %w", names(claims),
		errors.Join(append(errs, sharing.ErrUnavailable)...))
}

// pod waits for one pod. Each has its own time: one that is never reported takes none from the next.
func (p *Preparer) pod(ctx context.Context, uid string) (sharing.Pod, bool, error) {
	ctx, cancel := context.WithTimeout(ctx, podPatience)
	defer cancel()
	return p.Pods.Pod(ctx, uid) //nolint:wrapcheck // it names the pod
}

func names(claims []dra.Claim) []string {
	var out []string
	for _, c := range claims {
		out = append(out, c.String())
	}
	return out
}
