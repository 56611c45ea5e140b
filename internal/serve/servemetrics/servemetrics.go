// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package servemetrics turns what the listeners of a program hold and reject into metrics.
package servemetrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/kerf-gpu/kerf/internal/serve"
)

// Listeners turns what the listeners of a program hold and reject into metrics at each scrape.
type Listeners struct {
	shares                          map[string]*serve.Share
	conns, requests, streams, bytes *prometheus.Desc
	rejected                        *prometheus.Desc
}

// New makes a collector over the shares of a program.
func New(shares map[string]*serve.Share) *Listeners {
	d := func(name, help string, more ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, append([]string{"listener"}, more...), nil)
	}
	return &Listeners{
		shares:   shares,
		conns:    d("kerf_listener_connections", "Open connections of the listener."),
		requests: d("kerf_listener_requests", "Requests in flight of the listener, streams excluded."),
		streams:  d("kerf_listener_streams", "Open streams of the listener."),
		bytes:    d("kerf_listener_answer_bytes", "Bytes of answers that wait for their readers."),
		rejected: d("kerf_listener_rejected_total", "Connections, requests and answers that exceeded the bounds of "+
			"the listener, by kind (connection, idle_connection, request, answer).", "kind"),
	}
}

// Describe implements prometheus.Collector.
func (l *Listeners) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{l.conns, l.requests, l.streams, l.bytes, l.rejected} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (l *Listeners) Collect(ch chan<- prometheus.Metric) {
	send := func(kind prometheus.ValueType) func(d *prometheus.Desc, v float64, labels ...string) {
		return func(d *prometheus.Desc, v float64, labels ...string) {
			ch <- prometheus.MustNewConstMetric(d, kind, v, labels...)
		}
	}
	gauge, counter := send(prometheus.GaugeValue), send(prometheus.CounterValue)
	for name, s := range l.shares {
		now, rejected := s.Stats()
		gauge(l.conns, float64(now.Conns), name)
		gauge(l.requests, float64(now.Requests), name)
		gauge(l.streams, float64(now.Streams), name)
		gauge(l.bytes, float64(now.Bytes), name)
		counter(l.rejected, float64(rejected.Conns), name, "connection")
		counter(l.rejected, float64(rejected.Evicted), name, "idle_connection")
		counter(l.rejected, float64(rejected.Requests), name, "request")
		counter(l.rejected, float64(rejected.Answers), name, "answer")
	}
}
