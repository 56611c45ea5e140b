// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"slices"
	"time"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/allocator/cluster"
	"github.com/kerf-gpu/kerf/sharing/dra"
)

// ClaimPlacement is what the ResourceClaims of a pod would get on a node.
type ClaimPlacement struct {
	Node string
	// CPU is what the pod requests of the machine, and Free what the machine has free.
	CPU, Free cluster.Milli
	// Devices are those that the allocator of claims gives the pod there.
	Devices []dra.Result
	// Allocated are the devices of the node that claims have, whether the node has prepared them or not. One entry can
	// have the sums of several claims.
	Allocated []dra.Result
	// Rank counts the alternatives of all requests that come before those that the pod gets there.
	Rank int
}

// rankToll is subtracted from the score for each alternative that comes before. The order of alternatives is the wish
// of the claim's owner, so it is more than all switchTolls of a pod.
const rankToll = int64(1) << 54

// ScoreClaims is the score of a pod with ResourceClaims on a node; the highest is best. It is false if Kerf has no
// opinion. Then the pod gets no device of Kerf there, the node's report is not trusted, or the report has less free.
func (j *judge) ScoreClaims(c ClaimPlacement, now time.Time) (int64, bool) {
	n := j.nodes[c.Node]
	if _, ok := trusted(n, now); !ok || len(c.Devices) == 0 {
		return 0, false
	}
	j.refresh()
	s := j.claimState(n, c.Allocated)
	sum, placed := -rankToll*int64(c.Rank), 0
	for _, group := range n.groups(c.Devices) {
		score, ok := j.claimScore(n, s, group, c.CPU, c.Free)
		if !ok {
			return 0, false
		}
		sum, placed = sum+score, placed+len(group)
		s.take("", group)
	}
	return sum, placed == len(c.Devices)
}

// claimState is the state of the GPUs that pods get by ResourceClaim. The allocated claims count in place of the grants
// of pods. A claim is allocated before its grant exists. The node may still release a grant of a claim that has ended.
func (m *placer) claimState(n *node, allocated []dra.Result) *state {
	s := m.stateOf(n).clone()
	s.byClaim = true
	for uid := range n.report.claims {
		s.release(uid)
	}
	for i := range s.gpus {
		g := &s.gpus[i]
		if n.report.byClaim[g.GPU.Ref()] {
			g.Shut, g.NoWhole = "", ""
		} else {
			g.Give("limits", false, false)
		}
	}
	for _, group := range n.groups(allocated) {
		s.take("", group)
	}
	return s
}

// groups are the placements that devices stand for: a request of several equal GPUs is one placement. Devices that the
// node does not have are left out.
func (n *node) groups(devices []dra.Result) []sharing.Placement {
	var ids []sharing.GPUID
	for _, g := range n.report.gpus {
		if n.report.byClaim[g.GPU.Ref()] {
			ids = append(ids, g.GPU.UUID)
		}
	}
	var out []sharing.Placement
	request := ""
	for _, d := range devices {
		at, ok := dra.TargetOf(d.Device, ids)
		if !ok || d.Admin {
			continue
		}
		one := n.shareOf(at, d)
		if last := len(out) - 1; last >= 0 && d.Request == request && joins(out[last], one) {
			out[last] = append(out[last], one)
		} else {
			out = append(out, sharing.Placement{one})
		}
		request = d.Request
	}
	return out
}

// joins reports whether a share is one more of an equal request, on another GPU.
func joins(p sharing.Placement, one sharing.Share) bool {
	first := p[0]
	first.GPU = one.GPU
	return first == one && one.MIG.None() &&
		!slices.ContainsFunc(p, func(f sharing.Share) bool { return f.GPU == one.GPU })
}

func (n *node) shareOf(at dra.Target, d dra.Result) sharing.Share {
	out := sharing.Share{GPU: sharing.GPURef{UUID: at.GPU}}
	switch at.Kind {
	case dra.KindWhole:
		out.Whole = true
	case dra.KindMIG:
		out.MIG = n.report.migGPUs[out.GPU].instance(at.Instance.Profile, at.Instance.Start)
	case dra.KindShare:
		out.Memory, out.Percent = sharing.Bytes(d.Memory), percentOf(d.Percent)
	}
	return out
}

// percentOf reads a percentage of a claim, or a sum of several.
func percentOf(n uint64) sharing.Percent {
	return sharing.Percent(min(n, uint64(sharing.FullGPU)*sharing.MaxGPUs))
}

