// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// instances counts changes of MIG instances and of MIG mode.
type instances struct {
	requested     *prometheus.CounterVec
	createSeconds prometheus.Histogram
	steps         *prometheus.HistogramVec
	refused       *prometheus.CounterVec
	switches      *prometheus.CounterVec
}

func newInstances(r promauto.Factory) *instances {
	return &instances{
		requested: r.NewCounterVec(prometheus.CounterOpts{
			Name: "kerf_mig_instances_total",
			Help: "Requested MIG instances, by outcome: created, warm (it existed), or the reason of the failure.",
		}, []string{"outcome"}),
		createSeconds: r.NewHistogram(prometheus.HistogramOpts{
			Name:    "kerf_mig_instance_create_duration_seconds",
			Help:    "Time to create a requested MIG instance, in seconds, with all steps and their waits.",
			Buckets: createTimes(),
		}),
		steps: r.NewHistogramVec(prometheus.HistogramOpts{
			Name: "kerf_mig_step_duration_seconds",
			Help: "Time of a driver call that changes MIG mode or instances, in seconds, by step and outcome: " +
				"done, or the reason of the failure.",
			Buckets: createTimes(),
		}, []string{"step", "outcome"}),
		refused: r.NewCounterVec(prometheus.CounterOpts{
			Name: "kerf_mig_refusals_total",
			Help: "Requests for a MIG instance that failed on this node, by the reason of the closest GPU, such " +
				"as full, foreign or not_in_layout.",
		}, []string{"reason"}),
		switches: r.NewCounterVec(prometheus.CounterOpts{
			Name: "kerf_mig_mode_changes_total", Help: "MIG mode switches because of demand, by desired " +
				"mode (on, off) and outcome: done, or the reason of the failure.",
		}, []string{"to", "outcome"}),
	}
}

// createTimes are buckets from a millisecond to about a minute.
func createTimes() []float64 { return prometheus.ExponentialBuckets(1e-3, 2, 17) }

// MIGStep counts one call to the driver that changes MIG mode or instances.
func (c *instances) MIGStep(step string, took time.Duration, err error) {
	c.steps.WithLabelValues(step, outcome(err, "done")).Observe(took.Seconds())
}

// MIGCreated counts one requested instance; warm is true if it existed.
func (c *instances) MIGCreated(warm bool, took time.Duration, err error) {
	switch {
	case err == nil && warm:
		c.requested.WithLabelValues("warm").Inc()
	case err == nil:
		c.requested.WithLabelValues("created").Inc()
		c.createSeconds.Observe(took.Seconds())
	default:
		c.requested.WithLabelValues(outcome(err, "")).Inc()
	}
}

// MIGRefused counts one request that no GPU could satisfy.
func (c *instances) MIGRefused(reason string) { c.refused.WithLabelValues(reason).Inc() }

// MIGModeSwitched counts one mode switch because of demand.
func (c *instances) MIGModeSwitched(on bool, _ time.Duration, err error) {
	to := "off"
	if on {
		to = "on"
	}
	c.switches.WithLabelValues(to, outcome(err, "done")).Inc()
}
