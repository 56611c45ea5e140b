// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kerf-gpu/kerf/sharing"
)

// Where this node's object and its heartbeat are. Lease is coordination.k8s.io/v1's.
const (
	gpuNodes     = "/apis/kerf.dev/v1alpha1/gpunodes/"
	leasesOfKerf = "/apis/coordination.k8s.io/v1/namespaces/kerf-system/leases/"
	// heartbeatPrefix stands before the node's name in the name of its Lease.
	heartbeatPrefix = "kerf-node-"
	// fieldManager owns what is applied.
	fieldManager = "kerf-agent"

	gpuNodeVersion = "kerf.dev/v1alpha1"
	gpuNodeKind    = "GPUNode"
)

// object is what is applied: a subset of an object's fields.
type object struct {
	APIVersion string          `json:"apiVersion"`
	Kind       string          `json:"kind"`
	Metadata   map[string]any  `json:"metadata"`
	Spec       map[string]any  `json:"spec,omitempty"`
	Status     json.RawMessage `json:"status,omitempty"`
}

// PublishStatus writes the status of this node's GPUNode, a JSON object, by server-side apply, and makes the object
// where there is none. The Node owns it. Errors: sharing.ErrDenied (no right to it), sharing.ErrNotFound (the cluster
// does not know the kind), sharing.ErrInvalid (the schema does not take it), sharing.ErrUnavailable.
func (c *Client) PublishStatus(ctx context.Context, status json.RawMessage) error {
	if c.owner.changed() {
		if err := c.makeGPUNode(ctx); err != nil {
			return err
		}
	}
	o := object{APIVersion: gpuNodeVersion, Kind: gpuNodeKind, Metadata: map[string]any{"name": c.node}, Status: status}
	err := c.core.apply(ctx, gpuNodes+c.node+"/status", o)
	if apierrors.IsNotFound(err) {
		if err := c.makeGPUNode(ctx); err != nil {
			return err
		}
		err = c.core.apply(ctx, gpuNodes+c.node+"/status", o)
	}
	return applied("write the status of gpunode "+c.node, err)
}

// makeGPUNode makes this node's GPUNode, or gives it the owner that it lacks.
func (c *Client) makeGPUNode(ctx context.Context) error {
	o := object{APIVersion: gpuNodeVersion, Kind: gpuNodeKind,
		Metadata: map[string]any{"name": c.node, "labels": ownLabels()}}
	uid := c.owner.of(c.node, o.Metadata)
	if err := c.core.apply(ctx, gpuNodes+c.node, o); err != nil {
		return applied("make gpunode "+c.node, err)
	}
	c.owner.wrote(uid)
	return nil
}

// ownLabels are those by which everything of Kerf's is found.
func ownLabels() map[string]string { return map[string]string{"app.kubernetes.io/part-of": "kerf"} }

// Heartbeat renews the Lease of this node's agent. If it is older than valid, readers may treat the node's GPUNode as
// stale. Errors are those of PublishStatus.
func (c *Client) Heartbeat(ctx context.Context, now time.Time, valid time.Duration) error {
	name := heartbeatPrefix + c.node
	metadata := map[string]any{"name": name, "namespace": "kerf-system", "labels": ownLabels()}
	c.owner.of(c.node, metadata)
	return applied("renew lease kerf-system/"+name, c.core.apply(ctx, leasesOfKerf+name, object{
		APIVersion: "coordination.k8s.io/v1", Kind: "Lease",
		Metadata: metadata,
		Spec: map[string]any{
			"holderIdentity": c.node, "leaseDurationSeconds": int(valid / time.Second),
			"renewTime": now.UTC().Format("2006-01-02T15:04:05.000000Z07:00"),
		},
	}))
}

// apply writes an object by server-side apply.
func (c *core) apply(ctx context.Context, path string, o object) error {
	body, err := json.Marshal(o)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return c.RESTClient().Patch(types.ApplyPatchType).AbsPath(path).
		Param("fieldManager", fieldManager).Param("force", "true").Param("fieldValidation",
		"Strict").Body(body).Do(ctx).Error()
}

// applied puts an error into Kerf's vocabulary.
func applied(doing string, err error) error {
	switch {
	case err == nil:
		return nil
	case apierrors.IsNotFound(err):
		return fmt.Errorf("%s: %w (%w; is deploy/manifests applied whole?)", doing, err, sharing.ErrNotFound)
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err):
		return fmt.Errorf("%s: %w (%w)", doing, err, sharing.ErrInvalid)
	}
	return refused(doing, err)
}
