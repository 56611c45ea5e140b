// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package drain

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"time"

	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kerf-gpu/kerf/api/gpunode"
	"github.com/kerf-gpu/kerf/internal/cli/command"
	"github.com/kerf-gpu/kerf/internal/kube/access"
	"github.com/kerf-gpu/kerf/sharing"
)

// draining is a GPU that a command marks, or the driver of a node, and the state of its waiting.
type draining struct {
	api  *access.Client
	task *task
	tell io.Writer
	// gpu is empty for the driver. The command names the object by what.
	node, gpu, name, what string
	// said has what was printed already.
	said map[string]bool
}

// mark changes the spec of the node's GPUNode.
func (d *draining) mark(ctx context.Context, change func(gpunode.Spec) gpunode.Spec) error {
	err := command.ChangeSpec(ctx, d.api, d.node, "kerf-drain", func(o gpunode.Object) gpunode.Spec {
		return change(o.Spec)
	})
	if err != nil {
		return fmt.Errorf("mark %s: %w", d.what, err)
	}
	return nil
}

func (d *draining) path() string { return command.GPUNodePath(d.node) }

// wait returns nil once the agent has heard of the mark and nothing is on the GPU, or the driver is released.
func (d *draining) wait(ctx context.Context) error {
	var left string
	tick := time.NewTicker(drainEvery)
	defer tick.Stop()
	for {
		now, err := d.look(ctx)
		switch {
		case err == nil && now == "":
			return nil
		case err == nil:
			left = now
			d.once(now)
		case ctx.Err() == nil && !errors.Is(err, sharing.ErrUnavailable):
			return err
		case ctx.Err() == nil:
			d.once("cannot be looked at: " + err.Error())
		}
		select {
		case <-ctx.Done():
			if stopped, ok := errors.AsType[*command.InterruptedError](context.Cause(ctx)); ok {
				return command.Exit(stopped.Code(), fmt.Errorf("stopped; %s stays marked", d.what))
			}
			return fmt.Errorf("after %v %s %s; the mark stays: %w", d.task.timeout, d.what, left,
				sharing.ErrUnavailable)
		case <-tick.C:
		}
	}
}

// look says what is still to be waited for, empty when nothing is, and evicts where that is asked.
func (d *draining) look(ctx context.Context) (string, error) {
	var o gpunode.Object
	if err := d.api.Get(ctx, d.path(), nil, &o); err != nil {
		return "", fmt.Errorf("read gpunode %s: %w", d.node, err)
	}
	if !d.heard(o) {
		return "waits until the agent of " + d.node + " has read the mark", nil
	}
	var pods, others []string
	seen := map[string]bool{}
	for _, c := range o.Status.Grants {
		if !d.on(c) || c.PodUID != "" && seen[c.PodUID] {
			continue
		}
		if c.PodUID == "" {
			others = append(others, c.ID)
			continue
		}
		seen[c.PodUID] = true
		pods = append(pods, c.Namespace+"/"+c.Pod)
		if d.task.evict {
			if err := d.evict(ctx, c); err != nil {
				return "", err
			}
		}
	}
	switch {
	case len(pods) > 0:
		return "waits for " + some(append(pods, others...), 8), nil
	case len(others) > 0:
		return "waits for programs of no pod, grants " + some(others, 8), nil
	case d.gpu == "" && !o.Status.DriverReleased():
		return "waits until kerf-agent and kerf-monitor release it", nil
	}
	return "", nil
}

// heard reports whether the agent has read the mark.
func (d *draining) heard(o gpunode.Object) bool {
	if d.gpu == "" {
		return o.Status.ObservedGeneration >= o.Metadata.Generation
	}
	return slices.ContainsFunc(o.Status.GPUs, func(g gpunode.GPU) bool { return g.UUID == d.gpu && g.Cordoned != "" })
}

func (d *draining) on(c gpunode.Grant) bool {
	if d.gpu == "" {
		return true
	}
	for _, f := range c.Shares {
		if f.GPU == d.gpu {
			return true
		}
	}
	return false
}

// evict asks for the pod's eviction. If a disruption budget blocks it, evict prints that and tries again.
func (d *draining) evict(ctx context.Context, c gpunode.Grant) error {
	pod := c.Namespace + "/" + c.Pod
	at := "/api/v1/namespaces/" + url.PathEscape(c.Namespace) + "/pods/" + url.PathEscape(c.Pod)
	var found metav1.PartialObjectMetadata
	err := d.api.Get(ctx, at, nil, &found)
	switch {
	case errors.Is(err, sharing.ErrNotFound), err == nil && string(found.UID) != c.PodUID, err == nil &&
		found.DeletionTimestamp != nil:
		return nil // it is going, or has gone
	case err != nil:
		return fmt.Errorf("read pod %s: %w", pod, err)
	case metav1.GetControllerOf(&found) == nil && !d.task.force:
		d.once("does not evict " + pod + ", which no controller replaces: add --force, or delete it")
		return nil
	}
	uid := types.UID(c.PodUID)
	eviction := policyv1.Eviction{
		TypeMeta:      metav1.TypeMeta{APIVersion: "policy/v1", Kind: "Eviction"},
		ObjectMeta:    metav1.ObjectMeta{Namespace: c.Namespace, Name: c.Pod},
		DeleteOptions: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}},
	}
	err = d.api.Do(ctx, http.MethodPost, at+"/eviction", nil, &access.Body{Type: access.JSON, Value: eviction}, nil)
	switch {
	case err == nil:
		d.once("evicts " + pod)
	case errors.Is(err, sharing.ErrNotFound):
	case errors.Is(err, sharing.ErrConflict):
		d.once("cannot evict " + pod + " yet: " + err.Error())
	default:
		return fmt.Errorf("evict pod %s: %w", pod, err)
	}
	return nil
}

// once tells a sentence the first time.
func (d *draining) once(sentence string) {
	if !d.said[sentence] {
		d.said[sentence] = true
		_, _ = fmt.Fprintf(d.tell, "%s %s\n", d.what, sentence)
	}
}
