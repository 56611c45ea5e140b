// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/ledger"
	"github.com/kerf-gpu/kerf/sharing/node/store"
)

var (
	steps = flag.Int("steps", 1000, "random steps of the property test")
	seed  = flag.Uint64("seed", 1, "seed of the property test; 0 takes one from the clock")
)

// TestPodsAtRandom plays random pods, containers, hooks, exits, kills and restarts of the agent, lost checkpoints and
// lost caps on a runtime without loops. After every step it checks that the ledger is consistent. The driver must cap
// every container at its request, and no memory may be granted twice.
func TestPodsAtRandom(t *testing.T) {
	s := *seed
	if s == 0 {
		s = uint64(time.Now().UnixNano())
	}
	t.Logf("seed %d (repeat with -args -seed=%d -steps=%d)", s, s, *steps)
	b := newPodBench(t)
	b.still()
	p := &podPlayer{bench: b, rnd: rand.New(rand.NewPCG(s, 0)), did: map[string]int{}}
	// A run that never met one of these has not tested what it is for: it goes on until it has.
	must := []string{
		"pod", "not enough free for a pod", "injected", "armed", "activated, init", "activate failed", "exit",
		"pod gone",
		"sync",
		"crosscheck",
		"restart", "killed at inject-after-record", "killed at hook-after-record", "killed at hook-after-caps",
		"killed at hook-after-arm",
		"record lost", "driver reloaded", "sandbox created again", "process", "process ended", "crash loop",
	}
	for step := 0; step < *steps || step < 10*(*steps) && len(neverDid(must, p.did)) > 0; step++ {
		what := p.step()
		p.did[what]++
		p.invariants()
		if t.Failed() {
			t.Fatalf("step %d: %s; last steps %v", step, what, p.last)
		}
		if p.last = append(p.last, what); len(p.last) > 12 {
			p.last = p.last[1:]
		}
	}
	t.Logf("steps: %v", p.did)
	p.end()
	if never := neverDid(must, p.did); len(never) > 0 {
		t.Errorf("%q never happened: %v", never, p.did)
	}
}

// neverDid are those that did not happen, in a run that is long enough to ask for all.
func neverDid(must []string, did map[string]int) (never []string) {
	for _, what := range must {
		if *steps >= 1000 && did[what] == 0 {
			never = append(never, what)
		}
	}
	return never
}

// podPlayer is kubelet, container runtime, driver and fate.
type podPlayer struct {
	*bench
	rnd  *rand.Rand
	pods []*podModel
	own  []*tenant
	next int
	did  map[string]int
	last []string
}

// podModel is a pod as kubelet sees it.
type podModel struct {
	name string
	asks []sharing.ContainerRequest // init containers in their order, then the others
	// inits is how many init containers have run to their end.
	inits int
	now   map[string]*instance
	// assured is true while every container of the pod must find its place.
	assured bool
	// grant is the grant that each app container and sidecar has once it was injected.
	grant map[string]string
	gone  bool
}

// instance is one container of a pod, from its injection on.
type instance struct {
	*container
	pod              *podModel
	activated, ended bool
}

func (p *podPlayer) step() string {
	switch k := p.rnd.IntN(100); {
	case k < 10:
		return p.newPod()
	case k < 30:
		return p.create("")
	case k < 50:
		return p.activate()
	case k < 66:
		return p.exit()
	case k < 71:
		return p.podGone()
	case k < 74:
		return p.sandbox()
	case k < 80:
		p.Reconcile(p.t.Context())
		p.Reconcile(p.t.Context())
		return "reconcile"
	case k < 83:
		p.witness(p.seen()...)
		return "sync"
	case k < 85:
		return p.crossCheck()
	case k < 87:
		p.still()
		p.lostGrants(false)
		return "restart"
	case k < 94:
		return p.kill()
	case k < 95:
		return p.loseRecord()
	case k < 96:
		p.caps.forget()
		p.VerifyAll(p.t.Context())
		return "driver reloaded"
	default:
		return p.process()
	}
}

