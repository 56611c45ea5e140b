// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package exposition turns the monitor's newest snapshot into Prometheus metrics. It has Kerf's own series, and the
// names and labels of dcgm-exporter for the same facts, so that dashboards made for it work.
//
// It promises that an unknown value is absent, never zero. The rows of a GPU's usage add up to the GPU, because
// unattributed usage has separate rows. GPUs, MIG instances and current grants bound the number of series: no label
// has a pid or a container id.
//
// A scrape reads the newest snapshot and calls nothing else.
package exposition

import (
	"slices"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/kerf-gpu/kerf/monitor/collect"
)

// Options say what is exposed.
type Options struct {
	// Latest returns the newest snapshot, or nil.
	Latest func() *collect.Snapshot
	// Version is the monitor's, and Hostname the node's, as labels.
	Version, Hostname string
	// Fields are those that are exposed under dcgm-exporter's names; nil means all.
	Fields []collect.FieldInfo
}

// Gatherer turns the newest snapshot into metrics at each scrape. It is a prometheus.Gatherer and safe for concurrent
// use. It makes the metrics itself, and not through a registry: that would check and sort at each scrape what a test
// checks once.
type Gatherer struct {
	opts     Options
	families []family

	mu     sync.Mutex
	labels labels
}

// New makes a gatherer.
func New(o Options) *Gatherer {
	if o.Fields == nil {
		o.Fields = collect.Fields()
	}
	return &Gatherer{opts: o, families: describe()}
}

// Gather implements prometheus.Gatherer. The error is always nil.
func (g *Gatherer) Gather() ([]*dto.MetricFamily, error) {
	s := g.opts.Latest()
	if s == nil {
		return nil, nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.labels.next()
	out := scrape{Gatherer: g, snapshot: s, own: make([]*dto.MetricFamily, len(g.families)),
		fields: make([]*dto.MetricFamily, len(g.opts.Fields))}
	for _, f := range g.families {
		out.own[f.number] = f.empty()
	}
	for i, f := range g.opts.Fields {
		out.fields[i] = family{name: f.Name, help: f.Help, counter: f.Kind == collect.Counter}.empty()
	}
	out.all()
	return inOrder(slices.Concat(out.own, out.fields)), nil
}

// Merge returns a gatherer of both. They must have no common name.
func Merge(a, b prometheus.Gatherer) prometheus.Gatherer {
	return prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) {
		one, err := a.Gather()
		if err != nil {
			return nil, err
		}
		two, err := b.Gather() // with an error there may be families, too
		return inOrder(append(one, two...)), err
	})
}

// inOrder sorts families by name and leaves out those without metrics.
func inOrder(all []*dto.MetricFamily) []*dto.MetricFamily {
	all = slices.DeleteFunc(all, func(f *dto.MetricFamily) bool { return len(f.Metric) == 0 })
	slices.SortFunc(all, func(a, b *dto.MetricFamily) int { return strings.Compare(a.GetName(), b.GetName()) })
	return all
}

// scrape is one of them under way.
type scrape struct {
	*Gatherer
	snapshot    *collect.Snapshot
	own, fields []*dto.MetricFamily
	cells       []cell
}

// cell is a metric with its value, in one allocation.
type cell struct {
	metric  dto.Metric
	gauge   dto.Gauge
	counter dto.Counter
	value   float64
}

// cellsAtOnce is how many are allocated together.
const cellsAtOnce = 128

// add puts a value into a family.
func (s *scrape) add(f *dto.MetricFamily, v float64, l []*dto.LabelPair) {
	if len(s.cells) == 0 {
		s.cells = make([]cell, cellsAtOnce)
	}
	c := &s.cells[0]
	s.cells = s.cells[1:]
	c.value, c.metric.Label = v, l
	if f.GetType() == dto.MetricType_COUNTER {
		c.counter.Value, c.metric.Counter = &c.value, &c.counter
	} else {
		c.gauge.Value, c.metric.Gauge = &c.value, &c.gauge
	}
	f.Metric = append(f.Metric, &c.metric)
}

// put adds a value of one of Kerf's own names.
func (s *scrape) put(n series, v float64, l []*dto.LabelPair) { s.add(s.own[n], v, l) }
