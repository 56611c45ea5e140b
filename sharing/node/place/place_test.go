// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package place

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kerf-gpu/kerf/mig"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/allocator"
	"github.com/kerf-gpu/kerf/sharing/backend/choice"
	"github.com/kerf-gpu/kerf/sharing/config"
	"github.com/kerf-gpu/kerf/sharing/ledger"
)

var (
	yes = choice.Support{Answer: choice.Supported}
	old = choice.Support{Answer: choice.NotSupported, Reason: "old driver", Remedy: "update it"}
)

// world is what the node reads in addition to its values. Each map is by GPU.
type world struct {
	turns     map[sharing.GPUID]bool
	switching map[sharing.GPUID]string
	before    map[sharing.GPUID]choice.Report
	offers    map[sharing.GPUID]mig.Candidate
}

func (w *world) ModeSwitchable(gpu sharing.GPUID) bool       { return w.turns[gpu] }
func (w *world) Switching(gpu sharing.GPUID) string          { return w.switching[gpu] }
func (w *world) Unavailable(gpu sharing.GPUID) []mig.Granted { return nil }

func (w *world) Before(gpu sharing.GPUID) (choice.Report, bool) {
	rep, known := w.before[gpu]
	return rep, known
}

func (w *world) Candidate(gpu sharing.GPUID, _ string, _ int, _ []mig.Granted) mig.Candidate {
	return w.offers[gpu]
}

func (w *world) Fits(_ sharing.GPUID, profile string, in sharing.Instance) bool {
	return profile == in.Profile
}

// newNode has three GPUs of 80 GiB without grants, 0 and 1 on NUMA node 0, where the driver and libkerf enforce shares.
func newNode() (*Node, *world) {
	w := &world{}
	n := &Node{
		Backends: Backends{
			Settings: map[sharing.GPURef]config.GPUSettings{}, Reports: map[sharing.GPURef]choice.Report{},
			Config: config.Default(), Pool: config.Pool{Name: "a"},
		},
		OwnerOf: func(uid uint32) uint32 { return uid },
		Modes:   w, Health: w,
	}
	for i := range 3 {
		g := sharing.GPU{UUID: id(i).UUID, Index: i, Memory: 80 * sharing.GiB, Health: sharing.HealthOK, Model: "H100"}
		g.NUMA = i / 2
		n.GPUs = append(n.GPUs, ledger.View{GPU: g, FreeMemory: g.Memory, FreePercent: 100})
		n.Reports[g.Ref()] = choice.Report{sharing.BackendDriver: yes, sharing.BackendLibkerf: yes}
	}
	return n, w
}

func id(i int) sharing.GPURef {
	return sharing.GPURef{UUID: sharing.GPUID(fmt.Sprintf("GPU-00000000-0000-0000-0000-%012d", i))}
}

func gib(n int) sharing.Request {
	return sharing.Request{Kind: sharing.KindShared, Memory: sharing.Bytes(n) * sharing.GiB, GPUs: 1}
}

func whole(n int) sharing.Request { return sharing.Request{Kind: sharing.KindWhole, GPUs: n} }

// grant enters a grant of so much memory of one GPU.
func (n *Node) grant(i, gibs int, change func(*ledger.Grant)) {
	g := ledger.Grant{Reservation: ledger.Reservation{
		ID: ledger.GrantID(fmt.Sprintf("c%d", len(n.Grants))), Request: gib(gibs),
		Placement: sharing.Placement{gib(gibs).On(n.GPUs[i].GPU)},
		Terms:     ledger.Terms{Level: sharing.LevelDriver, Backend: sharing.BackendDriver},
	}}
	if change != nil {
		change(&g)
	}
	n.GPUs[i].Grants++
	n.GPUs[i].FreeMemory -= sharing.Bytes(gibs) * sharing.GiB
	n.Grants = append(n.Grants, g)
}

func byMPS(g *ledger.Grant) {
	g.Backend, g.Level = sharing.BackendMPS, sharing.LevelUserspace
}

func indexes(p sharing.Placement) (out []int) {
	for _, f := range p {
		for i := range 3 {
			if f.GPU == id(i) {
				out = append(out, i)
			}
		}
	}
	return out
}

