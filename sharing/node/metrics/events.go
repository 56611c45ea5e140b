// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"errors"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/kerf-gpu/kerf/sharing"
)

// Events counts what the node runtime does. It is the runtime's observer.
type Events struct {
	*grants
	*watch
	*cuts
	injectSeconds prometheus.Histogram
	allocSeconds  prometheus.Histogram
	configRefused prometheus.Counter
	configApplied prometheus.Counter
	mpsRestarts   prometheus.Counter
	xids          *prometheus.CounterVec
}

// NewEvents registers the counters with reg.
func NewEvents(reg prometheus.Registerer) *Events {
	r := promauto.With(reg)
	return &Events{
		grants: newGrants(r), watch: newWatch(r), cuts: newCuts(r),
		injectSeconds: r.NewHistogram(prometheus.HistogramOpts{
			Name: "kerf_inject_duration_seconds", Help: "Time to find or make a container's claim and to note it on disk, before the container is made.",
			Buckets: latencies(),
		}),
		allocSeconds: r.NewHistogram(prometheus.HistogramOpts{
			Name: "kerf_allocate_duration_seconds", Help: "Time of an answer to kubelet's Allocate.",
			Buckets: latencies(),
		}),
		configApplied: r.NewCounter(prometheus.CounterOpts{Name: "kerf_config_applied_total", Help: "Configs that this agent has applied since it started, including the first one."}),
		configRefused: r.NewCounter(prometheus.CounterOpts{Name: "kerf_config_refused_total", Help: "Configs that were rejected because of errors."}),
		mpsRestarts: r.NewCounter(prometheus.CounterOpts{
			Name: "kerf_mps_restarts_total", Help: "Times that an MPS control daemon which died or hung was to be started again; its clients ended with it.",
		}),
		xids: r.NewCounterVec(prometheus.CounterOpts{
			Name: "kerf_gpu_xids_total", Help: "XID events, by GPU (empty where the driver does not name it), number and class (application, drain, critical, off-bus).",
		}, []string{"uuid", "xid", "class"}),
	}
}

// Injected counts the duration of one injection that succeeded; the claim is counted by Claimed.
func (e *Events) Injected(took time.Duration, err error) {
	if err == nil {
		e.injectSeconds.Observe(took.Seconds())
	}
}

// Allocated counts the duration of one answer to kubelet.
func (e *Events) Allocated(took time.Duration) { e.allocSeconds.Observe(took.Seconds()) }

// latencies are buckets from 20 microseconds to about 4 seconds, each half as large again as the one before:
// fine enough that a 99th percentile means something.
func latencies() []float64 { return prometheus.ExponentialBuckets(20e-6, 1.5, 31) }

// ConfigApplied counts one document that was put in force.
func (e *Events) ConfigApplied() { e.configApplied.Inc() }

// ConfigRefused counts one refused document.
func (e *Events) ConfigRefused() { e.configRefused.Inc() }

// MPSRestarted counts one start of a control daemon in the place of one that died or hung.
func (e *Events) MPSRestarted() { e.mpsRestarts.Inc() }

// XID counts one XID event.
func (e *Events) XID(gpu string, xid uint64, class string) {
	e.xids.WithLabelValues(gpu, strconv.FormatUint(xid, 10), class).Inc()
}

func outcome(err error, good string) string {
	switch {
	case err == nil:
		return good
	case errors.Is(err, sharing.ErrInvalid):
		return "invalid"
	case errors.Is(err, sharing.ErrUnsupported):
		return "unsupported"
	case errors.Is(err, sharing.ErrExhausted):
		return "exhausted"
	case errors.Is(err, sharing.ErrConflict):
		return "conflict"
	case errors.Is(err, sharing.ErrUnavailable):
		return "unavailable"
	}
	return "other"
}
