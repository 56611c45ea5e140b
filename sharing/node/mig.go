// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/kerf-gpu/kerf/mig"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/allocator"
	"github.com/kerf-gpu/kerf/sharing/audit"
	"github.com/kerf-gpu/kerf/sharing/backend/choice"
	"github.com/kerf-gpu/kerf/sharing/ledger"
)

// MIG keeps the GPUs that are cut into instances.
type MIG interface {
	// Offer says what a GPU gives to who asks for a profile, from that placement unit on or mig.AnyStart, beside these claims
	// on it. It asks no driver.
	Offer(gpu sharing.GPUID, profile string, start int, claimed []mig.Granted) mig.Offer
	// Would is Offer of a GPU that demand may change, as if it were in MIG mode already.
	Would(gpu sharing.GPUID, profile string, start int, claimed []mig.Granted) mig.Offer
	// Turns reports whether demand may change the GPU's MIG mode. It asks no driver.
	Turns(gpu sharing.GPUID) bool
	// Turn changes the MIG mode of an idle GPU that demand may change, or leaves it as it was and says why.
	Turn(ctx context.Context, gpu sharing.GPUID, on bool) error
	// Fits reports whether an instance there answers who asks for a profile. It asks no driver.
	Fits(gpu sharing.GPUID, profile string, in sharing.Instance) bool
	// Ensure makes the instance of a claim where it is not there yet; warm is true where nothing was to be done.
	Ensure(ctx context.Context, gpu sharing.GPUID, in sharing.Instance, who string) (d sharing.MIGDevice, warm bool, err error)
	// Wake tells that a claim ended.
	Wake()
	// States are the GPUs as they were looked at last.
	States() []mig.State
}

// refusedFor is the reason that counts of those of all GPUs: that of the GPU which came nearest to an answer.
func refusedFor(reasons []mig.Reason) mig.Reason {
	for _, r := range []mig.Reason{mig.Fragmented, mig.Full, mig.Foreign, mig.Cordoned, mig.Unhealthy, mig.Trouble, mig.NotLaidOut, mig.Shared, mig.NoProfile, mig.NotCut} {
		if slices.Contains(reasons, r) {
			return r
		}
	}
	return mig.NotChosen
}

// SetMIG tells what keeps the GPUs' MIG instances, from now on; nil where nothing does.
func (r *Runtime) SetMIG(m MIG) {
	r.mu.Lock()
	r.mig = m
	r.modes.SetManager(m)
	r.mu.Unlock()
	r.changed.announce()
}

// cutFor chooses the instance that answers the request: one that is there before one that is to be cut, and that where
// the room for others suffers least. What was planned goes before, if it can still be had. It needs the lock.
func (r *Runtime) cutFor(req sharing.Request, advice sharing.Advice) (sharing.Placement, error) {
	if r.mig == nil {
		r.opt.Observer.MIGRefused(string(mig.NoManager))
		return nil, fmt.Errorf("%s: nothing cuts GPUs now: %w", req, sharing.ErrUnavailable)
	}
	if f, ok := r.plannedCut(req, advice); ok {
		return sharing.Placement{f}, nil
	}
	var best *mig.Offer
	no := &allocator.NoFit{Request: req.Clone(), Never: true}
	var unknown error
	var reasons []mig.Reason
	here, able, capable := 0, 0, 0
	for _, v := range r.ledger.GPUs() {
		if v.GPU.UUID.IsPart() {
			continue
		}
		o := r.offer(v, req, mig.AnyStart)
		switch {
		case o.Why == "" && (best == nil || o.Better(*best)):
			best = &o
		case o.Why != "":
			no.GPUs = append(no.GPUs, allocator.Reason{GPU: v.GPU.UUID, Index: v.GPU.Index, Model: v.GPU.Model, Verdict: allocator.Verdict{Code: allocator.NoInstance, Text: o.Why, Never: o.Never}})
			reasons = append(reasons, o.Reason)
			no.Never = no.Never && o.Never
			if v.GPU.MIG {
				here++
			}
			if v.GPU.MIG || v.GPU.MIGCapable {
				capable++
			}
			if r.modes.Turns(v.GPU.UUID) {
				able++
			}
			if o.Unknown != nil && unknown == nil {
				unknown = o.Unknown
			}
		}
	}
	if best != nil {
		return sharing.Placement{best.Fragment}, nil
	}
	r.opt.Observer.MIGRefused(string(refusedFor(reasons)))
	switch {
	case no.Never && unknown != nil:
		return nil, unknown
	case capable == 0:
		no.Summary = "no room for " + req.String() + ": no GPU of this node can be put in MIG mode"
	case here == 0 && (able > 0 || !no.Never):
		no.Summary = "no room for " + req.String() + " now: no GPU of this node is in MIG mode yet"
	case here == 0:
		no.Summary = "no room for " + req.String() + ": no GPU of this node is in MIG mode, and their pool does not put them there; its mode or a layout does"
	case no.Never:
		no.Summary = "no room for " + req.String() + ": no GPU of this node could ever give it"
	default:
		no.Summary = "no room for " + req.String() + " now"
	}
	return nil, no
}

