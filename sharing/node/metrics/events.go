// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"errors"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kerf-gpu/kerf/sharing"
)

// Events counts what the node runtime does. It is the runtime's observer.
type Events struct {
	claims, arms  *prometheus.CounterVec
	limits        *prometheus.CounterVec
	armSeconds    prometheus.Histogram
	injectSeconds prometheus.Histogram
	allocSeconds  prometheus.Histogram
	ended, found  prometheus.Counter
	capsRestored  prometheus.Counter
	configRefused prometheus.Counter
	configApplied prometheus.Counter
	mpsRestarts   prometheus.Counter
	xids          *prometheus.CounterVec
	placed        *prometheus.HistogramVec
	*watch
	*cuts
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
		limits: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kerf_limits_total", Help: "Changes of a grant's memory asked for, by outcome (changed, or why not).",
		}, []string{"outcome"}),
		armSeconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "kerf_arm_duration_seconds", Help: "Time from the arm call to the lease: cgroup, record, cap, read-back, move.",
			Buckets: latencies(),
		}),
		injectSeconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "kerf_inject_duration_seconds", Help: "Time to find or make a container's claim and to note it on disk, before the container is made.",
			Buckets: latencies(),
		}),
		allocSeconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "kerf_allocate_duration_seconds", Help: "Time of an answer to kubelet's Allocate.",
			Buckets: latencies(),
		}),
		ended:         prometheus.NewCounter(prometheus.CounterOpts{Name: "kerf_leases_ended_total", Help: "Leases that ended since this agent started."}),
		found:         prometheus.NewCounter(prometheus.CounterOpts{Name: "kerf_leases_recovered_total", Help: "Leases found again when this agent started."}),
		capsRestored:  prometheus.NewCounter(prometheus.CounterOpts{Name: "kerf_caps_restored_total", Help: "Caps that were gone from the driver and were put back."}),
		configApplied: prometheus.NewCounter(prometheus.CounterOpts{Name: "kerf_config_applied_total", Help: "Configuration documents put in force since this agent started, the first one among them."}),
		configRefused: prometheus.NewCounter(prometheus.CounterOpts{Name: "kerf_config_refused_total", Help: "Configuration documents refused for their mistakes."}),
		mpsRestarts: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "kerf_mps_restarts_total", Help: "Times that an MPS control daemon which died or hung was to be started again; its clients ended with it.",
		}),
	}
	e.xids = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "kerf_gpu_xids_total", Help: "XID events, by GPU (empty where the driver does not name it), number and class (application, drain, critical, off-bus).",
	}, []string{"uuid", "xid", "class"})
	e.placed = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "kerf_placement_wait_seconds", Help: "Time from a pod's first try on this node to its claims, by namespace, profile, and why the last try before was refused (none, exhausted, unavailable, ...).",
		Buckets: []float64{0.01, 0.1, 1, 5, 15, 60, 300, 1800, 7200},
	}, []string{"namespace", "profile", "reason"})
	reg.MustRegister(e.placed, e.xids, e.claims, e.arms, e.limits, e.armSeconds, e.injectSeconds, e.allocSeconds, e.ended, e.found, e.capsRestored, e.configRefused, e.configApplied, e.mpsRestarts)
	e.watch, e.cuts = newWatch(reg), newCuts(reg)
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

// Ended counts one lease that ended.
func (e *Events) Ended() { e.ended.Inc() }

// Recovered counts one lease found again.
func (e *Events) Recovered() { e.found.Inc() }

// CapRestored counts one cap put back.
func (e *Events) CapRestored() { e.capsRestored.Inc() }

// Limited counts one change of a grant's memory.
func (e *Events) Limited(err error) { e.limits.WithLabelValues(outcome(err, "changed")).Inc() }

// ConfigApplied counts one document that was put in force.
func (e *Events) ConfigApplied() { e.configApplied.Inc() }

// ConfigRefused counts one refused document.
func (e *Events) ConfigRefused() { e.configRefused.Inc() }

// MPSRestarted counts one start of a control daemon in the place of one that died or hung.
func (e *Events) MPSRestarted() { e.mpsRestarts.Inc() }

// Placed counts how long a pod waited for its claims.
func (e *Events) Placed(namespace, profile string, why error, waited time.Duration) {
	e.placed.WithLabelValues(namespace, profile, outcome(why, "none")).Observe(waited.Seconds())
}

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