func (p *podPlayer) amounts() []string {
	switch p.rnd.IntN(8) {
	case 0:
		return []string{"gpu:1"}
	case 1:
		return []string{fmt.Sprintf("gpu-percent:%d", 1+p.rnd.IntN(60))}
	case 2, 3:
		return []string{fmt.Sprintf("gpu-memory-gib:%d", 1+p.rnd.IntN(50)),
			fmt.Sprintf("gpu-percent:%d", 1+p.rnd.IntN(40))}
	}
	return []string{fmt.Sprintf("gpu-memory-gib:%d", 1+p.rnd.IntN(30))}
}

func (p *podPlayer) newPod() string {
	p.next++
	m := &podModel{name: fmt.Sprintf("pod%d", p.next), now: map[string]*instance{}, grant: map[string]string{},
		assured: true}
	for i := range p.rnd.IntN(3) {
		m.asks = append(m.asks, p.initc(m.name, fmt.Sprintf("init%d", i), p.amounts()...))
	}
	if p.rnd.IntN(4) == 0 {
		m.asks = append(m.asks, p.ask(m.name, "side", sharing.ContainerSidecar, p.amounts()...))
	}
	for i := range 1 + p.rnd.IntN(2) {
		m.asks = append(m.asks, p.ask(m.name, fmt.Sprintf("app%d", i), sharing.ContainerApp, p.amounts()...))
	}
	before := len(p.PodGrants())
	if err := p.ReservePod(p.t.Context(), m.asks); err != nil {
		if !errors.Is(err, sharing.ErrExhausted) {
			p.t.Errorf("grant pod: %v", err)
		}
		if after := len(p.PodGrants()); after != before {
			p.t.Errorf("a pod without room left %d grants, there were %d", after, before)
		}
		return "not enough free for a pod"
	}
	p.pods = append(p.pods, m)
	return "pod"
}

// due are the containers of the pod that kubelet would make now.
func (m *podModel) due() []sharing.ContainerRequest {
	var out []sharing.ContainerRequest
	n := 0
	for _, ask := range m.asks {
		old := m.now[ask.Ref.Container]
		idle := old == nil || old.ended
		if ask.Kind == sharing.ContainerInit {
			if n == m.inits && idle {
				return []sharing.ContainerRequest{ask}
			}
			if n == m.inits {
				return nil // it runs
			}
			n++
			continue
		}
		if idle {
			out = append(out, ask)
		}
	}
	return out
}

// pick returns a pod that is not gone.
func (p *podPlayer) pick() *podModel {
	var alive []*podModel
	for _, m := range p.pods {
		if !m.gone {
			alive = append(alive, m)
		}
	}
	if len(alive) == 0 {
		return nil
	}
	return alive[p.rnd.IntN(len(alive))]
}

// create injects a container that is due, and with a point the agent is killed there.
func (p *podPlayer) create(point string) string {
	m := p.pick()
	if m == nil {
		return "nothing"
	}
	due := m.due()
	if len(due) == 0 {
		return "nothing"
	}
	ask := due[p.rnd.IntN(len(due))]
	c := &container{b: p.bench, ask: ask, id: p.newID()}
	var err error
	inject := func() { c.in, err = p.Inject(p.t.Context(), ask, c.id) }
	switch {
	case point == "":
		inject()
	case p.crashes(point, inject):
		p.lostGrants(false)
		g, known := p.Store.ByContainerID(c.id)
		if !known { // the record tells of the instance before it, and no annotation was given to this one
			m.now[ask.Ref.Container] = &instance{container: c, pod: m, ended: true}
			return "killed at " + point + ", lost"
		}
		c.in, err = p.InjectionOf(g.ID)
	}
	switch {
	case err != nil && (m.assured || !errors.Is(err, sharing.ErrExhausted)):
		p.t.Errorf("inject %s: %v", ask.Ref, err)
	case err != nil:
		return "not enough free for a container"
	}
	if ask.Kind != sharing.ContainerInit {
		if was := m.grant[ask.Ref.Container]; was != "" && was != c.in.Grant {
			p.t.Errorf("%s has grant %s, and had %s", ask.Ref, c.in.Grant, was)
		}
		m.grant[ask.Ref.Container] = c.in.Grant
	}
	again := m.now[ask.Ref.Container] != nil
	m.now[ask.Ref.Container] = &instance{container: c, pod: m}
	switch {
	case point != "":
		return "killed at " + point
	case again:
		return "crash loop"
	}
	return "injected"
}