// A container goes where the scheduler planned it, then to kubelet's NUMA node, then where the allocator puts it.
func TestContainerFollowsAdvice(t *testing.T) {
	near := func(numa, count int) []sharing.NUMAAffinity {
		return []sharing.NUMAAffinity{{NUMA: numa, Count: count}}
	}
	for name, tt := range map[string]struct {
		req    sharing.Request
		advice sharing.Advice
		change func(*Node, *world)
		want   []int
	}{
		"no advice": {gib(10), sharing.Advice{}, nil, []int{0}},
		"planned":   {gib(10), sharing.Advice{GPUs: []sharing.GPUID{id(1).UUID}}, nil, []int{1}},
		"planned and full": {gib(10), sharing.Advice{GPUs: []sharing.GPUID{id(1).UUID}},
			func(n *Node, _ *world) { n.grant(1, 75, nil) }, []int{0}},
		"planned for another": {gib(10), sharing.Advice{GPUs: []sharing.GPUID{id(1).UUID, id(2).UUID}}, nil, []int{0}},
		"near":                {whole(1), sharing.Advice{NUMA: near(0, 1)}, nil, []int{0}},
		"near two":            {whole(2), sharing.Advice{NUMA: near(0, 2)}, nil, []int{0, 1}},
		"near is full":        {whole(2), sharing.Advice{NUMA: near(1, 2)}, nil, []int{0, 1}},
		"near for a share":    {gib(10), sharing.Advice{NUMA: near(1, 1)}, nil, []int{0}},
		"near two nodes":      {whole(1), sharing.Advice{NUMA: append(near(0, 1), near(1, 1)...)}, nil, []int{2}},
		"planned before near": {whole(1), sharing.Advice{GPUs: []sharing.GPUID{id(1).UUID}, NUMA: near(1, 1)}, nil,
			[]int{1}},
		"next to others": {gib(10), sharing.Advice{}, func(n *Node, _ *world) { n.grant(2, 10, nil) }, []int{2}},
		"excluded": {gib(10), sharing.Advice{}, func(n *Node, _ *world) {
			n.Settings[id(0)] = config.GPUSettings{Excluded: true}
		}, []int{1}},
		"whole GPUs only": {gib(10), sharing.Advice{}, func(n *Node, _ *world) {
			n.Settings[id(0)] = config.GPUSettings{Mode: config.ModeWhole}
		}, []int{1}},
		"enough sharers": {gib(10), sharing.Advice{}, func(n *Node, _ *world) {
			n.grant(0, 10, nil)
			n.Settings[id(0)] = config.GPUSettings{MaxSharesPerGPU: 1}
		}, []int{1}},
		"switches": {gib(10), sharing.Advice{},
			func(_ *Node, w *world) { w.switching = map[sharing.GPUID]string{id(0).UUID: "switches"} }, []int{1}},
		"no backend": {gib(10), sharing.Advice{}, func(n *Node, _ *world) { n.Reports[id(0)] = choice.Report{} },
			[]int{1}},
	} {
		t.Run(name, func(t *testing.T) {
			n, w := newNode()
			if tt.change != nil {
				tt.change(n, w)
			}
			p, err := n.Container(sharing.ContainerRequest{Advice: tt.advice}, tt.req)
			if err != nil || !slices.Equal(indexes(p.Placement), tt.want) {
				t.Errorf("on %v, %v, want %v", indexes(p.Placement), err, tt.want)
			}
		})
	}
}

