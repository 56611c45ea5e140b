// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// grants counts what becomes of claims and leases.
type grants struct {
	claims, arms, limits *prometheus.CounterVec
	armSeconds           prometheus.Histogram
	placed               *prometheus.HistogramVec
	ended, found         prometheus.Counter
	capsRestored         prometheus.Counter
}

func newGrants(r promauto.Factory) *grants {
	return &grants{
		claims: r.NewCounterVec(prometheus.CounterOpts{
			Name: "kerf_claims_total", Help: "Claims asked for, by outcome (held, invalid, exhausted, unsupported, conflict, unavailable, other).",
		}, []string{"outcome"}),
		arms: r.NewCounterVec(prometheus.CounterOpts{
			Name: "kerf_arms_total", Help: "Claims armed, by outcome (leased, or why not).",
		}, []string{"outcome"}),
		limits: r.NewCounterVec(prometheus.CounterOpts{
			Name: "kerf_limits_total", Help: "Changes of a grant's memory asked for, by outcome (changed, or why not).",
		}, []string{"outcome"}),
		armSeconds: r.NewHistogram(prometheus.HistogramOpts{
			Name: "kerf_arm_duration_seconds", Help: "Time from the arm call to the lease: cgroup, record, cap, read-back, move.",
			Buckets: latencies(),
		}),
		placed: r.NewHistogramVec(prometheus.HistogramOpts{
			Name: "kerf_placement_wait_seconds", Help: "Time from a pod's first attempt on this node to its grants, by namespace, profile, and reason of the last rejection.",
			Buckets: []float64{0.01, 0.1, 1, 5, 15, 60, 300, 1800, 7200},
		}, []string{"namespace", "profile", "reason"}),
		ended:        r.NewCounter(prometheus.CounterOpts{Name: "kerf_leases_ended_total", Help: "Leases that ended since this agent started."}),
		found:        r.NewCounter(prometheus.CounterOpts{Name: "kerf_leases_recovered_total", Help: "Leases found again when this agent started."}),
		capsRestored: r.NewCounter(prometheus.CounterOpts{Name: "kerf_caps_restored_total", Help: "Caps that were gone from the driver and were put back."}),
	}
}

// Claimed counts one claim.
func (g *grants) Claimed(err error) { g.claims.WithLabelValues(outcome(err, "held")).Inc() }

// Armed counts one arm, and its duration when it succeeded.
func (g *grants) Armed(took time.Duration, err error) {
	g.arms.WithLabelValues(outcome(err, "leased")).Inc()
	if err == nil {
		g.armSeconds.Observe(took.Seconds())
	}
}

// Ended counts one lease that ended.
func (g *grants) Ended() { g.ended.Inc() }

// Recovered counts one lease found again.
func (g *grants) Recovered() { g.found.Inc() }

// CapRestored counts one cap put back.
func (g *grants) CapRestored() { g.capsRestored.Inc() }

// Limited counts one change of a grant's memory.
func (g *grants) Limited(err error) { g.limits.WithLabelValues(outcome(err, "changed")).Inc() }

// Placed counts how long a pod waited for its claims.
func (g *grants) Placed(namespace, profile string, why error, waited time.Duration) {
	g.placed.WithLabelValues(namespace, profile, outcome(why, "none")).Observe(waited.Seconds())
}
