// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package instances

import (
	"fmt"
	"slices"

	"github.com/kerf-gpu/kerf/mig"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/ledger"
)

// Grant is a grant of a MIG instance, or of a share of one.
type Grant struct {
	ledger.Reservation
	// GPU is the physical GPU.
	GPU sharing.GPU
	// Instance is none if it is not known now which instance a share is of.
	Instance sharing.Instance
	// Container is true if containers use the grant, and Active while one does.
	Container, Active bool
}

// In reports whether a placement is a MIG instance, or a share of one.
func In(p sharing.Placement) bool { return len(p) == 1 && p[0].InInstance() }

// Name is the instance of a share, for users.
func Name(f sharing.Share) string {
	in := f.Instance()
	return sharing.Instance{Profile: in.Profile, Start: in.Start, Size: 1}.String()
}

// OwnerName is who has a grant, for people.
func OwnerName(c ledger.Reservation) string {
	switch {
	case c.Owner.Pod():
		return fmt.Sprintf("pod %s/%s", c.Owner.Namespace, c.Owner.PodName)
	case c.Name != "":
		return fmt.Sprintf("grant %s (%s)", c.ID, c.Name)
	}
	return "grant " + string(c.ID)
}

// Of is the MIG instance that a share is, or is on; none if it is unknown now. gpu finds a GPU.
func Of(f sharing.Share, gpu func(sharing.GPURef) (ledger.View, bool)) sharing.Instance {
	if !f.GPU.IsInstance() {
		return f.MIG
	}
	v, _ := gpu(f.GPU)
	return v.GPU.Part
}

// Granted is what grants have of a GPU.
func Granted(gpu sharing.GPUID, grants []ledger.Grant, find func(sharing.GPURef) (ledger.View, bool)) []mig.Granted {
	var out []mig.Granted
	for _, g := range grants {
		for _, f := range g.Placement {
			if f.GPU.UUID != gpu {
				continue
			}
			one := mig.Granted{Instance: Of(f, find), Who: OwnerName(g.Reservation)}
			if f.GPU.IsInstance() {
				one.Part = f.GPU
			}
			out = append(out, one)
		}
	}
	return out
}

// join adds the grants to the states. waits is why the last attempt to create an instance failed.
func join(states []mig.State, grants []Grant, waits func(ledger.GrantID) string) map[sharing.GPUID]mig.State {
	out := map[sharing.GPUID]mig.State{}
	for _, s := range states {
		for _, g := range grants {
			if g.GPU.UUID != s.GPU || g.Instance.None() {
				continue
			}
			i := slices.IndexFunc(s.Instances, func(in mig.Instance) bool {
				return in.Managed &&
					in.Instance == g.Instance
			})
			if i < 0 {
				i = len(s.Instances)
				s.Instances = append(s.Instances, mig.Instance{Instance: g.Instance, Managed: true})
			}
			in := &s.Instances[i]
			if in.Grant != "" { // Its shares, or the instance for several containers.
				in.Owner += ", " + OwnerName(g.Reservation)
				continue
			}
			in.Grant, in.Owner, in.PendingReason = string(g.ID), OwnerName(g.Reservation), waits(g.ID)
		}
		out[s.GPU] = s
	}
	return out
}

// lost says why an instance is not there any more; empty while it is, and while that is not known.
func lost(states []mig.State, f sharing.Share, in sharing.Instance) string {
	i := slices.IndexFunc(states, func(s mig.State) bool { return s.GPU == f.GPU.UUID })
	if i < 0 || states[i].Error != "" {
		return ""
	}
	if slices.ContainsFunc(states[i].Instances, func(one mig.Instance) bool {
		return one.Managed && one.Ready &&
			one.Instance == in
	}) {
		return ""
	}
	return fmt.Sprintf("its MIG instance %s is not there any more", Name(f))
}