// The backend is the strongest that all GPUs of the placement have in common.
func TestEnforcer(t *testing.T) {
	reports := map[string]choice.Report{
		"both":    {sharing.BackendDriver: yes, sharing.BackendLibkerf: yes},
		"libkerf": {sharing.BackendDriver: old, sharing.BackendLibkerf: yes},
		"driver":  {sharing.BackendDriver: yes}, "none": {sharing.BackendDriver: old},
	}
	for name, tt := range map[string]struct {
		gpus   []string
		least  sharing.Level
		want   sharing.Level
		reason string
		err    error
	}{
		"the strongest": {[]string{"both"}, 0, sharing.LevelDriver, "", nil},
		"the next":      {[]string{"libkerf"}, 0, sharing.LevelUserspace, "driver: old driver; update it", nil},
		"in common": {[]string{"both", "libkerf"}, 0, sharing.LevelUserspace,
			"driver: GPU 1: old driver; update it", nil},
		"less than required": {[]string{"driver", "libkerf"}, sharing.LevelReactive, 0, "", sharing.ErrUnsupported},
		"nothing, and allowed": {[]string{"none"}, sharing.LevelNone, sharing.LevelNone,
			"driver: old driver; update it", nil},
	} {
		t.Run(name, func(t *testing.T) {
			n, _ := newNode()
			var p sharing.Placement
			for i, which := range tt.gpus {
				n.Reports[id(i)] = reports[which]
				p = append(p, gib(1).On(n.GPUs[i].GPU))
			}
			req := gib(1)
			req.GPUs, req.MinLevel = len(tt.gpus), tt.least
			c, err := n.enforcer(req, p, nil)
			if !errors.Is(err, tt.err) || err == nil && (c.Level != tt.want || !strings.HasPrefix(c.Reason,
				tt.reason)) {
				t.Errorf("%v (%s), %v", c.Level, c.Reason, err)
			}
		})
	}
	n, _ := newNode()
	if c, err := n.enforcer(whole(1), sharing.Placement{{GPU: id(0), Whole: true}}, nil); err != nil ||
		c.Level != sharing.LevelExclusive {
		t.Errorf("a whole GPU: %v, %v", c, err)
	}
	n.Reports = nil
	req := gib(1)
	req.MinLevel = sharing.LevelNone
	if c, err := n.enforcer(req, sharing.Placement{gib(1).On(n.GPUs[0].GPU)}, nil); c.Level != sharing.LevelUnknown {
		t.Errorf("without a driver: %v, %v", c, err)
	}
}

// A GPU with shares by MPS takes no others, and one with others takes none by MPS.
func TestMPSIsNotMixed(t *testing.T) {
	works := choice.Report{sharing.BackendDriver: yes, sharing.BackendMPS: yes}
	only := choice.Report{sharing.BackendDriver: old, sharing.BackendMPS: yes}
	list := config.GPUSettings{}
	for name, tt := range map[string]struct {
		report choice.Report
		there  func(*ledger.Grant)
		noMPS  string
		want   []sharing.Level
		shut   bool
	}{
		"MPS next to MPS": {only, byMPS, "", []sharing.Level{sharing.LevelExclusive, sharing.LevelUserspace},
			false},
		"a pod without MPS": {works, byMPS, "no hostPath",
			[]sharing.Level{sharing.LevelExclusive, sharing.LevelDriver}, true},
		"next to other shares": {only, nil, "", []sharing.Level{sharing.LevelExclusive, sharing.LevelNone}, false},
		"driver next to driver": {works, nil, "", []sharing.Level{sharing.LevelExclusive, sharing.LevelDriver},
			false},
		"driver and MPS on MPS": {works, byMPS, "", []sharing.Level{sharing.LevelExclusive, sharing.LevelUserspace},
			false},
		"a whole GPU is no share": {only, func(g *ledger.Grant) { g.Placement[0].Whole = true }, "",
			[]sharing.Level{sharing.LevelExclusive, sharing.LevelUserspace}, false},
	} {
		t.Run(name, func(t *testing.T) {
			n, _ := newNode()
			n.Pool.Backends, n.NoMPSForPods = []sharing.Backend{sharing.BackendDriver, sharing.BackendMPS}, tt.noMPS
			n.Reports[id(0)], n.Settings[id(0)] = tt.report, list
			n.grant(0, 10, tt.there)
			s := n.Free("", n.podsBut(gib(1)))[0]
			if !slices.Equal(s.Levels, tt.want) || (s.Shut != "") != tt.shut {
				t.Errorf("levels %v, shut %q", s.Levels, s.Shut)
			}
		})
	}
}

func TestMPSDomains(t *testing.T) {
	pod := ledger.Owner{PodUID: "u", Namespace: "team-a", PodName: "p", Container: "c"}
	n, _ := newNode()
	for want, o := range map[string]ledger.Owner{"namespace/team-a": pod, "uid/1000": {UID: 1000}} {
		if got := n.Terms(o, choice.Choice{}).Domain; got != want {
			t.Errorf("%+v is of %q, want %q", o, got, want)
		}
	}
	n.Pool.MPSDaemonScope = config.MPSScopePool
	for want, o := range map[string]ledger.Owner{"pool/pods": pod, "pool": {UID: 1000}} {
		if got := n.Terms(o, choice.Choice{}).Domain; got != want {
			t.Errorf("where the pool shares, %+v is of %q, want %q", o, got, want)
		}
	}
}