// plannedCut is the instance that the scheduler chose, or another one on its GPU; it needs the lock.
func (r *Runtime) plannedCut(req sharing.Request, advice sharing.Advice) (sharing.Fragment, bool) {
	if len(advice.GPUs) != 1 {
		return sharing.Fragment{}, false
	}
	v, ok := r.ledger.GPU(advice.GPUs[0])
	if !ok {
		return sharing.Fragment{}, false
	}
	o := mig.Offer{Why: "no start was planned"}
	if advice.MIG.Profile != "" {
		o = r.offer(v, req, advice.MIG.Start)
	}
	if o.Why != "" {
		o = r.offer(v, req, mig.AnyStart)
	}
	return o.Fragment, o.Why == ""
}

// offer is what one GPU gives to the request, from that unit on; it needs the lock.
func (r *Runtime) offer(v ledger.View, req sharing.Request, start int) mig.Offer {
	named, open := allocator.Named(v.GPU, req), allocator.Open(v.GPU)
	switch g := v.GPU; {
	case !named.Fits():
		return mig.Offer{Why: named.Text, Never: true, Reason: mig.NotChosen}
	case !g.MIG && !g.MIGCapable:
		return mig.Offer{Why: "cannot do MIG", Never: true, Reason: mig.NotCut}
	case !g.MIG && !r.modes.Turns(g.UUID): // MIG says why it is not in MIG mode, which matters before its health
	case open.Code == allocator.Cordoned:
		return mig.Offer{Why: open.Text, Reason: mig.Cordoned}
	case !open.Fits():
		return mig.Offer{Why: open.Text, Reason: mig.Unhealthy}
	}
	if why := r.modes.Switching(v.GPU.UUID); why != "" && (v.GPU.MIG || r.modes.Turns(v.GPU.UUID)) {
		return mig.Offer{Why: why, Reason: mig.NotCut}
	}
	return r.mig.Offer(v.GPU.UUID, req.MIG, start, append(r.claimsOn(v.GPU.UUID), r.hurtOn(v.GPU.UUID)...))
}

// hardened is a request for memory that only the hardware may hold, as one for the smallest MIG instance that has it,
// where the node cuts GPUs; any other stays as it is. It needs the lock.
func (r *Runtime) hardened(req sharing.Request) sharing.Request {
	if r.mig == nil || req.Kind != sharing.KindShared || req.MinLevel != sharing.LevelHardware || req.Memory == 0 || req.Percent != 0 || req.GPUs != 1 || req.Profile != "" {
		return req
	}
	if !slices.ContainsFunc(r.ledger.GPUs(), func(v ledger.View) bool { return v.GPU.MIG || r.modes.Turns(v.GPU.UUID) }) {
		return req
	}
	req.Kind, req.MIG, req.Memory, req.Burst = sharing.KindMIG, ">= "+req.Memory.String(), 0, sharing.Burst{}
	return req
}

// hardenedAll needs the lock.
func (r *Runtime) hardenedAll(list []sharing.Request) []sharing.Request {
	out := make([]sharing.Request, len(list))
	for i, req := range list {
		out[i] = r.hardened(req)
	}
	return out
}

// isCut reports whether a placement is a MIG instance, or a share of one.
func isCut(p sharing.Placement) bool { return len(p) == 1 && p[0].Cut() }

// instanceOf is the MIG instance that the fragment is or is a share of, none where it is not known now. It needs the lock.
func (r *Runtime) instanceOf(f sharing.Fragment) sharing.Instance {
	if !f.GPU.IsPart() {
		return f.MIG
	}
	v, _ := r.ledger.GPU(f.GPU)
	return v.GPU.Part
}

// instanceName is the instance for people.
func instanceName(f sharing.Fragment) string {
	if slot, ok := f.GPU.Slot(); ok {
		return sharing.Instance{Profile: slot.Profile, Start: slot.Start, Size: 1}.String()
	}
	return f.MIG.String()
}

