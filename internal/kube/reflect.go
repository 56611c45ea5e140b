// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"log/slog"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// followed is what a reflector follows: the objects of one type that the selector leaves.
type followed struct {
	of             runtime.Object
	name, resource string // for logs
	selector       string
	// A list has a deadline. A watch has its end in its options, and the connection its own health checks.
	list  func(context.Context, metav1.ListOptions) (runtime.Object, error)
	watch func(context.Context, metav1.ListOptions) (watch.Interface, error)
	store cache.ReflectorStore
}

// follow keeps the store as the API server has it until ctx ends.
func follow(ctx context.Context, log *slog.Logger, f followed) {
	logger := logr.FromSlogHandler(quiet{log.Handler()})
	lw := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			ctx, cancel := context.WithTimeout(ctx, listTimeout)
			defer cancel()
			o.FieldSelector = f.selector
			return f.list(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.FieldSelector = f.selector
			return f.watch(ctx, o)
		},
	}
	cache.NewReflectorWithOptions(lw, f.of, f.store, cache.ReflectorOptions{
		Logger: &logger, Name: f.name, TypeDescription: f.resource,
		Backoff: &wait.Backoff{Duration: firstRetry, Cap: lastRetry, Steps: 10, Factor: 2, Jitter: 0.5},
	}).RunWithContext(logr.NewContext(ctx, logger))
}

// single is the store of a reflector that follows one object. It keeps nothing, and tells of the object, or that there
// is none.
type single[T runtime.Object] struct {
	is   func(T)
	gone func()
}

// Add tells of the object.
func (s single[T]) Add(obj any) error { return s.Update(obj) }

// Update tells of the object.
func (s single[T]) Update(obj any) error {
	one, ok := obj.(T)
	if !ok {
		return unexpected(obj)
	}
	s.is(one)
	return nil
}

// Delete tells that there is none.
func (s single[T]) Delete(any) error {
	s.gone()
	return nil
}

// Replace tells of the object, or that there is none.
func (s single[T]) Replace(list []any, _ string) error {
	if len(list) == 0 {
		return s.Delete(nil)
	}
	return s.Update(list[0])
}

// Resync has nothing to do.
func (s single[T]) Resync() error { return nil }
