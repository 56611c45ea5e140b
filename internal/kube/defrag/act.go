// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package defrag

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/kerf-gpu/kerf/api/gpunode"
	"github.com/kerf-gpu/kerf/internal/kube/access"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/defrag/control"
)

// act does what was decided.
func (r *Runner) act(ctx context.Context, s *Status) error {
	switch s.Act {
	case control.Cordon:
		return r.mark(ctx, s.Record, s.node, true)
	case control.Uncordon:
		return r.mark(ctx, s.Record, s.node, false)
	case control.Evict:
		return r.evict(ctx, s)
	case control.Nothing, control.Finished, control.Failed:
	}
	return nil
}

// mark cordons the GPUs of a record, or uncordons those that this package has cordoned. A GPU that an administrator
// has cordoned stays so. Nothing happens if the GPUNode has changed.
func (r *Runner) mark(ctx context.Context, record control.Record, o gpunode.Object, cordon bool) error {
	spec := o.Spec
	for _, g := range record.GPUs {
		i := slices.IndexFunc(spec.CordonedGPUs, func(c gpunode.Cordon) bool { return c.UUID == g })
		switch {
		case i < 0 && cordon:
			spec = spec.With(gpunode.Cordon{UUID: g, By: by, Reason: "kept for pod " + record.For.String(),
				Since: record.Since.UTC().Format(time.RFC3339)})
		case i >= 0 && spec.CordonedGPUs[i].By == by && !cordon:
			spec = spec.Without(g)
		}
	}
	patch := map[string]any{"metadata": map[string]string{"resourceVersion": o.Metadata.ResourceVersion},
		"spec": gpunode.SpecPatch(o.Spec, spec)}
	err := r.API.Do(ctx, http.MethodPatch, gpuNodesPath+"/"+url.PathEscape(record.Node),
		url.Values{"fieldManager": {by}}, &access.Body{Type: access.MergePatch, Value: patch}, nil)
	if err != nil && !errors.Is(err, sharing.ErrConflict) { // the next step tries again
		return fmt.Errorf("change cordons of gpunode %s: %w", record.Node, err)
	}
	return nil
}

// eviction is a policy/v1 Eviction.
type eviction struct {
	APIVersion    string         `json:"apiVersion"`
	Kind          string         `json:"kind"`
	Metadata      meta           `json:"metadata"`
	DeleteOptions map[string]any `json:"deleteOptions"`
}

// evict evicts one pod through the Eviction API, which respects disruption budgets.
func (r *Runner) evict(ctx context.Context, s *Status) error {
	p := s.Move.Pod
	body := eviction{"policy/v1", "Eviction", meta{Name: p.Name, Namespace: p.Namespace},
		map[string]any{"preconditions": map[string]string{"uid": p.UID}}}
	path := "/api/v1/namespaces/" + url.PathEscape(p.Namespace) + "/pods/" + url.PathEscape(p.Name) + "/eviction"
	err := r.API.Do(ctx, http.MethodPost, path, nil, &access.Body{Type: access.JSON, Value: body}, nil)
	switch {
	case errors.Is(err, sharing.ErrConflict):
		s.Reason = fmt.Sprintf("pod %s: %v", p, err) // a disruption budget, or another pod of the name
	case err != nil && !errors.Is(err, sharing.ErrNotFound):
		return fmt.Errorf("evict pod %s: %w", p, err)
	}
	return nil
}
