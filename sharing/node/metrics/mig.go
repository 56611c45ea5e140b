// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// cuts counts what is done to GPUs' MIG instances.
type cuts struct {
	cut        *prometheus.CounterVec
	cutSeconds prometheus.Histogram
	steps      *prometheus.HistogramVec
	refused    *prometheus.CounterVec
	turns      *prometheus.CounterVec
}

func newCuts(r promauto.Factory) *cuts {
	return &cuts{
		cut: r.NewCounterVec(prometheus.CounterOpts{
			Name: "kerf_mig_instances_total", Help: "MIG instances requested, by outcome: `cut` if created, `warm` if it existed, or the reason of a failure.",
		}, []string{"outcome"}),
		cutSeconds: r.NewHistogram(prometheus.HistogramOpts{
			Name: "kerf_mig_cut_duration_seconds", Help: "Time to make an instance that was not there, steps and their waits together.",
			Buckets: cutTimes(),
		}),
		steps: r.NewHistogramVec(prometheus.HistogramOpts{
			Name: "kerf_mig_step_duration_seconds", Help: "Time of a call to the driver that changes MIG mode or instances, by step and outcome (done, or why not).",
			Buckets: cutTimes(),
		}, []string{"step", "outcome"}),
		refused: r.NewCounterVec(prometheus.CounterOpts{
			Name: "kerf_mig_refusals_total",
			Help: "Attempts to get a MIG instance that failed on this node, by the reason of the closest GPU, such as full, foreign or not_in_layout.",
		}, []string{"reason"}),
		turns: r.NewCounterVec(prometheus.CounterOpts{
			Name: "kerf_mig_mode_changes_total", Help: "Changes of a GPU's MIG mode that demand asked for, by the mode that was wanted (on, off) and outcome (done, or why not).",
		}, []string{"to", "outcome"}),
	}
}

// cutTimes are buckets from a millisecond to about a minute.
func cutTimes() []float64 { return prometheus.ExponentialBuckets(1e-3, 2, 17) }

// MIGStep counts one call to the driver that changes MIG mode or instances.
func (c *cuts) MIGStep(step string, took time.Duration, err error) {
	c.steps.WithLabelValues(step, outcome(err, "done")).Observe(took.Seconds())
}

// MIGCut counts one instance that was asked for; warm is true where it was there already.
func (c *cuts) MIGCut(warm bool, took time.Duration, err error) {
	switch {
	case err == nil && warm:
		c.cut.WithLabelValues("warm").Inc()
	case err == nil:
		c.cut.WithLabelValues("cut").Inc()
		c.cutSeconds.Observe(took.Seconds())
	default:
		c.cut.WithLabelValues(outcome(err, "")).Inc()
	}
}

// MIGRefused counts one request that no GPU answered.
func (c *cuts) MIGRefused(reason string) { c.refused.WithLabelValues(reason).Inc() }

// MIGTurned counts one change of a GPU's MIG mode that demand asked for.
func (c *cuts) MIGTurned(on bool, _ time.Duration, err error) {
	to := "off"
	if on {
		to = "on"
	}
	c.turns.WithLabelValues(to, outcome(err, "done")).Inc()
}
