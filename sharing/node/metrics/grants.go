// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// grants counts what happens to grants.
type grants struct {
	reservations, activations, resizes *prometheus.CounterVec
	activationSeconds                  prometheus.Histogram
	placed                             *prometheus.HistogramVec
	released, recovered                prometheus.Counter
	capsRestored                       prometheus.Counter
}

func newGrants(r promauto.Factory) *grants {
	return &grants{
		reservations: r.NewCounterVec(prometheus.CounterOpts{
			Name: "kerf_grant_reservations_total", Help: "Requests for a grant, by outcome: reserved, invalid, " +
				"exhausted, unsupported, conflict, unavailable or other.",
		}, []string{"outcome"}),
		activations: r.NewCounterVec(prometheus.CounterOpts{
			Name: "kerf_grant_activations_total",
			Help: "Activations of grants, by outcome: activated, or the reason of the failure.",
		}, []string{"outcome"}),
		resizes: r.NewCounterVec(prometheus.CounterOpts{
			Name: "kerf_grant_resizes_total",
			Help: "Requests to resize a grant's memory, by outcome: resized, or the reason of the failure.",
		}, []string{"outcome"}),
		activationSeconds: r.NewHistogram(prometheus.HistogramOpts{
			Name: "kerf_grant_activation_duration_seconds", Help: "Time of an activation that succeeded, in seconds: " +
				"create the cgroup, write the checkpoint, set the cap, read it back.",
			Buckets: latencies(),
		}),
		placed: r.NewHistogramVec(prometheus.HistogramOpts{
			Name: "kerf_placement_wait_seconds", Help: "Time from a pod's first attempt on this node to its grants, " +
				"in seconds, by namespace, profile, and reason of the last rejection.",
			Buckets: []float64{0.01, 0.1, 1, 5, 15, 60, 300, 1800, 7200},
		}, []string{"namespace", "profile", "reason"}),
		released: r.NewCounter(prometheus.CounterOpts{Name: "kerf_grants_released_total",
			Help: "Active grants that were released since this agent started."}),
		recovered: r.NewCounter(prometheus.CounterOpts{Name: "kerf_grants_recovered_total",
			Help: "Active grants that this agent recovered when it started."}),
		capsRestored: r.NewCounter(prometheus.CounterOpts{Name: "kerf_caps_restored_total",
			Help: "Caps that the driver had lost and that the agent set again."}),
	}
}

// Reserved counts one reservation.
func (g *grants) Reserved(err error) { g.reservations.WithLabelValues(outcome(err, "reserved")).Inc() }

// Activated counts one activation, and its duration when it succeeded.
func (g *grants) Activated(took time.Duration, err error) {
	g.activations.WithLabelValues(outcome(err, "activated")).Inc()
	if err == nil {
		g.activationSeconds.Observe(took.Seconds())
	}
}

// Ended counts one active grant that was released.
func (g *grants) Ended() { g.released.Inc() }

// Recovered counts one active grant that was found at the start.
func (g *grants) Recovered() { g.recovered.Inc() }

// CapRestored counts one cap that was set again.
func (g *grants) CapRestored() { g.capsRestored.Inc() }

// Limited counts one change of a grant's memory.
func (g *grants) Limited(err error) { g.resizes.WithLabelValues(outcome(err, "resized")).Inc() }

// Placed counts how long a pod waited for its grants.
func (g *grants) Placed(namespace, profile string, why error, waited time.Duration) {
	g.placed.WithLabelValues(namespace, profile, outcome(why, "none")).Observe(waited.Seconds())
}
