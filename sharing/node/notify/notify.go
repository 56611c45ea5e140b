// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package notify tells pods, admins and the audit log what happens to grants, and evicts pods.
package notify

import (
	"context"
	"time"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/ledger"
)

// evictDeadline bounds one request for an eviction.
const evictDeadline = 10 * time.Second

// Observer counts evictions and kills. An error says why one failed.
type Observer interface {
	Evicted(reason string, err error)
	Killed(reason string, err error)
}

// Notifier reaches the users of grants. Its fields are set before its first use and do not change. Nil functions do
// nothing.
type Notifier struct {
	Audit    Audit
	Observer Observer
	// ToPod tells the users of a pod of one of its containers. ToNode tells those who run the node. Both return at
	// once.
	ToPod  func(ctx context.Context, ref sharing.ContainerRef, reason, message string)
	ToNode func(ctx context.Context, reason, message string)
	// Evictor has a pod deleted with the grace that it requests. It returns nil if the pod ends or is gone.
	Evictor func(ctx context.Context, ref sharing.ContainerRef) error
	// LabelsOf returns the labels of a pod without waiting, and nil for a pod that is not known.
	LabelsOf func(uid string) map[string]string
}

// Pod tells the users of the pod that a grant is of, if it is of one.
func (n *Notifier) Pod(ctx context.Context, g ledger.Grant, reason, message string) {
	if n.ToPod != nil && g.Owner.Pod() {
		n.ToPod(ctx, Ref(g), reason, message)
	}
}

// Node tells those who run the node.
func (n *Notifier) Node(ctx context.Context, reason, message string) {
	if n.ToNode != nil {
		n.ToNode(ctx, reason, message)
	}
}

// CanEvict reports whether a grant is of a pod that can be evicted.
func (n *Notifier) CanEvict(g ledger.Grant) bool { return n.Evictor != nil && g.Owner.Pod() }

// Evict evicts the pod of a grant, which CanEvict allows. reason is for the observer.
func (n *Notifier) Evict(ctx context.Context, g ledger.Grant, reason string) error {
	ctx, cancel := context.WithTimeout(ctx, evictDeadline)
	defer cancel()
	err := n.Evictor(ctx, Ref(g))
	n.Observer.Evicted(reason, err)
	return err
}

// Labels are those of the pod of a grant; nil if they are not known.
func (n *Notifier) Labels(g ledger.Grant) map[string]string {
	if n.LabelsOf == nil || g.Owner.PodUID == "" {
		return nil
	}
	return n.LabelsOf(g.Owner.PodUID)
}

// Ref names the container that uses a pod's grant, or that it is reserved for.
func Ref(g ledger.Grant) sharing.ContainerRef {
	o := g.Owner
	ref := sharing.ContainerRef{PodUID: o.PodUID, Namespace: o.Namespace, Pod: o.PodName, Container: o.Container}
	if g.Active != nil {
		ref.Container = g.Active.Container
	}
	return ref
}
