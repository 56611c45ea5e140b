// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/kerf-gpu/kerf/sharing"
)

// watch counts what is done about processes past their cap where nothing stops them beforehand.
type watch struct {
	tickSeconds   prometheus.Histogram
	delaySeconds  prometheus.Histogram
	overshoot     prometheus.Histogram
	killed, spare *prometheus.CounterVec
	evicted       *prometheus.CounterVec
	uncounted     prometheus.Counter
	missed        prometheus.Counter
}

func newWatch(r promauto.Factory) *watch {
	return &watch{
		tickSeconds: r.NewHistogram(prometheus.HistogramOpts{
			Name: "kerf_watch_tick_duration_seconds", Help: "Duration of a check by the reactive backend, with its reactions. The count is the number of checks.",
			Buckets: latencies(),
		}),
		delaySeconds: r.NewHistogram(prometheus.HistogramOpts{
			Name: "kerf_watch_detection_delay_seconds", Help: "The longest that a lease can have been over its cap when that was found: the time since it was seen within it last.",
			Buckets: prometheus.ExponentialBuckets(5e-3, 1.5, 18),
		}),
		overshoot: r.NewHistogram(prometheus.HistogramOpts{
			Name: "kerf_watch_overshoot_bytes", Help: "How much more than its cap a lease held when that was found.",
			Buckets: prometheus.ExponentialBuckets(float64(sharing.MiB), 2, 18),
		}),
		killed: r.NewCounterVec(prometheus.CounterOpts{
			Name: "kerf_watch_kills_total", Help: "Processes killed, by reason: `over_cap`, `stranger`, `escaped`. For `gpu_fault`, it counts grants.",
		}, []string{"reason"}),
		spare: r.NewCounterVec(prometheus.CounterOpts{
			Name: "kerf_watch_spared_total", Help: "Kills that were skipped because the process had ended or was another one, by reason: `over_cap`, `stranger`, `escaped`.",
		}, []string{"reason"}),
		evicted: r.NewCounterVec(prometheus.CounterOpts{
			Name: "kerf_watch_evictions_total", Help: "Evictions of pods that were asked for, by reason (over_cap, escaped, gpu_fault, idle) and result (evicted, refused).",
		}, []string{"reason", "result"}),
		uncounted: r.NewCounter(prometheus.CounterOpts{
			Name: "kerf_client_uncounted_processes_total", Help: "Processes found that use a GPU without the preloaded library that is to hold their lease.",
		}),
		missed: r.NewCounter(prometheus.CounterOpts{
			Name: "kerf_watch_missed_samples_total", Help: "Samples of the reactive backend that were not taken because the agent was late by a whole interval.",
		}),
	}
}

// Watched counts one sample, what it cost, and the samples that were missed before it.
func (w *watch) Watched(took time.Duration, missed int) {
	w.tickSeconds.Observe(took.Seconds())
	w.missed.Add(float64(missed))
}

// OverCap counts one lease that was found over its cap.
func (w *watch) OverCap(delay time.Duration, by sharing.Bytes) {
	w.delaySeconds.Observe(delay.Seconds())
	w.overshoot.Observe(float64(by))
}

// Uncounted counts one process that was found without the library.
func (w *watch) Uncounted() { w.uncounted.Inc() }

// Evicted counts one pod that was evicted or, with an error, not.
func (w *watch) Evicted(reason string, err error) {
	result := "evicted"
	if err != nil {
		result = "refused"
	}
	w.evicted.WithLabelValues(reason, result).Inc()
}

// Killed counts one process that was killed or, with an error, spared.
func (w *watch) Killed(reason string, err error) {
	if err != nil {
		w.spare.WithLabelValues(reason).Inc()
		return
	}
	w.killed.WithLabelValues(reason).Inc()
}
