// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/kerf-gpu/kerf/mig"
	"github.com/kerf-gpu/kerf/mig/turn"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/allocator"
	"github.com/kerf-gpu/kerf/sharing/backend/choice"
	"github.com/kerf-gpu/kerf/sharing/config"
	"github.com/kerf-gpu/kerf/sharing/ledger"
	"github.com/kerf-gpu/kerf/sharing/node/conditions"
)

const (
	// turnEvery is how often it is looked whether a GPU is to change its mode for who waits, even if nothing asks for it.
	turnEvery = time.Second
	// turnDeadline bounds one change of mode.
	turnDeadline = 90 * time.Second
	// turnPause is how long a GPU that could not be changed is left alone; it doubles up to turnLast.
	turnPause = 5 * time.Second
	turnLast  = 5 * time.Minute
	// turnPatience is how long a process waits for a GPU that changes its mode for it.
	turnPatience = 30 * time.Second
	// mostNeeds bounds who is waited for, and mostTold of whom a warning tells.
	mostNeeds = 1000
	mostTold  = 8
)

// The reasons of events about a change of MIG mode.
const (
	// reasonTurned of the node: a GPU has changed its MIG mode because demand asked for it.
	reasonTurned = "MIGModeChanged"
	// reasonNotTurned of the node: a GPU could not change its MIG mode, and why.
	reasonNotTurned = "MIGModeNotChanged"
)

// need is a request that found no room, and may have it once GPUs have changed their mode.
type need struct {
	who   string
	since time.Time
	// requests are what is asked for, completed, as they are to be placed.
	requests []sharing.Request
	prefer   []sharing.GPUID
	but      map[config.Backend]choice.Support
	// asks are those of a pod, which is tried again once there is room; none for a process, which waits itself.
	asks []sharing.ContainerAsk
	// turned is true once a GPU has changed for it.
	turned bool
}

// turning is a GPU that changes its mode.
type turning struct {
	on    bool
	index int
	who   string
	// made is true once it was changed: then stock is taken anew, and it may be given.
	made bool
}

func (t *turning) String() string {
	if t.on {
		return "changes to MIG mode for " + t.who
	}
	return "leaves MIG mode for " + t.who
}

// bar keeps a GPU that could not be changed from being tried at once again.
type bar struct {
	until time.Time
	pause time.Duration
	why   string
}

// turns reports whether demand may change the GPU's MIG mode; it needs the lock.
func (r *Runtime) turns(gpu sharing.GPUID) bool { return r.mig != nil && r.mig.Turns(gpu) }

// turnsAny reports whether there is such a GPU; it needs the lock.
func (r *Runtime) turnsAny() bool {
	return r.mig != nil && slices.ContainsFunc(r.ledger.GPUs(), func(v ledger.View) bool { return r.mig.Turns(v.GPU.UUID) })
}

// byTurn narrows what a GPU gives while its mode changes; it needs the lock.
func (r *Runtime) byTurn(s *allocator.GPUState) {
	s.Turns = r.turns(s.GPU.UUID)
	if t := r.turning[s.GPU.UUID]; t != nil {
		s.Shut, s.NoWhole = t.String(), t.String()
	}
}

// pendingTurns needs the lock.
func (r *Runtime) pendingTurns() []string {
	var out []string
	for _, t := range r.turning {
		out = append(out, fmt.Sprintf("GPU %d %s", t.index, t))
	}
	slices.Sort(out)
	return out
}