// instances are those of all pods that meet the condition, in a fixed order.
func (p *podPlayer) instances(ok func(*instance) bool) []*instance {
	var out []*instance
	for _, m := range p.pods {
		for _, ask := range m.asks {
			if i := m.now[ask.Ref.Container]; i != nil && ok(i) {
				out = append(out, i)
			}
		}
	}
	return out
}

func (p *podPlayer) waiting() *instance {
	all := p.instances(func(i *instance) bool { return !i.activated && !i.ended && !i.pod.gone })
	if len(all) == 0 {
		return nil
	}
	return all[p.rnd.IntN(len(all))]
}

func (p *podPlayer) activate() string {
	i := p.waiting()
	if i == nil {
		return "nothing"
	}
	if p.rnd.IntN(8) == 0 {
		p.caps.set(func() { p.caps.fail = fmt.Errorf("set limit: %w", sharing.ErrUnavailable) })
		err := i.hooks()
		p.caps.set(func() { p.caps.fail = nil })
		if err == nil && p.activeBefore(i) {
			i.activated = true
			return "armed" // it was seen running before, and its caps are set
		}
		if !errors.Is(err, sharing.ErrUnavailable) {
			p.t.Errorf("activate %s without a cap: %v", i.ask.Ref, err)
		}
		return "activate failed"
	}
	err := i.hooks()
	heard := p.Recovery.Get().Listed
	if errors.Is(err, sharing.ErrUnavailable) && !heard {
		p.witness(p.seen()...) // its annotation tells what the record did not
		err = i.hooks()
	}
	if err != nil {
		p.t.Errorf("activate %s: %v", i.ask.Ref, err)
	}
	i.activated = true
	if i.ask.Kind == sharing.ContainerInit {
		return "activated, init"
	}
	return "armed"
}

// byCgroup is the grant whose attachment has the cgroup.
func (p *podPlayer) byCgroup(dir string) (ledger.Grant, bool) {
	all := p.Store.Grants()
	at := slices.IndexFunc(all, func(g ledger.Grant) bool { return g.Active != nil && g.Active.Cgroup == dir })
	if at < 0 {
		return ledger.Grant{}, false
	}
	return all[at], true
}

// leasedBefore reports whether the instance has its attachment without an activate of ours.
func (p *podPlayer) activeBefore(i *instance) bool {
	g, ok := p.byCgroup(i.group.Dir)
	return ok && g.Active.ContainerID == i.id
}

// stop ends an instance; its runtime removes the cgroup now or later.
func (p *podPlayer) stop(i *instance) {
	switch {
	case i.p == nil: // never made
	case p.rnd.IntN(2) == 0:
		i.exit()
	default:
		i.remove()
	}
	i.ended = true
}

func (p *podPlayer) exit() string {
	all := p.instances(func(i *instance) bool { return !i.ended })
	if len(all) == 0 {
		return "nothing"
	}
	i := all[p.rnd.IntN(len(all))]
	p.stop(i)
	if i.ask.Kind == sharing.ContainerInit && i.activated {
		i.pod.inits++
	}
	return "exit"
}

