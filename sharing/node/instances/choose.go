// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package instances

import (
	"fmt"
	"slices"

	"github.com/kerf-gpu/kerf/mig"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/allocator"
)

// Candidate is a GPU that may give an instance.
type Candidate struct {
	GPU sharing.GPU
	// ModeSwitchable is true if demand may switch its MIG mode. Switching is a clause while it does, else empty.
	ModeSwitchable bool
	Switching      string
	// Taken is what grants have of it, and what faults keep.
	Taken []mig.Granted
}

// offers is the part of a Manager that Choose needs.
type offers interface {
	Candidate(gpu sharing.GPUID, profile string, start int, taken []mig.Granted) mig.Candidate
}

// Choose chooses the instance that answers a request: one that exists before one that must be created, then the one
// that costs other requests least. The advice goes before; exact advice allows nothing else. Errors: *allocator.NoFit,
// and sharing.ErrUnavailable without a manager; reason then says why in a word.
func Choose(m offers, gpus []Candidate, req sharing.Request, advice sharing.Advice) (p sharing.Placement,
	reason mig.Reason, err error) {
	if m == nil {
		return nil, mig.NoManager, fmt.Errorf("%s: MIG instances cannot be created now: %w", req,
			sharing.ErrUnavailable)
	}
	start := mig.AnyStart
	if advice.Exact {
		gpus = slices.DeleteFunc(slices.Clone(gpus),
			func(g Candidate) bool { return !slices.Contains(advice.GPUs, g.GPU.UUID) })
		start = advice.MIG.Start
	} else if f, ok := advised(m, gpus, req, advice); ok {
		return sharing.Placement{f}, "", nil
	}
	var best *mig.Candidate
	r := refusal{no: &allocator.NoFit{Request: req.Clone(), Never: true}}
	for _, g := range gpus {
		o := offer(m, g, req, start)
		switch {
		case o.Detail != "":
			r.add(g, o)
		case best == nil || o.Better(*best):
			best = &o
		}
	}
	if best != nil {
		return sharing.Placement{best.Share}, "", nil
	}
	return nil, nearest(r.reasons), r.err()
}

// advised is the instance that the scheduler chose, or another one on its GPU.
func advised(m offers, gpus []Candidate, req sharing.Request, advice sharing.Advice) (sharing.Share, bool) {
	if len(advice.GPUs) != 1 {
		return sharing.Share{}, false
	}
	i := slices.IndexFunc(gpus, func(g Candidate) bool { return g.GPU.UUID == advice.GPUs[0] })
	if i < 0 {
		return sharing.Share{}, false
	}
	o := mig.Candidate{Detail: "no start was planned"}
	if advice.MIG.Profile != "" {
		o = offer(m, gpus[i], req, advice.MIG.Start)
	}
	if o.Detail != "" {
		o = offer(m, gpus[i], req, mig.AnyStart)
	}
	return o.Share, o.Detail == ""
}

// offer is what a GPU gives to a request.
func offer(m offers, g Candidate, req sharing.Request, start int) mig.Candidate {
	named, open := allocator.Named(g.GPU, req), allocator.Open(g.GPU)
	switch {
	case !named.Fits():
		return mig.Candidate{Detail: named.Text, Never: true, Reason: mig.NotChosen}
	case !g.GPU.MIG && !g.GPU.MIGCapable:
		return mig.Candidate{Detail: "cannot do MIG", Never: true, Reason: mig.NotInMIGMode}
	case !g.GPU.MIG && !g.ModeSwitchable: // the manager says why it is not in MIG mode, which matters before its health
	case open.Code == allocator.Cordoned:
		return mig.Candidate{Detail: open.Text, Reason: mig.Cordoned}
	case !open.Fits():
		return mig.Candidate{Detail: open.Text, Reason: mig.Unhealthy}
	case g.Switching != "":
		return mig.Candidate{Detail: g.Switching, Reason: mig.NotInMIGMode}
	}
	return m.Candidate(g.GPU.UUID, req.MIG, start, g.Taken)
}

// refusal collects why no GPU answers a request.
type refusal struct {
	no      *allocator.NoFit
	reasons []mig.Reason
	// unknown is the first error in the name of the profile.
	unknown error
	// here GPUs are in MIG mode, able ones switch with demand, and capable ones support MIG.
	here, able, capable int
}

func (r *refusal) add(g Candidate, o mig.Candidate) {
	r.no.GPUs = append(r.no.GPUs, allocator.Reason{
		GPU: g.GPU.Ref(), Index: g.GPU.Index, Model: g.GPU.Model, Verdict: allocator.Verdict{Code: allocator.NoInstance,
			Text: o.Detail, Never: o.Never},
	})
	r.reasons = append(r.reasons, o.Reason)
	r.no.Never = r.no.Never && o.Never
	if g.GPU.MIG {
		r.here++
	}
	if g.GPU.MIG || g.GPU.MIGCapable {
		r.capable++
	}
	if g.ModeSwitchable {
		r.able++
	}
	if r.unknown == nil {
		r.unknown = o.Unknown
	}
}

func (r *refusal) err() error {
	what := "not enough free for " + r.no.Request.String()
	switch {
	case r.no.Never && r.unknown != nil:
		return r.unknown
	case r.capable == 0:
		r.no.Summary = what + ": no GPU of this node can be put in MIG mode"
	case r.here == 0 && (r.able > 0 || !r.no.Never):
		r.no.Summary = what + " now: no GPU of this node is in MIG mode yet"
	case r.here == 0:
		r.no.Summary = what +
			": no GPU of this node is in MIG mode, and their pool does not put them there; its mode or a layout does"
	case r.no.Never:
		r.no.Summary = "no GPU of this node can give " + r.no.Request.String()
	default:
		r.no.Summary = what + " now"
	}
	return r.no
}

// nearest is the reason of the GPU that came nearest to an answer.
func nearest(reasons []mig.Reason) mig.Reason {
	for _, r := range []mig.Reason{
		mig.Fragmented, mig.Full, mig.Unmanaged, mig.Cordoned, mig.Unhealthy, mig.Faulty, mig.NotLaidOut, mig.Shared,
		mig.NoProfile, mig.NotInMIGMode,
	} {
		if slices.Contains(reasons, r) {
			return r
		}
	}
	return mig.NotChosen
}

// Hardened returns a request for the smallest MIG instance that has the memory, if req is one for memory that only
// hardware may enforce. Else it returns req.
func Hardened(req sharing.Request) sharing.Request {
	if req.Kind != sharing.KindShared || req.MinLevel != sharing.LevelHardware || req.Memory == 0 || req.Percent != 0 ||
		req.GPUs != 1 || req.Profile != "" {
		return req
	}
	req.Kind, req.MIG, req.Memory, req.Burst = sharing.KindMIG, ">= "+req.Memory.String(), 0, sharing.Burst{}
	return req
}