// A shared cap needs a backend that enforces it over several containers. The error says so if one container alone has a
// backend.
func TestSharedCap(t *testing.T) {
	for name, tt := range map[string]struct {
		report choice.Report
		least  sharing.Level
		want   sharing.Backend
		err    string
	}{
		"libkerf": {choice.Report{sharing.BackendDriver: yes, sharing.BackendLibkerf: yes}, 0,
			sharing.BackendLibkerf, ""},
		"the driver does not": {choice.Report{sharing.BackendDriver: yes}, sharing.LevelNone, 0,
			"no backend of this node enforces one cap for several containers"},
		"required": {choice.Report{sharing.BackendDriver: yes}, sharing.LevelReactive, 0,
			"no backend of this node enforces one cap for several containers"},
		"nothing does": {choice.Report{}, sharing.LevelNone, sharing.BackendNone, ""},
	} {
		t.Run(name, func(t *testing.T) {
			n, _ := newNode()
			n.Pool.MinLevel = sharing.LevelNone
			for i := range n.GPUs {
				n.Reports[id(i)] = tt.report
			}
			joint, mine := gib(30), gib(10)
			joint.MinLevel, mine.MinLevel = tt.least, tt.least
			p, err := n.Container(sharing.ContainerRequest{SharedCap: joint}, mine)
			if tt.err != "" {
				if err == nil || !strings.HasPrefix(err.Error(), tt.err) {
					t.Errorf("%v, want %s", err, tt.err)
				}
				return
			}
			if err != nil || p.Enforced.Backend != tt.want || len(p.Placement) != 1 ||
				p.Placement[0].Memory != 10*sharing.GiB {
				t.Errorf("%+v, %v", p, err)
			}
		})
	}
	n, _ := newNode()
	n.grant(0, 60, nil)
	if p, err := n.Container(sharing.ContainerRequest{SharedCap: gib(30)}, gib(10)); err != nil ||
		!slices.Equal(indexes(p.Placement), []int{1}) {
		t.Errorf("not where all have room: %v, %v", indexes(p.Placement), err)
	}
}

// An init container uses the smallest idle grant of its pod that covers its request.
func TestLender(t *testing.T) {
	of := func(uid string, change func(*ledger.Grant)) func(*ledger.Grant) {
		return func(g *ledger.Grant) {
			g.Owner.PodUID = uid
			if change != nil {
				change(g)
			}
		}
	}
	weak := gib(5)
	weak.MinLevel = sharing.LevelHardware
	for name, tt := range map[string]struct {
		req    sharing.Request
		change func(*Node)
		want   ledger.GrantID
		part   sharing.Bytes // 0 for all of it
	}{
		"the smallest":     {gib(5), nil, "c1", 5 * sharing.GiB},
		"all of it":        {gib(10), nil, "c1", 0},
		"the larger":       {gib(15), nil, "c0", 15 * sharing.GiB},
		"none covers it":   {gib(25), nil, "", 0},
		"another number":   {sharing.Request{Kind: sharing.KindShared, Memory: sharing.GiB, GPUs: 2}, nil, "", 0},
		"a stronger level": {weak, nil, "", 0},
		"busy":             {gib(5), func(n *Node) { n.Grants[1].Work = ledger.Activation }, "c0", 5 * sharing.GiB},
		"of a sidecar": {gib(5), func(n *Node) { n.Grants[1].Kind = sharing.ContainerSidecar }, "c0",
			5 * sharing.GiB},
		"of a shared cap": {gib(5), func(n *Node) { n.Grants[1].SharedCap = sharing.Placement{} }, "c0",
			5 * sharing.GiB},
		"of another pod": {gib(5), func(n *Node) { n.Grants[1].Owner.PodUID = "other" }, "c0",
			5 * sharing.GiB},
		"the GPU is gone": {gib(5), func(n *Node) { n.GPUs = n.GPUs[:1] }, "c0", 5 * sharing.GiB},
		"another GPU named": {sharing.Request{Kind: sharing.KindShared, Memory: sharing.GiB, GPUs: 1,
			UUIDs: []sharing.GPUID{id(2).UUID}}, nil, "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			n, _ := newNode()
			n.grant(0, 20, of("p", nil))
			n.grant(1, 10, of("p", nil))
			if tt.change != nil {
				tt.change(n)
			}
			got, part, ok := n.BurstManager("p", tt.req)
			memory, _ := part.Total()
			if got != tt.want || ok != (tt.want != "") || memory != tt.part {
				t.Errorf("%q, %v, %v", got, part, ok)
			}
		})
	}
}

