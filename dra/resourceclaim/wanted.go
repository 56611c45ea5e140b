// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package resourceclaim

import (
	"strings"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/dra"
)

// Wanted are the requests of a claim, and their alternatives, that name one of Kerf's device classes.
func Wanted(c *resourceapi.ResourceClaim) (out []dra.Wanted) {
	devices := c.Spec.Devices
	narrowed := len(devices.Constraints) > 0
	add := func(request, class string, count int64, amounts *resourceapi.CapacityRequirements,
		selectors []resourceapi.DeviceSelector) {
		w := dra.Wanted{Claim: c.Name, Request: request, Count: int(max(1, count)),
			Selected: narrowed || len(selectors) > 0}
		if ofClass(&w, class) {
			ofAmounts(&w, amounts)
			out = append(out, w)
		}
	}
	for _, r := range devices.Requests {
		if e := r.Exactly; e != nil {
			add(r.Name, e.DeviceClassName, e.Count, e.Capacity, e.Selectors)
		}
		for _, s := range r.FirstAvailable {
			add(r.Name+"/"+s.Name, s.DeviceClassName, s.Count, s.Capacity, s.Selectors)
		}
	}
	return out
}

// ofClass sets what a device class stands for; false if it is none of Kerf's.
func ofClass(w *dra.Wanted, class string) bool {
	profile, ofProfile := strings.CutPrefix(class, "mig-")
	profile, ofKerf := strings.CutSuffix(profile, "."+sharing.Domain)
	switch {
	case class == dra.ClassShare:
	case class == dra.ClassWhole:
		w.Kind = dra.KindWhole
	case class == dra.ClassMIG:
		w.Kind = dra.KindMIG
	case ofProfile && ofKerf:
		w.Kind, w.Profile = dra.KindMIG, profile
	default:
		return false
	}
	return true
}

func ofAmounts(w *dra.Wanted, amounts *resourceapi.CapacityRequirements) {
	if amounts == nil || w.Kind != dra.KindShare {
		return
	}
	for name, q := range amounts.Requests {
		switch n := max(0, q.Value()); strings.TrimPrefix(string(name), dra.Driver+"/") {
		case dra.CapacityMemory:
			w.Memory = (sharing.Bytes(n) + sharing.GiB - 1) / sharing.GiB * sharing.GiB
		case dra.CapacityPercent:
			w.Percent = uint64(n)
		}
	}
}