func (p *podPlayer) podGone() string {
	m := p.pick()
	if m == nil {
		return "nothing"
	}
	m.gone = true
	for _, ask := range m.asks { // most have ended by then, and it must not matter
		if i := m.now[ask.Ref.Container]; i != nil && !i.ended && (!i.activated || p.rnd.IntN(3) > 0) {
			p.stop(i)
		}
	}
	p.PodRemoved("uid-" + m.name)
	return "pod gone"
}

// sandbox is a pod whose sandbox ended: kubelet creates it again, and all containers run once more.
func (p *podPlayer) sandbox() string {
	m := p.pick()
	if m == nil {
		return "nothing"
	}
	for _, ask := range m.asks {
		if i := m.now[ask.Ref.Container]; i != nil && !i.ended {
			p.stop(i)
		}
	}
	m.inits, m.assured = 0, false
	switch err := p.ReservePod(p.t.Context(), m.asks); {
	case err == nil:
		m.assured = true
	case !errors.Is(err, sharing.ErrExhausted):
		p.t.Errorf("grant pod again: %v", err)
	}
	return "sandbox created again"
}

// seen is what the container runtime lists.
func (p *podPlayer) seen() []sharing.Seen {
	var out []sharing.Seen
	for _, i := range p.instances(func(*instance) bool { return true }) {
		s := i.container.seen()
		if i.ended {
			s.Running, s.PID, s.Removed = false, 0, true
		}
		out = append(out, s)
	}
	p.rnd.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	return out
}

func (p *podPlayer) crossCheck() string {
	seen := p.seen()
	seen = slices.DeleteFunc(seen, func(sharing.Seen) bool { return p.rnd.IntN(3) == 0 })
	if err := p.CrossCheck(p.t.Context(), seen); err != nil {
		p.t.Error(err)
	}
	p.VerifyAll(p.t.Context())
	return "crosscheck"
}

// lostGrants applies a restart of the agent to the model. Grants that were not in the checkpoint yet are gone. Without
// a checkpoint, all grants that no other source shows are gone.
func (p *podPlayer) lostGrants(record bool) {
	for _, m := range p.pods {
		m.assured = false
		if record {
			m.grant = map[string]string{}
		}
	}
}

func (p *podPlayer) kill() string {
	point := []string{"inject-after-record", "hook-after-record", "hook-after-caps", "hook-after-arm"}[p.rnd.IntN(4)]
	if point == "inject-after-record" {
		return p.create(point)
	}
	i := p.waiting()
	if i == nil {
		return "nothing"
	}
	i.make()
	if !p.crashes(point, func() { _ = p.ActivateContainer(p.t.Context(), i.calls()[0]) }) {
		return "nothing" // its cap was set already, or it is not known yet
	}
	p.lostGrants(false)
	return "killed at " + point
}

// loseRecord is a disk that was replaced while the agent was away. The runtime tells what runs before
// anything is granted.
func (p *podPlayer) loseRecord() string {
	if _, err := os.Stat(p.opt.RecordPath); err != nil {
		return "nothing"
	}
	p.lose()
	p.lostGrants(true)
	p.witness(p.seen()...)
	for _, i := range p.instances(func(i *instance) bool { return !i.ended && i.ask.Kind != sharing.ContainerInit }) {
		i.pod.grant[i.ask.Ref.Container] = i.in.Grant
	}
	return "record lost"
}

// process is a process outside of pods that requests a grant.
func (p *podPlayer) process() string {
	if len(p.own) > 3 || len(p.own) > 0 && p.rnd.IntN(2) == 0 {
		i := p.rnd.IntN(len(p.own))
		p.own[i].end()
		p.own = slices.Delete(p.own, i, i+1)
		return "process ended"
	}
	t := p.tenant()
	id, err := p.Reserve(p.t.Context(), t.Peer, "", gib(1+p.rnd.IntN(20)))
	if err == nil {
		_, err = p.Activate(p.t.Context(), t.Peer, id)
	}
	if err != nil {
		t.end()
		if !errors.Is(err, sharing.ErrExhausted) {
			p.t.Errorf("process: %v", err)
		}
		return "not enough free for a process"
	}
	p.own = append(p.own, t)
	return "process"
}

