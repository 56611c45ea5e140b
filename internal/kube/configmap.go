// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kerf-gpu/kerf/sharing"
)

// WatchConfigMap sends the data of one ConfigMap, first and after each change, or the error (sharing.ErrDenied,
// sharing.ErrUnavailable), until ctx ends. Without such a ConfigMap, data is nil. It lists and watches nothing else, so
// the right to that name is enough. It calls tell from one goroutine at a time.
func (c *Client) WatchConfigMap(ctx context.Context, namespace, name string,
	tell func(data map[string]string, err error)) {
	maps := c.core.ConfigMaps(namespace)
	follow(ctx, c.log, followed{
		of: &corev1.ConfigMap{}, name: "the configuration", resource: "configmaps",
		selector: fields.OneTermEqualSelector("metadata.name", name).String(),
		list: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			list, err := maps.List(ctx, o)
			if err != nil && ctx.Err() == nil {
				tell(nil, refused("read configmap "+namespace+"/"+name, err))
			}
			return list, err
		},
		watch: maps.Watch,
		store: single[*corev1.ConfigMap]{
			is: func(m *corev1.ConfigMap) {
				data := m.Data
				if data == nil {
					data = map[string]string{}
				}
				tell(data, nil)
			},
			gone: func() { tell(nil, nil) },
		},
	})
}

// NamespaceLabels are the labels of a namespace. Errors: sharing.ErrDenied, with what gives the right, and
// sharing.ErrUnavailable.
func (c *Client) NamespaceLabels(ctx context.Context, name string) (map[string]string, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	var n corev1.Namespace
	err := c.core.RESTClient().Get().Resource("namespaces").Name(name).Do(ctx).Into(&n)
	if err == nil {
		return n.Labels, nil
	}
	if err = refused("read the labels of namespace "+name, err); errors.Is(err, sharing.ErrDenied) {
		err = fmt.Errorf("%w; apply deploy/manifests/10-rbac.yaml", err)
	}
	return nil, err
}

const (
	// cordonWatch is how long one watch of this node's object lasts at the most, in seconds.
	cordonWatch = "300"
	// cordonRetry is the pause before the next watch, which grows up to cordonLast while none comes about.
	cordonRetry = time.Second
	cordonLast  = time.Minute
)

// Spec is the spec of this node's GPUNode, null for an object without one, and its generation.
type Spec struct {
	Generation int64
	Text       json.RawMessage
}

// WatchSpec sends the spec of this node's GPUNode, first and after each change, until ctx ends. It sends errors
// (sharing.ErrDenied, sharing.ErrNotFound, sharing.ErrUnavailable), and tries again. tell is called from one goroutine.
func (c *Client) WatchSpec(ctx context.Context, tell func(Spec, error)) {
	wait := cordonRetry
	for ctx.Err() == nil {
		heard, err := c.watchSpec(ctx, tell)
		if ctx.Err() != nil {
			return
		}
		if err != nil && !heard {
			tell(Spec{}, err)
			wait = min(2*wait, cordonLast)
		} else {
			wait = cordonRetry
		}
		t := time.NewTimer(wait)
		select {
		case <-ctx.Done():
		case <-t.C:
		}
		t.Stop()
	}
}

// watchSpec reads one watch to its end; heard is true if it had any event.
func (c *Client) watchSpec(ctx context.Context, tell func(Spec, error)) (heard bool, err error) {
	doing := "watch gpunode " + c.node
	stream, err := c.core.RESTClient().Get().AbsPath(gpuNodes[:len(gpuNodes)-1]).SetHeader("Accept",
		"application/json").
		Param("watch", "true").Param("fieldSelector", "metadata.name="+c.node).Param("timeoutSeconds",
		cordonWatch).Stream(ctx)
	if err != nil {
		return false, applied(doing, err)
	}
	defer func() { _ = stream.Close() }()
	for d := json.NewDecoder(stream); ; {
		var e struct {
			Type   string
			Object struct {
				Message  string
				Metadata struct{ Generation int64 }
				Spec     json.RawMessage
			}
		}
		if err := d.Decode(&e); err != nil {
			return heard, refused(doing, err)
		}
		switch e.Type {
		case "ADDED", "MODIFIED":
			heard = true
			tell(Spec{e.Object.Metadata.Generation, e.Object.Spec}, nil)
		case "ERROR":
			return heard, refused(doing, fmt.Errorf("the API server ends it: %s", e.Object.Message))
		}
	}
}
