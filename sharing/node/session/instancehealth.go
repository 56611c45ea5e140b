// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package session

import (
	"slices"

	"github.com/kerf-gpu/kerf/mig"
	"github.com/kerf-gpu/kerf/mig/keep"
	"github.com/kerf-gpu/kerf/monitor/health"
	"github.com/kerf-gpu/kerf/sharing"
)

// hurtInstances are the MIG instances on which a fault stands, over watches of one driver.
type hurtInstances struct {
	machines map[health.Instance]*health.Machine
	// places are where they were when the fault came: they may be gone by the time that it is over.
	places map[health.Instance]sharing.Instance
}

// tellInstance tells the runtime of a fault of one MIG instance. One that Kerf did not make is nobody's.
func (s *Session) tellInstance(cut *keep.Manager, in health.Instance, h sharing.Health, reason string) {
	place, known := s.hurt.places[in]
	for _, v := range cut.States() {
		i := slices.IndexFunc(v.Instances, func(p mig.Instance) bool { return p.Ours && p.GI == in.GI })
		if v.GPU == in.GPU && i >= 0 && !known {
			place, known = v.Instances[i].Instance, true
		}
	}
	if !known {
		s.Log.Warn("a fault is on a MIG instance that is not Kerf's", "gpu", string(in.GPU), "gi", in.GI, "health", h.String())
		return
	}
	if s.hurt.places == nil {
		s.hurt.places = map[health.Instance]sharing.Instance{}
	}
	if s.hurt.places[in] = place; h == sharing.HealthOK {
		delete(s.hurt.places, in)
	}
	s.Runtime.SetInstanceHealth(in.GPU, place, h, reason)
}

// mendInstances forgets all faults of instances: none outlives its driver.
func (s *Session) mendInstances() {
	for in, place := range s.hurt.places {
		s.Runtime.SetInstanceHealth(in.GPU, place, sharing.HealthOK, "")
	}
	s.hurt = hurtInstances{}
}