// requestOf is the request that gets a placement.
func requestOf(p sharing.Placement) sharing.Request {
	r := sharing.Request{Kind: sharing.KindShared, GPUs: len(p)}
	switch {
	case p[0].Whole:
		r.Kind = sharing.KindWhole
	case !p[0].MIG.None():
		r.Kind, r.MIG = sharing.KindMIG, p[0].MIG.Profile
	default:
		r.Memory, r.Percent = p.Total()
	}
	return r
}

// claimScore is the policy's score of one placement; false if the node cannot have it as it was reported.
func (m *placer) claimScore(n *node, s *state, p sharing.Placement, cpu, free cluster.Milli) (int64, bool) {
	r, toll := requestOf(p), int64(0)
	if s.mustSwitch(p) {
		s, toll = s.turned(r.Kind == sharing.KindMIG), switchToll
	}
	score, ok := m.sharesOn(n, s, p, cpu, free)
	if r.Kind == sharing.KindMIG {
		score, ok = m.instanceOn(n, s, p[0], cpu, free)
	}
	return score - toll, ok
}

// sharesOn is the score of shares or whole GPUs on the GPUs of a placement.
func (m *placer) sharesOn(n *node, s *state, p sharing.Placement, cpu, free cluster.Milli) (int64, bool) {
	view, shape := n.view(s, requestOf(p), cpu)
	view.CPU = free
	var gpus []int
	for _, f := range p {
		i := s.index(f.GPU)
		if i < 0 || view.GPUs[i] < shape.Share {
			return 0, false
		}
		gpus = append(gpus, i)
	}
	return m.policy.ScoreOn(&view, shape, gpus...), true
}

// instanceOn is the score of a MIG instance at its place. On a GPU with a layout it loses nothing.
func (m *placer) instanceOn(n *node, s *state, f sharing.Share, cpu, free cluster.Milli) (int64, bool) {
	c := s.migGPU(f.GPU)
	switch {
	case c == nil || c.geometry == nil || f.MIG.ID == unknown:
		return 0, false
	case c.fixed:
		return 0, true
	}
	r := requestOf(sharing.Placement{f})
	view, gpus := n.migView(s, c.geometry, r)
	i := slices.Index(gpus, s.index(f.GPU))
	if i < 0 {
		return 0, false
	}
	view.CPU = free
	return m.policy.ScoreInstanceOn(&view, view.Resolve(instanceShape(r, cpu)), i, f.MIG.Start)
}

func (s *state) index(id sharing.GPURef) int {
	for i := range s.gpus {
		if s.gpus[i].GPU.Ref() == id {
			return i
		}
	}
	return -1
}

// LearnClaims reports a pod with ResourceClaims that arrived to the policy, with the requests of its claims. Of
// alternatives, the first counts. Each pod counts once.
func (l *lessons) LearnClaims(uid string, wanted []dra.Wanted, cpu cluster.Milli) {
	if l.learned[uid] {
		return
	}
	l.learned[uid], l.ofClaims[uid] = true, true
	seen := map[string]bool{}
	for _, w := range wanted {
		r, ok := usualRequest(w)
		if !ok || seen[w.Main()] {
			continue
		}
		seen[w.Main()] = true
		if l.policy.Learn(cluster.Request{Shape: shapeOf(r, cpu)}) {
			l.survey.void = true
			l.era++
		}
	}
}

// usualRequest is the request that a claim stands for; false for a share without memory and a MIG instance of any
// profile.
func usualRequest(w dra.Wanted) (sharing.Request, bool) {
	r := sharing.Request{GPUs: w.Count}
	n := uint64(max(0, w.Count))
	switch w.Kind {
	case dra.KindWhole:
		r.Kind = sharing.KindWhole
	case dra.KindMIG:
		r.Kind, r.MIG = sharing.KindMIG, w.Profile
	case dra.KindShare:
		r.Kind, r.Memory, r.Percent = sharing.KindShared, w.Memory*sharing.Bytes(n), percentOf(w.Percent)*percentOf(n)
	}
	return r, r.Validate() == nil
}

// ForgetClaims tells that a pod with ResourceClaims is deleted. If it was bound, its end shows the policy that pods
// leave.
func (l *lessons) ForgetClaims(uid string, bound bool) {
	if !l.ofClaims[uid] {
		return
	}
	delete(l.ofClaims, uid)
	delete(l.learned, uid)
	if bound {
		l.leave()
	}
}
