// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"k8s.io/component-base/metrics"
)

// configMetrics tell which document the scheduler goes by. The zero value tells nobody.
type configMetrics struct {
	info   *metrics.GaugeVec
	errors *metrics.Counter
}

// Register makes metrics known to who is asked for them, as legacyregistry.Register does for kube-scheduler's /metrics.
type Register = func(metrics.Registerable) error

func newConfigMetrics(register Register) (configMetrics, error) {
	m := configMetrics{
		info: metrics.NewGaugeVec(&metrics.GaugeOpts{
			Name: "kerf_scheduler_config_info", Help: "1 for the SharingConfig that this replica goes by, by the SHA-256 of the document; absent while it knows no valid one, and places no pod that asks for a GPU.", StabilityLevel: metrics.ALPHA,
		}, []string{"sha256"}),
		errors: metrics.NewCounter(&metrics.CounterOpts{
			Name: "kerf_scheduler_config_errors_total", Help: "Documents that were refused for their mistakes.", StabilityLevel: metrics.ALPHA,
		}),
	}
	for _, one := range []metrics.Registerable{m.info, m.errors} {
		if err := register(one); err != nil {
			return m, err
		}
	}
	return m, nil
}

// inForce tells which document is gone by from now on.
func (m configMetrics) inForce(sha256 string) {
	if m.info == nil {
		return
	}
	m.info.Reset()
	m.info.WithLabelValues(sha256).Set(1)
}

// refused counts a document that was not taken.
func (m configMetrics) refused() {
	if m.errors != nil {
		m.errors.Inc()
	}
}