func (p *podPlayer) invariants() {
	p.t.Helper()
	p.check()
	p.Store.Read(func(l store.Reader) {
		if over := l.Overbooked(); len(over) > 0 {
			p.t.Errorf("overbooked: %+v", over)
		}
	})
	// What the driver lets processes use, GPU by GPU.
	sum := map[sharing.GPURef]sharing.Bytes{}
	p.caps.set(func() {
		for dir, limits := range p.caps.limits {
			group, err := p.opt.Cgroups.Open(dir, 0)
			if err != nil {
				continue
			}
			if busy, _ := group.Populated(); !busy {
				continue
			}
			for gpu, limit := range limits {
				if limit > least {
					sum[gpu] += limit
				}
			}
		}
	})
	for _, i := range p.instances(func(i *instance) bool { return i.activated && !i.ended }) {
		p.inForce(i, sum)
	}
	for _, g := range p.gpus {
		if sum[g.Ref()] > g.Usable() {
			p.t.Errorf("GPU %d: processes may use %v of %v", g.Index, sum[g.Ref()], g.Usable())
		}
	}
}

// inForce requires that a running container has its attachment, and at the driver exactly what it asked for. A
// whole GPU has no limit, so it is added to the sum.
func (p *podPlayer) inForce(i *instance, sum map[sharing.GPURef]sharing.Bytes) {
	p.t.Helper()
	g, ok := p.byCgroup(i.group.Dir)
	if !ok || g.Active.ContainerID != i.id || g.Active.Inode != i.group.Inode {
		p.t.Errorf("%s runs, and its attachment is %+v", i.ask.Ref, g.Active)
		return
	}
	if !slices.Equal(g.InForce(), i.in.Placement) {
		p.t.Errorf("%s: enforced %+v, injected %+v", i.ask.Ref, g.InForce(), i.in.Placement)
	}
	for _, gpu := range p.gpus {
		limit, _, err := p.caps.Read(p.t.Context(), i.group.Dir, gpu.Ref())
		want := least
		if _, own := i.in.Placement.On(gpu.Ref()); own {
			want = i.ask.Request.On(gpu).Memory
			if i.ask.Request.Kind == sharing.KindWhole {
				sum[gpu.Ref()] += want
				if !errors.Is(err, sharing.ErrNotFound) {
					p.t.Errorf("%s: a limit of %v on its whole GPU %d (%v)", i.ask.Ref, limit, gpu.Index, err)
				}
				continue
			}
		}
		if err != nil || limit != want {
			p.t.Errorf("%s on GPU %d: limit %v (%v), want %v", i.ask.Ref, gpu.Index, limit, err, want)
		}
	}
}

// end lets everything end, and nothing may be left.
func (p *podPlayer) end() {
	var names []string
	for _, i := range p.instances(func(i *instance) bool { return !i.ended }) {
		p.stop(i)
	}
	for _, t := range p.own {
		t.end()
	}
	for _, m := range p.pods {
		names = append(names, m.name)
	}
	p.eventually("no grant is left", func() bool {
		for _, n := range names {
			p.PodRemoved("uid-" + n)
		}
		p.Reconcile(p.t.Context())
		return len(p.State(p.t.Context()).Grants) == 0
	})
	// Limits of cgroups that ended while no checkpoint had them went with the cgroups.
	p.caps.set(func() {
		for dir := range p.caps.limits {
			group, err := p.opt.Cgroups.Open(dir, 0)
			if errors.Is(err, sharing.ErrNotFound) || err == nil && group.Remove() == nil {
				delete(p.caps.limits, dir)
			}
		}
	})
	p.gone(names...)
}
