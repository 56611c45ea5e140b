// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"fmt"

	"github.com/kerf-gpu/kerf/mig"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/node/instances"
	"github.com/kerf-gpu/kerf/sharing/node/mode"
	"github.com/kerf-gpu/kerf/sharing/node/store"
)

// MIG is the MIG manager.
type MIG interface {
	instances.Manager
	mode.Manager
}

// SetMIG tells what keeps the GPUs' MIG instances, from now on; nil where nothing does.
func (r *Runtime) SetMIG(m MIG) {
	r.Store.Read(func(store.Reader) { // nothing is placed with only one of them
		r.Instances.SetManager(m)
		r.Modes.SetManager(m)
	})
	r.changed.announce()
}

// GrantsOn are the grants on a GPU, and the instances that are held for claims. Until the container runtime has
// reported its containers, it returns sharing.ErrUnavailable: an unknown container may use the GPU.
func (r *Runtime) GrantsOn(gpu sharing.GPUID) (out []mig.Granted, err error) {
	r.Store.Read(func(l store.Reader) {
		if !r.Recovery.Get().ContainersKnown() {
			err = fmt.Errorf("the container runtime has not reported its containers yet: %w", sharing.ErrUnavailable)
			return
		}
		out = append(instances.Granted(gpu, l.Grants(), l.GPU), r.Instances.Holds.On(gpu, nil)...)
	})
	return out, err
}

// PartsInUse are the ids of the shared instances of a GPU that grants have shares of.
func (r *Runtime) PartsInUse(gpu sharing.GPUID) []sharing.GPURef {
	var granted []mig.Granted
	r.Store.Read(func(l store.Reader) { granted = instances.Granted(gpu, l.Grants(), l.GPU) })
	var out []sharing.GPURef
	for _, one := range granted {
		if one.Part.IsInstance() {
			out = append(out, one.Part)
		}
	}
	return out
}

// PendingInstances says whose instances are being created, and which GPUs switch their MIG mode for whom. An instance
// whose last attempt failed is not among them: its container gets the error.
func (r *Runtime) PendingInstances() []string {
	return append(r.Modes.Pending(), r.Instances.Pending()...)
}
