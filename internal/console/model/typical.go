// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package model

import (
	"cmp"
	"slices"

	"github.com/kerf-gpu/kerf/api/gpunode"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/allocator"
	"github.com/kerf-gpu/kerf/sharing/allocator/report"
	"github.com/kerf-gpu/kerf/sharing/scheduler"
)

// mostTypical is how many kinds of request count as typical.
const mostTypical = 16

// Typical is the requests for shares that are frequent among the pods, with how many pods make each.
type Typical struct {
	requests []sharing.Request
	counts   []int
	// known has the answer for GPUs that differ only by their UUID.
	known map[room]int
}

// room is what decides whether a share fits on a GPU, as far as GPUs of a node differ in it.
type room struct {
	model             string
	free              int64
	percent, shares   int
	mig, whole        bool
	mode, level, most string
}

// Requests counts the requests for shares of pods. The zero value has none.
type Requests struct{ counts map[amount]int }

// amount is a request for a share of one GPU.
type amount struct {
	memory  sharing.Bytes
	percent sharing.Percent
}

// Add counts the requests of n more pods that want the same. A negative n removes pods.
func (r *Requests) Add(w scheduler.PodRequest, n int) {
	if r.counts == nil {
		r.counts = map[amount]int{}
	}
	for _, a := range w.Containers {
		if a.Request.Kind != sharing.KindShared || a.Request.Open() {
			continue
		}
		memory, percent := a.Request.Each()
		of := amount{memory, percent}
		if r.counts[of] += n; r.counts[of] <= 0 {
			delete(r.counts, of)
		}
	}
}

// Typical is the most frequent requests.
func (r *Requests) Typical() Typical {
	t := Typical{known: map[room]int{}}
	for of, n := range r.counts {
		t.requests = append(t.requests, sharing.Request{Kind: sharing.KindShared, GPUs: 1, Memory: of.memory,
			Percent: of.percent})
		t.counts = append(t.counts, n)
	}
	t.sort()
	return t
}

// sort keeps the most frequent requests, in an order that depends on nothing else.
func (t *Typical) sort() {
	order := make([]int, len(t.requests))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(i, j int) int {
		a, b := t.requests[i], t.requests[j]
		return cmp.Or(cmp.Compare(t.counts[j], t.counts[i]), cmp.Compare(a.Memory, b.Memory),
			cmp.Compare(a.Percent, b.Percent))
	})
	order = order[:min(len(order), mostTypical)]
	requests, counts := make([]sharing.Request, len(order)), make([]int, len(order))
	for k, i := range order {
		requests[k], counts[k] = t.requests[i], t.counts[i]
	}
	t.requests, t.counts = requests, counts
}

// Equal is true if both give every GPU the same fragmentation.
func (t Typical) Equal(o Typical) bool {
	return slices.Equal(t.counts, o.counts) && slices.EqualFunc(t.requests, o.requests,
		func(a, b sharing.Request) bool { return a.Memory == b.Memory && a.Percent == b.Percent })
}

// misfits is the percent of typical requests that the GPU's free capacity cannot take.
func (t Typical) misfits(g gpunode.GPU, holders int) int {
	if len(t.requests) == 0 || g.FreeBytes <= 0 || g.MIG || g.Whole || g.Mode == gpunode.ModeWhole {
		return 0
	}
	key := room{g.Model, g.FreeBytes, g.FreePercent, holders, g.MIG, g.Whole, g.Mode, g.MinEnforcement, ""}
	if p, ok := t.known[key]; ok {
		return p
	}
	state, all, misfit := report.GPU(g, holders), 0, 0
	for i, r := range t.requests {
		all += t.counts[i]
		if !allocator.Fit(state, r).Fits() {
			misfit += t.counts[i]
		}
	}
	p := misfit * 100 / all
	t.known[key] = p
	return p
}