// Each container without a grant counts, if it cannot use the grant of another.
func TestUnreserved(t *testing.T) {
	ask := func(name string, kind sharing.ContainerKind, gibs int) sharing.ContainerRequest {
		return sharing.ContainerRequest{Ref: sharing.ContainerRef{PodUID: "p", Container: name}, Kind: kind,
			Request: gib(gibs)}
	}
	app, init, sidecar := sharing.ContainerApp, sharing.ContainerInit, sharing.ContainerSidecar
	leader, follower := ask("lead", app, 10), ask("follow", app, 5)
	leader.SharedCap, follower.With = gib(15), "lead"
	for name, tt := range map[string]struct {
		asks []sharing.ContainerRequest
		want []sharing.Bytes
	}{
		"two apps":          {[]sharing.ContainerRequest{ask("a", app, 1), ask("b", app, 2)}, []sharing.Bytes{1, 2}},
		"one has a grant":   {[]sharing.ContainerRequest{ask("has", app, 1), ask("b", app, 2)}, []sharing.Bytes{2}},
		"init below an app": {[]sharing.ContainerRequest{ask("i", init, 1), ask("a", app, 1)}, []sharing.Bytes{1}},
		"init above an app": {[]sharing.ContainerRequest{ask("i", init, 2), ask("a", app, 1)},
			[]sharing.Bytes{2, 1}},
		"init next to a sidecar": {[]sharing.ContainerRequest{ask("i", init, 1), ask("s", sidecar, 5)},
			[]sharing.Bytes{1, 5}},
		"equal inits": {[]sharing.ContainerRequest{ask("i", init, 3), ask("j", init, 3)},
			[]sharing.Bytes{3}},
		"a shared cap counts once":  {[]sharing.ContainerRequest{leader, follower}, []sharing.Bytes{15}},
		"init next to a shared cap": {[]sharing.ContainerRequest{ask("i", init, 1), leader}, []sharing.Bytes{1, 15}},
	} {
		t.Run(name, func(t *testing.T) {
			n, _ := newNode()
			n.grant(0, 1, func(g *ledger.Grant) { g.Owner.PodUID, g.Owner.Container = "p", "has" })
			var got []sharing.Bytes
			for _, req := range n.Unreserved(tt.asks) {
				got = append(got, req.Memory/sharing.GiB)
				if req.MinLevel != sharing.LevelReactive {
					t.Errorf("%s demands %v", req, req.MinLevel)
				}
			}
			if d := cmp.Diff(tt.want, got); d != "" {
				t.Error(d)
			}
		})
	}
}

