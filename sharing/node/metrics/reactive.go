// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/kerf-gpu/kerf/sharing"
)

// reactive counts the checks and reactions of the reactive backend.
type reactive struct {
	checkSeconds  prometheus.Histogram
	delaySeconds  prometheus.Histogram
	overshoot     prometheus.Histogram
	killed, spare *prometheus.CounterVec
	evicted       *prometheus.CounterVec
	uncounted     prometheus.Counter
	missed        prometheus.Counter
}

func newReactive(r promauto.Factory) *reactive {
	return &reactive{
		checkSeconds: r.NewHistogram(prometheus.HistogramOpts{
			Name:    "kerf_reactive_check_duration_seconds",
			Help:    "Time of a check by the reactive backend with its reactions, in seconds.",
			Buckets: latencies(),
		}),
		delaySeconds: r.NewHistogram(prometheus.HistogramOpts{
			Name: "kerf_reactive_detection_seconds",
			Help: "Longest possible time that a grant was over its cap before detection, in seconds: the time " +
				"since a check found it below its cap.",
			Buckets: prometheus.ExponentialBuckets(5e-3, 1.5, 18),
		}),
		overshoot: r.NewHistogram(prometheus.HistogramOpts{
			Name: "kerf_reactive_overshoot_bytes", Help: "Memory above the cap of a grant at detection, in bytes.",
			Buckets: prometheus.ExponentialBuckets(float64(sharing.MiB), 2, 18),
		}),
		killed: r.NewCounterVec(prometheus.CounterOpts{
			Name: "kerf_reactive_kills_total",
			Help: "Killed processes, by reason: over_cap, unmanaged or escaped. For gpu_fault, it counts grants.",
		}, []string{"reason"}),
		spare: r.NewCounterVec(prometheus.CounterOpts{
			Name: "kerf_reactive_kills_skipped_total", Help: "Kills that were skipped because the reason had ended, " +
				"by reason: over_cap, unmanaged or escaped.",
		}, []string{"reason"}),
		evicted: r.NewCounterVec(prometheus.CounterOpts{
			Name: "kerf_reactive_evictions_total", Help: "Requested evictions of pods, by reason (over_cap, " +
				"escaped, gpu_fault, idle) and result (evicted, refused).",
		}, []string{"reason", "result"}),
		uncounted: r.NewCounter(prometheus.CounterOpts{
			Name: "kerf_libkerf_bypasses_total",
			Help: "Processes that use a GPU without the libkerf that enforces their grant.",
		}),
		missed: r.NewCounter(prometheus.CounterOpts{
			Name: "kerf_reactive_missed_samples_total",
			Help: "Samples that the reactive backend missed because the agent was late by a whole interval.",
		}),
	}
}

// Watched counts one sample, its duration, and the samples that were missed before it.
func (w *reactive) Watched(took time.Duration, missed int) {
	w.checkSeconds.Observe(took.Seconds())
	w.missed.Add(float64(missed))
}

// OverCap counts one grant that was found over its cap.
func (w *reactive) OverCap(delay time.Duration, by sharing.Bytes) {
	w.delaySeconds.Observe(delay.Seconds())
	w.overshoot.Observe(float64(by))
}

// Uncounted counts one process without libkerf.
func (w *reactive) Uncounted() { w.uncounted.Inc() }

// Evicted counts one pod that was evicted or, with an error, not.
func (w *reactive) Evicted(reason string, err error) {
	result := "evicted"
	if err != nil {
		result = "refused"
	}
	w.evicted.WithLabelValues(reason, result).Inc()
}

// Killed counts one process that was killed or, with an error, one kill that was skipped.
func (w *reactive) Killed(reason string, err error) {
	if err != nil {
		w.spare.WithLabelValues(reason).Inc()
		return
	}
	w.killed.WithLabelValues(reason).Inc()
}
