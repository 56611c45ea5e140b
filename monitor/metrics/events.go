// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kerf-gpu/kerf/sharing"
)

// Events counts what the node runtime does. It is the runtime's observer.
type Events struct {
	claims, arms  *prometheus.CounterVec
	armSeconds    prometheus.Histogram
	ended, found  prometheus.Counter
	capsRestored  prometheus.Counter
	configRefused prometheus.Counter
}

// NewEvents registers the counters with reg.
func NewEvents(reg prometheus.Registerer) *Events {
	e := &Events{
		claims: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kerf_claims_total", Help: "Claims asked for, by outcome (held, invalid, exhausted, unsupported, conflict, unavailable, other).",
		}, []string{"outcome"}),
		arms: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kerf_arms_total", Help: "Claims armed, by outcome (leased, or why not).",
		}, []string{"outcome"}),
		armSeconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "kerf_arm_duration_seconds", Help: "Time from the arm call to the lease: cgroup, record, cap, read-back, move.",
			Buckets: prometheus.ExponentialBuckets(0.001, 2, 14),
		}),
		ended:         prometheus.NewCounter(prometheus.CounterOpts{Name: "kerf_leases_ended_total", Help: "Leases that ended since this agent started."}),
		found:         prometheus.NewCounter(prometheus.CounterOpts{Name: "kerf_leases_recovered_total", Help: "Leases found again when this agent started."}),
		capsRestored:  prometheus.NewCounter(prometheus.CounterOpts{Name: "kerf_caps_restored_total", Help: "Caps that were gone from the driver and were put back."}),
		configRefused: prometheus.NewCounter(prometheus.CounterOpts{Name: "kerf_config_refused_total", Help: "Configuration documents refused for their mistakes."}),
	}
	reg.MustRegister(e.claims, e.arms, e.armSeconds, e.ended, e.found, e.capsRestored, e.configRefused)
	return e
}

// Claimed counts one claim.
func (e *Events) Claimed(err error) { e.claims.WithLabelValues(outcome(err, "held")).Inc() }

// Armed counts one arm, and its duration when it succeeded.
func (e *Events) Armed(took time.Duration, err error) {
	e.arms.WithLabelValues(outcome(err, "leased")).Inc()
	if err == nil {
		e.armSeconds.Observe(took.Seconds())
	}
}

// Ended counts one lease that ended.
func (e *Events) Ended() { e.ended.Inc() }

// Recovered counts one lease found again.
func (e *Events) Recovered() { e.found.Inc() }

// CapRestored counts one cap put back.
func (e *Events) CapRestored() { e.capsRestored.Inc() }

// ConfigRefused counts one refused document.
func (e *Events) ConfigRefused() { e.configRefused.Inc() }

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
