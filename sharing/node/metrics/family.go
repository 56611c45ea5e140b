// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"
)

// family is one metric of things of one type.
type family[T any] struct {
	desc   *prometheus.Desc
	kind   prometheus.ValueType
	value  func(T) (v float64, known bool)
	labels func(T) []string
}

type families[T any] []family[T]

func (all families[T]) describe(ch chan<- *prometheus.Desc) {
	for _, f := range all {
		ch <- f.desc
	}
}

// collect sends the values of one thing. What is not known is left out.
func (all families[T]) collect(ch chan<- prometheus.Metric, of T) {
	for _, f := range all {
		if v, known := f.value(of); known {
			ch <- prometheus.MustNewConstMetric(f.desc, f.kind, v, f.labels(of)...)
		}
	}
}

// labels are names, and how the values of a thing are read.
type labels[T any] struct {
	names []string
	of    func(T) []string
}

func (l labels[T]) gauge(name, help string, value func(T) (float64, bool)) family[T] {
	return family[T]{prometheus.NewDesc(name, help, l.names, nil), prometheus.GaugeValue, value, l.of}
}

func (l labels[T]) counter(name, help string, value func(T) (float64, bool)) family[T] {
	f := l.gauge(name, help, value)
	f.kind = prometheus.CounterValue
	return f
}

// and are the labels with one more.
func (l labels[T]) and(name string, of func(T) string) labels[T] {
	return labels[T]{append(slices.Clip(l.names), name), func(t T) []string { return append(l.of(t), of(t)) }}
}

type number interface {
	~int32 | ~int64 | ~uint32 | ~uint64 | ~float64
}

// always is a value that is known.
func always[T any, N number](get func(T) N) func(T) (float64, bool) {
	return func(t T) (float64, bool) { return float64(get(t)), true }
}

// when is a value that is known under a condition.
func when[T any, N number](known func(T) bool, get func(T) N) func(T) (float64, bool) {
	return func(t T) (float64, bool) { return float64(get(t)), known(t) }
}

// count is a length.
func count[T, E any](get func(T) []E) func(T) (float64, bool) {
	return func(t T) (float64, bool) { return float64(len(get(t))), true }
}

// truth is 1 for what is true, else 0.
func truth[T any](get func(T) bool) func(T) (float64, bool) {
	return func(t T) (float64, bool) {
		if get(t) {
			return 1, true
		}
		return 0, true
	}
}

// info is the value of a metric whose labels tell everything.
func info[T any](T) (float64, bool) { return 1, true }
