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
	*reactive
	*instances
	injectSeconds prometheus.Histogram
	allocSeconds  prometheus.Histogram
	claimSeconds  prometheus.Histogram
	configRefused prometheus.Counter
	configApplied prometheus.Counter
	mpsRestarts   prometheus.Counter
	xids          *prometheus.CounterVec
}

// NewEvents registers the counters with reg.
func NewEvents(reg prometheus.Registerer) *Events {
	r := promauto.With(reg)
	return &Events{
		grants: newGrants(r), reactive: newReactive(r), instances: newInstances(r),
		injectSeconds: r.NewHistogram(prometheus.HistogramOpts{
			Name: "kerf_inject_duration_seconds", Help: "Time to reserve or find a container's grant and to write " +
				"the checkpoint, in seconds. The runtime then creates the container.",
			Buckets: latencies(),
		}),
		allocSeconds: r.NewHistogram(prometheus.HistogramOpts{
			Name: "kerf_allocate_duration_seconds", Help: "Time to answer kubelet's Allocate call, in seconds.",
			Buckets: latencies(),
		}),
		claimSeconds: r.NewHistogram(prometheus.HistogramOpts{
			Name: "kerf_claims_prepare_duration_seconds", Help: "Time to prepare the ResourceClaims of a pod for " +
				"kubelet, in seconds, including the creation of MIG instances.",
			Buckets: latencies(),
		}),
		configApplied: r.NewCounter(prometheus.CounterOpts{Name: "kerf_config_applied_total",
			Help: "Configs that this agent has applied since it started, including the first one."}),
		configRefused: r.NewCounter(prometheus.CounterOpts{Name: "kerf_config_rejected_total",
			Help: "Configs that were rejected because of errors."}),
		mpsRestarts: r.NewCounter(prometheus.CounterOpts{
			Name: "kerf_mps_restarts_total",
			Help: "Restarts of MPS control daemons that died or hung. Their clients ended with them.",
		}),
		xids: r.NewCounterVec(prometheus.CounterOpts{
			Name: "kerf_gpu_xids_total", Help: "XID events, by GPU (empty if the driver does not name it), number " +
				"and class (application, drain, critical, off-bus).",
		}, []string{"gpu_uuid", "xid", "class"}),
	}
}

// Injected counts the duration of one injection that succeeded. Reserved counts its reservation.
func (e *Events) Injected(took time.Duration, err error) {
	if err == nil {
		e.injectSeconds.Observe(took.Seconds())
	}
}

// Allocated counts the duration of one answer to kubelet.
func (e *Events) Allocated(took time.Duration) { e.allocSeconds.Observe(took.Seconds()) }

// ClaimsPrepared counts the duration of one answer to kubelet about the claims of a pod.
func (e *Events) ClaimsPrepared(took time.Duration) { e.claimSeconds.Observe(took.Seconds()) }

// latencies are buckets from 20 microseconds to about 4 seconds, each half as large again as the one before. That is
// fine enough for a 99th percentile.
func latencies() []float64 { return prometheus.ExponentialBuckets(20e-6, 1.5, 31) }

// ConfigApplied counts one config that was applied.
func (e *Events) ConfigApplied() { e.configApplied.Inc() }

// ConfigRefused counts one rejected config.
func (e *Events) ConfigRefused() { e.configRefused.Inc() }

// MPSRestarted counts one restart of a control daemon that died or hung.
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
