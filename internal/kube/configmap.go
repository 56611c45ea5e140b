// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// FollowConfigMap tells what is in one ConfigMap, at first and whenever it changes, or why that cannot be told (sharing.ErrDenied,
// sharing.ErrUnavailable), until ctx ends. data is nil while there is no such ConfigMap. Nothing else is listed or watched, so
// that the right to the one name is enough. tell is called from one goroutine at a time.
func (c *Client) FollowConfigMap(ctx context.Context, namespace, name string, tell func(data map[string]string, err error)) {
	logger := logr.FromSlogHandler(quiet{c.log.Handler()})
	ctx = logr.NewContext(ctx, logger)
	selector := fields.OneTermEqualSelector("metadata.name", name).String()
	maps := c.core.ConfigMaps(namespace)
	lw := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			ctx, cancel := context.WithTimeout(ctx, listTimeout)
			defer cancel()
			o.FieldSelector = selector
			list, err := maps.List(ctx, o)
			if err != nil && ctx.Err() == nil {
				tell(nil, refused("read configmap "+namespace+"/"+name, err))
			}
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.FieldSelector = selector
			return maps.Watch(ctx, o)
		},
	}
	cache.NewReflectorWithOptions(lw, &corev1.ConfigMap{}, mapStore{tell}, cache.ReflectorOptions{
		Logger: &logger, Name: "the configuration", TypeDescription: "configmaps",
		Backoff: &wait.Backoff{Duration: firstRetry, Cap: lastRetry, Steps: 10, Factor: 2, Jitter: 0.5},
	}).RunWithContext(ctx)
}

// mapStore is the reflector's store of one ConfigMap: it keeps nothing.
type mapStore struct {
	tell func(map[string]string, error)
}

// Add tells of the ConfigMap.
func (s mapStore) Add(obj any) error { return s.Update(obj) }

// Update tells of the ConfigMap.
func (s mapStore) Update(obj any) error {
	m, ok := obj.(*corev1.ConfigMap)
	if !ok {
		return unexpected(obj)
	}
	data := m.Data
	if data == nil {
		data = map[string]string{}
	}
	s.tell(data, nil)
	return nil
}

// Delete tells that there is none.
func (s mapStore) Delete(any) error {
	s.tell(nil, nil)
	return nil
}

// Replace tells of the ConfigMap, or that there is none.
func (s mapStore) Replace(list []any, _ string) error {
	if len(list) == 0 {
		return s.Delete(nil)
	}
	return s.Update(list[0])
}

// Resync has nothing to do.
func (s mapStore) Resync() error { return nil }