// Only a fresh grant of whole GPUs moves, and only from a NUMA node that was not planned.
func TestShouldMove(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(*ledger.Grant, *sharing.ContainerRequest)
		want   bool
	}{
		"moves":       {func(*ledger.Grant, *sharing.ContainerRequest) {}, true},
		"used before": {func(g *ledger.Grant, _ *sharing.ContainerRequest) { g.Fresh = false }, false},
		"busy":        {func(g *ledger.Grant, _ *sharing.ContainerRequest) { g.Work = ledger.Activation }, false},
		"in use": {func(g *ledger.Grant, _ *sharing.ContainerRequest) { g.Active = &ledger.Attachment{} },
			false},
		"a share": {func(g *ledger.Grant, _ *sharing.ContainerRequest) { g.Placement[0].Whole = false },
			false},
		"there already": {func(_ *ledger.Grant, a *sharing.ContainerRequest) { a.Advice.NUMA[0].NUMA = 0 }, false},
		"planned": {func(_ *ledger.Grant, a *sharing.ContainerRequest) {
			a.Advice.GPUs = []sharing.GPUID{id(0).UUID}
		}, false},
		"planned elsewhere": {func(_ *ledger.Grant, a *sharing.ContainerRequest) {
			a.Advice.GPUs = []sharing.GPUID{id(1).UUID}
		}, true},
		"another number": {func(_ *ledger.Grant, a *sharing.ContainerRequest) { a.Advice.NUMA[0].Count = 2 },
			false},
		"no node":            {func(_ *ledger.Grant, a *sharing.ContainerRequest) { a.Advice.NUMA = nil }, false},
		"shares a cap":       {func(_ *ledger.Grant, a *sharing.ContainerRequest) { a.With = "other" }, false},
		"others share a cap": {func(_ *ledger.Grant, a *sharing.ContainerRequest) { a.SharedCap = whole(1) }, false},
		"unknown GPU": {func(g *ledger.Grant, _ *sharing.ContainerRequest) {
			g.Placement[0].GPU = sharing.GPURef{UUID: "GPU-x"}
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			n, _ := newNode()
			g := ledger.Grant{Reservation: ledger.Reservation{Placement: sharing.Placement{{GPU: id(0), Whole: true}}},
				Fresh: true}
			ask := sharing.ContainerRequest{Advice: sharing.Advice{NUMA: []sharing.NUMAAffinity{{NUMA: 1, Count: 1}}}}
			tt.change(&g, &ask)
			if got := ShouldMove(g, ask, n.gpu); got != tt.want {
				t.Errorf("moves: %v", got)
			}
		})
	}
	n, _ := newNode()
	near := sharing.ContainerRequest{Advice: sharing.Advice{NUMA: []sharing.NUMAAffinity{{NUMA: 1, Count: 1}}}}
	if p, ok := n.PlaceOnNUMA(near, whole(1)); !ok || !slices.Equal(indexes(p), []int{2}) {
		t.Errorf("near NUMA node 1: %v, %v", indexes(p), ok)
	}
}

// A process that does not accept an unenforced share gets none. If only that is missing, the error is final, and has no
// list of GPUs.
func TestConsentIsAskedFor(t *testing.T) {
	n, _ := newNode()
	for i := range n.GPUs {
		n.Reports[id(i)] = choice.Report{sharing.BackendDriver: {Answer: choice.NotSupported, Reason: "old"}}
	}
	n.Pool.Backends = []sharing.Backend{sharing.BackendDriver}
	asked := gib(1)
	req := asked
	req.MinLevel = sharing.LevelNone // as the config allows
	_, err := n.Process(1000, asked, req, nil)
	want := "no backend enforces 1GiB of one GPU on " + id(0).String() + " (level none: driver: old"
	if err == nil || !strings.HasPrefix(err.Error(), want) ||
		!strings.Contains(err.Error(), "; add --min-enforcement none to accept that") ||
		errors.Is(err, sharing.ErrUnavailable) || !errors.Is(err, sharing.ErrUnsupported) {
		t.Errorf("%v, want %s", err, want)
	}
	if p, err := n.Process(1000, req, req, nil); err != nil || p.Enforced.Level != sharing.LevelNone ||
		p.Request.MinLevel != sharing.LevelNone {
		t.Errorf("with consent: %+v, %v", p, err)
	}
	req.MinLevel = sharing.LevelReactive
	if _, err := n.Process(1000, asked, req, nil); !strings.Contains(fmt.Sprint(err), "reactive required") {
		t.Errorf("if the config demands more: %v", err)
	}
}

