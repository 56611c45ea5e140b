// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package session

import (
	"strings"
	"testing"

	"github.com/kerf-gpu/kerf/internal/nvml"
	"github.com/kerf-gpu/kerf/monitor/health"
	"github.com/kerf-gpu/kerf/sharing"
)

// Each sign that the driver tells of reaches the state that it stands for, with its reason and remedy, and no other one
// does.
func TestSignsReachTheirState(t *testing.T) {
	yes, no := true, false
	count := func(n uint64) *uint64 { return &n }
	well := nvml.Signs{Uncorrected: count(1), RemapPending: &no, RemapFailed: &no, ThermalSlowdown: &no,
		PowerBrake: &no, Links: count(18)}
	for name, tt := range map[string]struct {
		change         func(*nvml.Signs)
		want           sharing.Health
		reason, remedy string
	}{
		"nothing":          {func(*nvml.Signs) {}, sharing.HealthOK, "", ""},
		"nothing reported": {func(s *nvml.Signs) { *s = nvml.Signs{} }, sharing.HealthOK, "", ""},
		"errors": {func(s *nvml.Signs) { s.Uncorrected = count(2) }, sharing.HealthSuspect, "memory errors",
			"unless it comes again"},
		"a row to come": {func(s *nvml.Signs) { s.RemapPending = &yes }, sharing.HealthSuspect,
			"a memory row is to be remapped", "once nothing uses"},
		"no row left": {func(s *nvml.Signs) { s.RemapFailed = &yes }, sharing.HealthUnhealthy, "a memory row is bad",
			"replace the GPU"},
		"heat": {func(s *nvml.Signs) { s.ThermalSlowdown = &yes }, sharing.HealthSuspect, "for heat", "cooling"},
		"power": {func(s *nvml.Signs) { s.PowerBrake = &yes }, sharing.HealthSuspect, "power supply says so",
			"power supply"},
		"links": {func(s *nvml.Signs) { s.Links = count(16) }, sharing.HealthSuspect, "16 of 18 NVLinks", "bridge"},
	} {
		t.Run(name, func(t *testing.T) {
			var m health.Machine
			look := func(s nvml.Signs) {
				m.Probe(health.Sample{Recovery: health.Recovery{Known: true}, Sensors: sensorsOf(s)})
			}
			look(well)
			bad := well
			tt.change(&bad)
			var seen health.State
			for range 30 { // some signs count when they last half a minute, and errors when they are more than before
				if look(bad); m.State().Health != sharing.HealthOK {
					seen = m.State()
				}
			}
			if tt.want == sharing.HealthOK {
				seen = m.State()
			}
			if seen.Health != tt.want || !strings.Contains(seen.Reason, tt.reason) ||
				!strings.Contains(seen.Remedy, tt.remedy) {
				t.Errorf("%+v, want %s, %q, %q", seen, tt.want, tt.reason, tt.remedy)
			}
		})
	}
}
