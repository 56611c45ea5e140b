// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package command

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"

	"github.com/kerf-gpu/kerf/api/gpunode"
	"github.com/kerf-gpu/kerf/internal/kube/access"
	"github.com/kerf-gpu/kerf/sharing"
)

// specTries is how often a spec is written that meets another change of the object.
const specTries = 10

// GPUNodePath is the path of a node's GPUNode.
func GPUNodePath(node string) string { return GPUNodesPath + "/" + url.PathEscape(node) }

// ChangeSpec changes the spec of a node's GPUNode. It tries again if another client changes the object meanwhile.
func ChangeSpec(ctx context.Context, api *access.Client, node, manager string,
	change func(gpunode.Object) gpunode.Spec) error {
	var err error
	for range specTries {
		if err = changeSpec(ctx, api, node, manager, change); !errors.Is(err, sharing.ErrConflict) {
			break
		}
	}
	if err != nil {
		return fmt.Errorf("change gpunode %s: %w", node, err)
	}
	return nil
}

// changeSpec replaces the spec, if the object has not changed since it was read.
func changeSpec(ctx context.Context, api *access.Client, node, manager string,
	change func(gpunode.Object) gpunode.Spec) error {
	var o gpunode.Object
	if err := api.Get(ctx, GPUNodePath(node), nil, &o); err != nil {
		return err //nolint:wrapcheck // ChangeSpec says what it did
	}
	patch := map[string]any{
		"metadata": map[string]string{"resourceVersion": o.Metadata.ResourceVersion},
		"spec":     gpunode.SpecPatch(o.Spec, change(o)),
	}
	return api.Do(ctx, http.MethodPatch, GPUNodePath(node), //nolint:wrapcheck // ChangeSpec says what it did
		url.Values{"fieldManager": {manager}}, &access.Body{Type: access.MergePatch, Value: patch}, nil)
}