func TestUserQuota(t *testing.T) {
	owner := func(uid uint32) func(*ledger.Grant) {
		return func(g *ledger.Grant) { g.Owner.UID = uid }
	}
	for name, tt := range map[string]struct {
		uid    uint32
		req    sharing.Request
		change func(*Node)
		err    string
	}{
		"within":          {1000, gib(8), nil, ""},
		"too much memory": {1000, gib(9), nil, "9GiB requested, 12GiB used, 20GiB allowed"},
		"too many": {1000, gib(1), func(n *Node) { n.grant(1, 1, owner(1000)) },
			"1 grant requested, 2 used, 2 allowed"},
		"a subordinate": {100_007, gib(9), nil, "9GiB requested, 12GiB used, 20GiB allowed"},
		"another user":  {1001, gib(20), nil, ""},
		"root":          {0, gib(60), nil, ""},
		"a whole GPU":   {1000, whole(1), nil, "12GiB used, 20GiB allowed"},
		"no quota":      {1000, gib(9), func(n *Node) { n.Pool.UserQuota = sharing.UserQuota{} }, ""},
		"pods do not count": {1001, gib(20), func(n *Node) {
			n.grant(1, 10, func(g *ledger.Grant) { g.Owner = ledger.Owner{UID: 1001, PodUID: "p"} })
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			n, _ := newNode()
			n.Pool.UserQuota = sharing.UserQuota{Grants: 2, Memory: 20 * sharing.GiB}
			n.OwnerOf = func(uid uint32) uint32 {
				if uid >= 100_000 {
					return 1000
				}
				return uid
			}
			n.grant(0, 12, owner(1000))
			if tt.change != nil {
				tt.change(n)
			}
			_, err := n.Process(tt.uid, tt.req, tt.req, nil)
			if (err == nil) != (tt.err == "") || tt.err != "" && (!strings.Contains(err.Error(), tt.err) ||
				!errors.Is(err, sharing.ErrExhausted)) {
				t.Errorf("%v, want %q", err, tt.err)
			}
		})
	}
}

// A request that only hardware may enforce becomes one for an instance if the node creates instances. Its rejection has
// the reason of the nearest GPU.
func TestInstances(t *testing.T) {
	req := gib(10)
	req.MinLevel = sharing.LevelHardware
	n, w := newNode()
	if got := n.Hardened(req); got.Kind != sharing.KindShared {
		t.Errorf("without a MIG manager: %v", got)
	}
	n.MIG = w
	if got := n.Hardened(req); got.Kind != sharing.KindShared {
		t.Errorf("without MIG: %v", got)
	}
	w.turns = map[sharing.GPUID]bool{id(1).UUID: true}
	if got := n.HardenedAll([]sharing.Request{req, gib(1)}); got[0].Kind != sharing.KindMIG ||
		got[1].Kind != sharing.KindShared {
		t.Errorf("with a GPU that switches: %v", got)
	}
	n.GPUs[1].GPU.MIG, n.GPUs[1].GPU.MIGCapable = true, true
	in := sharing.Instance{Profile: "1g", Start: 2, Size: 1}
	w.offers = map[sharing.GPUID]mig.Candidate{id(1).UUID: {Share: sharing.Share{GPU: id(1), MIG: in}}}
	p, err := n.Container(sharing.ContainerRequest{}, req)
	if err != nil || p.Request.Kind != sharing.KindMIG || p.Placement[0].MIG != in ||
		p.Enforced.Level != sharing.LevelHardware {
		t.Errorf("%+v, %v", p, err)
	}
	w.offers[id(1).UUID] = mig.Candidate{Detail: "is full", Reason: mig.Full}
	_, err = n.Process(0, req, req, nil)
	refused, is := errors.AsType[*NoInstance](err)
	if noFit := new(allocator.NoFit); !is || refused.Reason != mig.Full || refused.Tries != 2 ||
		!errors.As(err, &noFit) {
		t.Errorf("full: %v", err)
	}
}

// Burst memory comes back only if the request then fits, and not on GPUs where it is used.
func TestRecall(t *testing.T) {
	n, _ := newNode()
	for i := range n.GPUs {
		n.GPUs[i].FreeMemory, n.GPUs[i].BurstMemory = 10*sharing.GiB, 60*sharing.GiB
	}
	if got := n.Recall([]sharing.Request{gib(30)}, nil); len(got) != 1 || got[id(0)] != 20*sharing.GiB {
		t.Errorf("%v", got)
	}
	if got := n.Recall([]sharing.Request{gib(30)}, map[sharing.GPURef]bool{id(0): true}); len(got) != 1 ||
		got[id(1)] != 20*sharing.GiB {
		t.Errorf("in use: %v", got)
	}
	if got := n.Recall([]sharing.Request{gib(75)}, nil); len(got) > 0 {
		t.Errorf("no room: %v", got)
	}
	if got := n.Recall(nil, nil); got != nil {
		t.Errorf("no request: %v", got)
	}
}