// cut makes the instance of a claim that is one, and shows it to the container runtime where a container gets it. It is
// called without the lock.
func (r *Runtime) cut(ctx context.Context, id ledger.ClaimID) error {
	r.mu.Lock()
	g, ok := r.ledger.Get(id)
	m := r.mig
	var in sharing.Instance
	if ok && isCut(g.Claim.Placement) {
		in = r.instanceOf(g.Claim.Placement[0])
	}
	r.mu.Unlock()
	if !ok || !isCut(g.Claim.Placement) {
		return nil
	}
	if in.None() {
		return fmt.Errorf("claim %q: its MIG instance %s is not there: %w", id, instanceName(g.Claim.Placement[0]), sharing.ErrUnavailable)
	}
	if m == nil {
		return fmt.Errorf("claim %q: nothing cuts GPUs now: %w", id, sharing.ErrUnavailable)
	}
	start := time.Now()
	d, warm, err := m.Ensure(ctx, g.Claim.Placement[0].GPU.Device(), in, holderName(g.Claim))
	r.opt.Observer.MIGCut(warm, time.Since(start), err)
	if err == nil {
		err = r.showWith(ctx, id, d)
	}
	r.noticeCut(ctx, g.Claim, MIGNotice{Took: time.Since(start), Warm: warm, Err: err})
	why := "an instance was cut"
	if warm {
		why = "an instance that was there is used"
	}
	r.opt.Audit.Claim(audit.MIG, g.Claim, 0, why, err)
	if err != nil {
		return fmt.Errorf("claim %q: %w", id, err)
	}
	return r.opt.Failpoints.Eval("mig-after-cut")
}

// MIGMost says how many instances of each profile each GPU in MIG mode can have at once, by the profiles' names. It asks
// no driver.
func (r *Runtime) MIGMost() map[sharing.GPUID]map[string]int {
	r.mu.Lock()
	m := r.mig
	r.mu.Unlock()
	out := map[sharing.GPUID]map[string]int{}
	if m == nil {
		return out
	}
	for _, s := range m.States() {
		out[s.GPU] = s.Most
	}
	return out
}

// MIGTurns are the GPUs whose MIG mode demand may change, nil while that is not known. It asks no driver.
func (r *Runtime) MIGTurns() map[sharing.GPUID]bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mig == nil {
		return nil
	}
	out := map[sharing.GPUID]bool{}
	for _, v := range r.ledger.GPUs() {
		if r.modes.Turns(v.GPU.UUID) {
			out[v.GPU.UUID] = true
		}
	}
	return out
}

// MIGShared are the GPUs whose MIG instances are shared. It asks no driver.
func (r *Runtime) MIGShared() map[sharing.GPUID]bool {
	r.mu.Lock()
	m := r.mig
	r.mu.Unlock()
	out := map[sharing.GPUID]bool{}
	if m == nil {
		return out
	}
	for _, s := range m.States() {
		if s.Shared {
			out[s.GPU] = true
		}
	}
	return out
}

// migStates are the GPUs' instances with the claims that have them; it needs the lock.
func (r *Runtime) migStates() map[sharing.GPUID]mig.State {
	out := map[sharing.GPUID]mig.State{}
	if r.mig == nil {
		return out
	}
	for _, s := range r.mig.States() {
		for _, g := range r.ledger.Grants() {
			f, on := cutOn(g.Claim.Placement, s.GPU)
			in := r.instanceOf(f)
			if !on || in.None() {
				continue
			}
			i := slices.IndexFunc(s.Instances, func(p mig.Instance) bool { return p.Ours && p.Instance == in })
			if i < 0 {
				i = len(s.Instances)
				s.Instances = append(s.Instances, mig.Instance{Instance: in, Ours: true})
			}
			if f.GPU.IsPart() && s.Instances[i].Grant != "" {
				s.Instances[i].Holder += ", " + holderName(g.Claim)
				continue
			}
			s.Instances[i].Grant, s.Instances[i].Holder = string(g.Claim.ID), holderName(g.Claim)
			if h := r.held[g.Claim.ID]; h != nil && h.cut.err != nil {
				s.Instances[i].Waits = h.cut.err.Error()
			}
		}
		out[s.GPU] = s
	}
	return out
}

