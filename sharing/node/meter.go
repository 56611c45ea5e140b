// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"github.com/kerf-gpu/kerf/sharing/node/guard"
	"github.com/kerf-gpu/kerf/sharing/node/meter"
)

// newMeter makes the meter of a node. It also reports unmanaged processes.
func newMeter(r *Runtime) *meter.Meter {
	return meter.New(meter.Options{
		Log: r.Log, Notify: r.Notify, Conditions: r.Conditions, Sampler: r.sampler, View: views{r}.meter,
		Watcher: &guard.Reporter{Options: guardNode{r}.options()},
	})
}

// meter is what the meter sees.
func (n views) meter() meter.View {
	r := n.r
	grants, gpus := r.Store.View()
	v := meter.View{Grants: grants, Idle: r.settings.Pool().Idle}
	if r.Driver.Get() != nil {
		v.Driver = r.Driver.Get().Driver
	}
	for _, page := range gpus {
		v.GPUs = append(v.GPUs, page.GPU)
	}
	return v
}
