// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package session

import (
	"slices"

	"github.com/kerf-gpu/kerf/mig"
	"github.com/kerf-gpu/kerf/mig/manager"
	"github.com/kerf-gpu/kerf/monitor/health"
	"github.com/kerf-gpu/kerf/sharing"
)

// faultyInstances are the MIG instances on which a fault stands, over watches of one driver.
type faultyInstances struct {
	machines map[health.Instance]*health.Machine
	// places are where they were when the fault came: they may be gone by the time that it is over.
	places map[health.Instance]sharing.Instance
}

// tellInstance reports a fault of one MIG instance to the runtime. An unmanaged instance has no grant.
func (s *Session) tellInstance(cut *manager.Manager, in health.Instance, h sharing.Health, reason string) {
	place, known := s.faulty.places[in]
	for _, v := range cut.States() {
		i := slices.IndexFunc(v.Instances, func(p mig.Instance) bool { return p.Managed && p.GI == in.GI })
		if v.GPU == in.GPU && i >= 0 && !known {
			place, known = v.Instances[i].Instance, true
		}
	}
	if !known {
		s.Log.Warn("found fault on an unmanaged MIG instance", "gpu", string(in.GPU), "gi", in.GI, "health",
			h.String())
		return
	}
	if s.faulty.places == nil {
		s.faulty.places = map[health.Instance]sharing.Instance{}
	}
	if s.faulty.places[in] = place; h == sharing.HealthOK {
		delete(s.faulty.places, in)
	}
	s.Runtime.SetInstanceHealth(in.GPU, place, h, reason)
}

// mendInstances forgets all faults of instances: none outlives its driver.
func (s *Session) mendInstances() {
	for in, place := range s.faulty.places {
		s.Runtime.SetInstanceHealth(in.GPU, place, sharing.HealthOK, "")
	}
	s.faulty = faultyInstances{}
}