// levelsOf are the levels that a claim can have on a healthy GPU that is cut so, and why a share cannot have a stronger one; it
// needs the lock.
func (r *Runtime) levelsOf(g sharing.GPU, cut mig.State) (levels []sharing.Level, why string) {
	if g.MIG && cut.On && cut.Shared {
		return nil, "" // its instances have levels of their own
	}
	if g.MIG && cut.On && cut.Fixed && len(cut.Most) == 0 {
		return nil, "" // it has no instance and gets none
	}
	if g.MIG && cut.On && !cut.Turns {
		return []sharing.Level{sharing.LevelHardware}, ""
	}
	levels, by := r.levels(g, r.listOn(g, ""), nil)
	why = by.Why
	if g.MIG { // and demand may change that: it gives what it gave before, too
		before, why := r.levelsBefore(g)
		return append([]sharing.Level{sharing.LevelHardware}, before...), why
	}
	return levels, why
}

// levelsBefore are those that a GPU in MIG mode had outside of it; none where that is not known. It needs the lock.
func (r *Runtime) levelsBefore(g sharing.GPU) (levels []sharing.Level, why string) {
	rep, known := r.modes.Before(g.UUID)
	if !known {
		return nil, ""
	}
	c := choice.Choose(choice.On{List: r.listOn(g, ""), Report: rep})
	return []sharing.Level{sharing.LevelExclusive, c.Level}, c.Why
}

// instanceLost says why a claim's MIG instance does not hold it any more; empty while it does. It needs the lock.
func (r *Runtime) instanceLost(c ledger.Claim) string {
	if !slices.ContainsFunc(c.Placement, sharing.Fragment.Cut) {
		return ""
	}
	states := r.migStates()
	for _, f := range c.Placement {
		s, known := states[f.GPU.Device()]
		if !f.Cut() || !known || s.Trouble != "" {
			continue
		}
		in := r.instanceOf(f)
		if !slices.ContainsFunc(s.Instances, func(p mig.Instance) bool { return p.Ours && p.Ready && p.Instance == in }) {
			return fmt.Sprintf("its MIG instance %s is not there any more", instanceName(f))
		}
	}
	return ""
}

// cutOn is the fragment of a placement that is a MIG instance of the GPU, or a share of one.
func cutOn(p sharing.Placement, gpu sharing.GPUID) (sharing.Fragment, bool) {
	for _, f := range p {
		if f.Cut() && f.GPU.Device() == gpu {
			return f, true
		}
	}
	return sharing.Fragment{}, false
}

// told is a GPU's health as the watch told it.
type told struct {
	health sharing.Health
	reason string
}

// SetTrouble tells which GPUs must not be used whatever the health watch says, and why: their MIG instances are not as
// they should be, and could not be made so. A GPU that is missing is in no trouble.
func (r *Runtime) SetTrouble(trouble map[sharing.GPUID]string) {
	r.mu.Lock()
	same := maps.Equal(r.trouble, trouble)
	if !same {
		r.trouble = maps.Clone(trouble)
		for id, was := range maps.Clone(r.told) {
			r.setHealth(id, was.health, was.reason)
		}
	}
	r.mu.Unlock()
	if !same {
		r.changed.announce()
	}
}

// ClaimsOn are the claims on a GPU. While a container runtime has not told yet what runs, it is sharing.ErrUnavailable:
// a container that is not known yet may use the GPU.
func (r *Runtime) ClaimsOn(gpu sharing.GPUID) ([]mig.Granted, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.restored || r.awaitWitness && !r.witnessed {
		return nil, fmt.Errorf("the container runtime has not told yet what runs: %w", sharing.ErrUnavailable)
	}
	return r.claimsOn(gpu), nil
}

// claimsOn needs the lock.
func (r *Runtime) claimsOn(gpu sharing.GPUID) []mig.Granted {
	var out []mig.Granted
	for _, g := range r.ledger.Grants() {
		for _, f := range g.Claim.Placement {
			if f.GPU.Device() != gpu {
				continue
			}
			one := mig.Granted{Instance: r.instanceOf(f), Who: holderName(g.Claim)}
			if f.GPU.IsPart() {
				one.Part = f.GPU
			}
			out = append(out, one)
		}
	}
	return out
}

// PartsInUse are the ids of the shared instances of a GPU that claims have shares of.
func (r *Runtime) PartsInUse(gpu sharing.GPUID) []sharing.GPUID {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []sharing.GPUID
	for _, one := range r.claimsOn(gpu) {
		if one.Part != "" {
			out = append(out, one.Part)
		}
	}
	return out
}

// holderName is a claim's holder as people know it.
func holderName(c ledger.Claim) string {
	switch {
	case c.Owner.Pod():
		return fmt.Sprintf("pod %s/%s", c.Owner.Namespace, c.Owner.PodName)
	case c.Name != "":
		return fmt.Sprintf("grant %s (%s)", c.ID, c.Name)
	}
	return "grant " + string(c.ID)
}