// noteNeed takes note of how a pod fared, for who decides whether GPUs change their mode, and returns how it fared, with
// what keeps those that could.
func (r *Runtime) noteNeed(asks []sharing.ContainerAsk, start time.Time, err error) error {
	if len(asks) == 0 {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	uid := asks[0].Ref.PodUID
	if !isNoFit(err) {
		if err == nil {
			delete(r.needs, uid)
		}
		return err
	}
	if _, before := r.needs[uid]; !r.turnsAny() || !before && len(r.needs) >= mostNeeds {
		return err
	}
	n := &need{who: fmt.Sprintf("pod %s/%s", asks[0].Ref.Namespace, asks[0].Ref.Pod), since: start, but: r.noMPS(), asks: asks}
	if old := r.needs[uid]; old != nil {
		n.since = old.since
	}
	n.requests = r.hardenedAll(r.unclaimed(asks))
	for _, a := range asks {
		n.prefer = append(n.prefer, a.Advice.GPUs...)
	}
	r.needs[uid] = n
	r.turnSoon()
	return because(err, r.decide(time.Now()).why(n.who))
}

func isNoFit(err error) bool {
	_, is := errors.AsType[*allocator.NoFit](err)
	return is
}

// hardenedAll needs the lock.
func (r *Runtime) hardenedAll(list []sharing.Request) []sharing.Request {
	out := make([]sharing.Request, len(list))
	for i, req := range list {
		out[i] = r.hardened(req)
	}
	return out
}

// withTurn tries to claim for a process, and where that fails for want of room that a GPU's other mode would give, waits
// until a GPU has changed, and tries again. needs is called with the lock.
func (r *Runtime) withTurn(ctx context.Context, who string, needs func() []sharing.Request, but map[config.Backend]choice.Support, try func() error) error {
	err := try()
	if !isNoFit(err) {
		return err
	}
	key := "process " + r.opt.NewID()
	r.mu.Lock()
	if !r.turnsAny() || len(r.needs) >= mostNeeds {
		r.mu.Unlock()
		return err
	}
	r.needs[key] = &need{who: who, since: time.Now(), requests: r.hardenedAll(needs()), but: but}
	r.mu.Unlock()
	defer func() {
		r.mu.Lock()
		delete(r.needs, key)
		r.mu.Unlock()
	}()
	ctx, cancel := context.WithTimeout(ctx, turnPatience)
	defer cancel()
	for {
		changed := r.changed.wait()
		hope, why := r.hope(key)
		if !hope {
			if last := try(); !isNoFit(last) {
				return last
			}
			return because(err, why)
		}
		r.turnSoon()
		select {
		case <-ctx.Done():
			return err
		case <-changed:
		case <-time.After(turnEvery):
		}
		last := try()
		if last != nil && (isNoFit(last) || errors.Is(last, sharing.ErrUnavailable)) {
			continue
		}
		return last
	}
}

// because adds to a refusal what keeps GPUs from changing.
func because(err error, why string) error {
	no, is := errors.AsType[*allocator.NoFit](err)
	if !is || why == "" {
		return err
	}
	more := *no
	more.Summary += "; a GPU could change its mode for it, but " + why
	return &more
}

// hope reports whether a GPU changes, or is about to, for who waits under that key; why says what keeps those that could.
func (r *Runtime) hope(key string) (hope bool, why string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := r.needs[key]
	switch {
	case n == nil:
		return false, ""
	case r.mig == nil || r.ready() != nil:
		return true, "" // stock is taken anew, say: that ends, or patience does
	}
	for _, t := range r.turning {
		if t.on == n.on() {
			return true, ""
		}
	}
	plan := r.decide(time.Now())
	for _, t := range plan.Turns {
		if t.On == n.on() {
			return true, ""
		}
	}
	return false, plan.why(n.who)
}

// on reports whether MIG mode is wanted: where a pod asks for both kinds, by what it asks for first.
func (n *need) on() bool { return len(n.requests) > 0 && n.requests[0].Kind == sharing.KindMIG }

func (r *Runtime) turnSoon() {
	select {
	case r.turnKick <- struct{}{}:
	default:
	}
}

// turnLoop changes the modes of idle GPUs for those who found no room.
func (r *Runtime) turnLoop(ctx context.Context) error {
	t := time.NewTicker(turnEvery)
	defer t.Stop()
	for {
		r.turnAll(ctx)
		r.claimTurned(ctx)
		r.tellTurns(time.Now())
		select {
		case <-ctx.Done():
			return nil
		case <-r.turnKick:
		case <-t.C:
		}
	}
}

// turnAll carries out what is decided now. The GPUs take no claims from the decision on, so that who is idle stays so.
func (r *Runtime) turnAll(ctx context.Context) {
	r.mu.Lock()
	m := r.mig
	var turns []turn.Turn
	if m != nil && len(r.needs) > 0 && r.ready() == nil {
		turns = r.decide(time.Now()).Turns
	}
	for _, t := range turns {
		v, _ := r.ledger.GPU(t.GPU)
		r.turning[t.GPU] = &turning{on: t.On, index: v.GPU.Index, who: t.For}
	}
	r.mu.Unlock()
	if len(turns) == 0 {
		return
	}
	r.changed.announce()
	var wg sync.WaitGroup
	for _, t := range turns {
		wg.Go(func() { r.turn(ctx, m, t) })
	}
	wg.Wait()
	r.changed.announce()
}

// turn changes one GPU that takes no claims meanwhile.
func (r *Runtime) turn(ctx context.Context, m MIG, t turn.Turn) {
	ctx, cancel := context.WithTimeout(ctx, turnDeadline)
	defer cancel()
	start := time.Now()
	err := m.Turn(ctx, t.GPU, t.On)
	r.opt.Observer.MIGTurned(t.On, time.Since(start), err)
	r.mu.Lock()
	now := r.turning[t.GPU]
	index, what := 0, ""
	if now != nil {
		index, what = now.index, now.String()
	}
	if err != nil {
		delete(r.turning, t.GPU)
		b := r.barred[t.GPU]
		if b == nil {
			b = &bar{}
			r.barred[t.GPU] = b
		}
		b.pause = min(max(2*b.pause, turnPause), turnLast)
		b.until, b.why = time.Now().Add(b.pause), err.Error()
	} else {
		delete(r.barred, t.GPU)
		r.served(t)
		if v, ok := r.ledger.GPU(t.GPU); now != nil && (!ok || v.GPU.MIG == t.On) {
			delete(r.turning, t.GPU) // stock was taken meanwhile
		} else if now != nil {
			now.made = true
		}
	}
	tell := r.tellNode
	r.mu.Unlock()
	if err != nil {
		r.log.Warn("mig mode not changed", "gpu", string(t.GPU), "on", t.On, "for", t.For, "error", err.Error())
	} else {
		r.log.Info("mig mode changed on demand", "gpu", string(t.GPU), "on", t.On, "for", t.For, "took", time.Since(start).Round(time.Millisecond).String())
	}
	if tell == nil {
		return
	}
	if err != nil {
		tell(ctx, reasonNotTurned, fmt.Sprintf("GPU %d was to change its MIG mode for %s, is left as it was, and is tried again: %v", index, t.For, err))
		return
	}
	tell(ctx, reasonTurned, fmt.Sprintf("GPU %d %s (%s)", index, what, time.Since(start).Round(time.Millisecond)))
}

// served notes for whom a GPU has changed; it needs the lock.
func (r *Runtime) served(t turn.Turn) {
	for _, n := range r.needs {
		if n.on() == t.On {
			n.turned = true
		}
	}
}

// tookStock takes in what GPUs are now: those that have changed their mode may be given. It needs the lock.
func (r *Runtime) tookStock(att Attachment) {
	for _, g := range att.GPUs {
		if t := r.turning[g.UUID]; t != nil && t.made {
			delete(r.turning, g.UUID)
		}
		if rep, ok := att.Levels[g.UUID]; ok && !g.MIG {
			r.plain[g.UUID] = rep
		}
	}
	for id, t := range r.turning {
		if t.made && !slices.ContainsFunc(att.GPUs, func(g sharing.GPU) bool { return g.UUID == id }) {
			delete(r.turning, id)
		}
	}
	r.turnSoon()
}

// claimTurned claims for the pods that a GPU has changed for, so that their instances are cut before somebody waits.
func (r *Runtime) claimTurned(ctx context.Context) {
	r.mu.Lock()
	var pods [][]sharing.ContainerAsk
	for _, uid := range slices.Sorted(maps.Keys(r.needs)) {
		if n := r.needs[uid]; n.turned && len(n.asks) > 0 && len(r.turning) == 0 && r.podsReady() == nil && r.fits(n, nil) {
			pods = append(pods, n.asks)
		}
	}
	r.mu.Unlock()
	for _, asks := range pods {
		if err := r.ClaimPod(ctx, asks); err != nil {
			r.log.Info("pod has no room yet", "pod", asks[0].Ref.Namespace+"/"+asks[0].Ref.Pod, "reason", err.Error())
		}
	}
}

// decide says which GPUs are to change now; it needs the lock, and something that keeps MIG.
func (r *Runtime) decide(now time.Time) decided {
	if r.mig == nil {
		return decided{}
	}
	var gpus []turn.GPU
	for _, s := range r.mig.States() {
		if g, ok := r.turnGPU(s, now); ok {
			gpus = append(gpus, g)
		}
	}
	var needs []turn.Need
	for _, n := range r.needs {
		needs = append(needs, turn.Need{
			Who: n.who, Since: n.since, On: n.on(), Prefer: n.prefer,
			Fits: func(turned []sharing.GPUID) bool { return r.fits(n, turned) },
		})
	}
	return decided{turn.Decide(gpus, needs, r.pool.KeepWarm(), now)}
}

// turnGPU is a GPU as it is decided on; false for one whose mode is not demand's to change, or changes already. It needs
// the lock.
func (r *Runtime) turnGPU(s mig.State, now time.Time) (turn.GPU, bool) {
	v, ok := r.ledger.GPU(s.GPU)
	if !ok || !s.Turns || r.turning[s.GPU] != nil {
		return turn.GPU{}, false
	}
	return turn.GPU{ID: s.GPU, Index: v.GPU.Index, On: v.GPU.MIG, Busy: r.keeps(s, now), Turned: s.Turned}, true
}

// TurnsTo is what an idle GPU becomes with demand.
type TurnsTo string

// The kinds.
const (
	TurnsNowhere TurnsTo = ""
	TurnsToMIG   TurnsTo = "mig"
	TurnsToPlain TurnsTo = "shared"
)

// turnsTo is what a GPU would become now; it needs the lock.
func (r *Runtime) turnsTo(s mig.State, now time.Time) TurnsTo {
	if t := r.turningOf(s, now); t.For == "" && t.Stays == "" {
		return t.To
	}
	return TurnsNowhere
}

// tellTurns shows who waits for what, and announces that GPUs could change by now that could not before, and the reverse:
// nothing else does when a time is over.
func (r *Runtime) tellTurns(now time.Time) {
	r.mu.Lock()
	ready := map[sharing.GPUID]TurnsTo{}
	var waits []string
	if r.mig != nil {
		for _, s := range r.mig.States() {
			if to := r.turnsTo(s, now); to != TurnsNowhere {
				ready[s.GPU] = to
			}
		}
		for _, w := range r.decide(now).Waits {
			waits = append(waits, fmt.Sprintf("%s waits for a GPU to change its MIG mode: %s", w.Who, w.Why))
		}
	}
	news := !maps.Equal(ready, r.couldTurn) && r.mig != nil
	if news {
		r.couldTurn = ready
	}
	r.conditions.Set(conditions.Turn, joinSentences(waits[:min(len(waits), mostTold)]))
	r.mu.Unlock()
	if news {
		r.changed.announce()
	}
}

// decided is a plan.
type decided struct{ turn.Plan }

// why says what keeps the GPUs that could change for somebody; empty where none could, or some are about to.
func (d decided) why(who string) string {
	for _, w := range d.Waits {
		if w.Who == who {
			return w.Why
		}
	}
	return ""
}

// keeps says what keeps a GPU's mode as it is, beside the time since its last change; empty where nothing does. It needs the
// lock.
func (r *Runtime) keeps(s mig.State, now time.Time) string {
	v, _ := r.ledger.GPU(s.GPU)
	switch {
	case v.Claims > 0:
		var who []string
		for _, c := range r.claimsOn(s.GPU) {
			who = append(who, c.Who)
		}
		return "is held by " + strings.Join(slices.Compact(who), ", ")
	case v.GPU.Health != sharing.HealthOK:
		return "is " + v.GPU.Health.String()
	case v.GPU.Cordoned != "":
		return "is cordoned: " + v.GPU.Cordoned
	case len(r.hurtOn(s.GPU)) > 0:
		return "has an instance with a fault"
	case s.Busy != "":
		return s.Busy
	case v.GPU.MIG != s.On:
		return "is being looked at"
	}
	if b := r.barred[s.GPU]; b != nil && now.Before(b.until) {
		return "could not be changed, and is tried again: " + b.why
	}
	return ""
}
