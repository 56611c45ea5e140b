// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package instances

import (
	"errors"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kerf-gpu/kerf/mig"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/allocator"
	"github.com/kerf-gpu/kerf/sharing/ledger"
)

// offersOf has the offers of each GPU, by start.
type offersOf map[sharing.GPUID]map[int]mig.Candidate

func (o offersOf) Candidate(gpu sharing.GPUID, _ string, start int, _ []mig.Granted) mig.Candidate {
	return o[gpu][start]
}

func at(gpu sharing.GPUID, start int) sharing.Share {
	return sharing.Share{GPU: sharing.GPURef{UUID: gpu}, MIG: sharing.Instance{Profile: "1g", Start: start, Size: 1}}
}

func gpu(id sharing.GPUID) Candidate {
	return Candidate{GPU: sharing.GPU{UUID: id, Model: "H100", MIG: true, MIGCapable: true, Health: sharing.HealthOK}}
}

// The best offer wins, and advice goes before it while that GPU offers something.
func TestChoose(t *testing.T) {
	full := mig.Candidate{Detail: "is full", Reason: mig.Full}
	offers := offersOf{
		"a": {mig.AnyStart: {Share: at("a", 0), Steps: 2, Loss: 1}, 3: {Share: at("a", 3), Steps: 2, Loss: 9},
			4: full},
		"b": {mig.AnyStart: {Share: at("b", 0), Steps: 2, Loss: 5}},
		"c": {mig.AnyStart: {Share: at("c", 0), Loss: 7}},
		"d": {mig.AnyStart: full, 3: full},
	}
	plan := func(gpu sharing.GPUID, start int) sharing.Advice {
		return sharing.Advice{GPUs: []sharing.GPUID{gpu}, MIG: sharing.InstanceRef{Profile: "1g", Start: start}}
	}
	exactly := func(gpu sharing.GPUID, start int) sharing.Advice {
		a := plan(gpu, start)
		a.Exact = true
		return a
	}
	if p, _, err := Choose(offers, []Candidate{gpu("a"), gpu("c")}, sharing.Request{Kind: sharing.KindMIG, MIG: "1g",
		GPUs: 1}, exactly("a", 4)); err == nil {
		t.Errorf("the scheduler allocated another instance than %v", p)
	}
	for name, tt := range map[string]struct {
		gpus   []Candidate
		advice sharing.Advice
		want   sharing.Share
	}{
		"least loss":           {[]Candidate{gpu("b"), gpu("a"), gpu("d")}, sharing.Advice{}, at("a", 0)},
		"one that exists":      {[]Candidate{gpu("a"), gpu("c")}, sharing.Advice{}, at("c", 0)},
		"as planned":           {[]Candidate{gpu("a"), gpu("c")}, plan("a", 3), at("a", 3)},
		"exactly as allocated": {[]Candidate{gpu("c"), gpu("a")}, exactly("a", 3), at("a", 3)},
		"planned start taken":  {[]Candidate{gpu("a"), gpu("c")}, plan("a", 4), at("a", 0)},
		"only the GPU planned": {[]Candidate{gpu("a"), gpu("c")}, sharing.Advice{GPUs: []sharing.GPUID{"a"}},
			at("a", 0)},
		"planned GPU is full": {[]Candidate{gpu("b"), gpu("d")}, plan("d", 3), at("b", 0)},
		"planned GPU is gone": {[]Candidate{gpu("b")}, plan("a", 3), at("b", 0)},
		"planned for two GPUs": {[]Candidate{gpu("b"), gpu("a")}, sharing.Advice{GPUs: []sharing.GPUID{"b", "a"}},
			at("a", 0)},
		"unhealthy planned GPU": {[]Candidate{{GPU: sharing.GPU{UUID: "a", MIG: true, Health: sharing.HealthLost}},
			gpu("b")}, plan("a", 3), at("b", 0)},
	} {
		p, reason, err := Choose(offers, tt.gpus, sharing.Request{Kind: sharing.KindMIG, MIG: "1g", GPUs: 1}, tt.advice)
		if err != nil || reason != "" || len(p) != 1 || p[0] != tt.want {
			t.Errorf("%s: %+v, %q, %v", name, p, reason, err)
		}
	}
}

// A refusal counts as the GPU that came nearest to an answer, and says what could change.
func TestChooseNone(t *testing.T) {
	unknown := errors.New("no such name")
	with := func(f func(g *Candidate)) Candidate { g := gpu("x"); f(&g); return g }
	off := with(func(g *Candidate) { g.GPU.MIG = false })
	turns := with(func(g *Candidate) { g.GPU.MIG, g.ModeSwitchable = false, true })
	for name, tt := range map[string]struct {
		gpus    []Candidate
		offer   mig.Candidate
		reason  mig.Reason
		summary string
		never   bool
	}{
		"no GPU": {nil, mig.Candidate{}, mig.NotChosen, "no GPU of this node can be put in MIG mode", true},
		"no MIG": {[]Candidate{with(func(g *Candidate) { g.GPU.MIG, g.GPU.MIGCapable = false, false })},
			mig.Candidate{}, mig.NotInMIGMode, "no GPU of this node can be put in MIG mode", true},
		"mode off": {[]Candidate{off}, mig.Candidate{Detail: "is not in MIG mode", Never: true,
			Reason: mig.NotInMIGMode}, mig.NotInMIGMode, "their pool does not put them there", true},
		"mode on demand": {[]Candidate{turns}, mig.Candidate{Detail: "is not in MIG mode", Reason: mig.NotInMIGMode},
			mig.NotInMIGMode, "now: no GPU of this node is in MIG mode yet", false},
		"full": {[]Candidate{gpu("x"), off}, mig.Candidate{Detail: "is full", Reason: mig.Full}, mig.Full, " now",
			false},
		"fragmented": {[]Candidate{gpu("x")}, mig.Candidate{Detail: "fragmented", Reason: mig.Fragmented},
			mig.Fragmented,
			" now", false},
		"never": {[]Candidate{gpu("x")}, mig.Candidate{Detail: "no", Never: true, Reason: mig.NoProfile},
			mig.NoProfile, "no GPU of this node can give ", true},
		"cordoned": {[]Candidate{with(func(g *Candidate) { g.GPU.Cordoned = "by hand" })}, mig.Candidate{},
			mig.Cordoned, " now", false},
		"unhealthy": {[]Candidate{with(func(g *Candidate) { g.GPU.Health = sharing.HealthUnhealthy })}, mig.Candidate{},
			mig.Unhealthy, " now", false},
		"switches": {[]Candidate{with(func(g *Candidate) { g.Switching = "leaves MIG mode" })}, mig.Candidate{},
			mig.NotInMIGMode, " now", false},
		"another model": {[]Candidate{with(func(g *Candidate) { g.GPU.Model = "A100" })}, mig.Candidate{},
			mig.NotChosen,
			"no GPU of this node can give ", true},
	} {
		offers := offersOf{"x": {mig.AnyStart: tt.offer}}
		p, reason, err := Choose(offers, tt.gpus, sharing.Request{Kind: sharing.KindMIG, MIG: "1g", GPUs: 1,
			Models: []string{"H100"}}, sharing.Advice{})
		no, is := errors.AsType[*allocator.NoFit](err)
		if !is || len(p) > 0 || reason != tt.reason || no.Never != tt.never || len(no.GPUs) != len(tt.gpus) {
			t.Errorf("%s: %+v, %q, %+v", name, p, reason, err)
			continue
		}
		if !strings.Contains(no.Summary, tt.summary) {
			t.Errorf("%s: %q", name, no.Summary)
		}
	}
	_, _, err := Choose(offersOf{"x": {mig.AnyStart: {Detail: "no", Never: true, Unknown: unknown}}},
		[]Candidate{gpu("x")}, sharing.Request{Kind: sharing.KindMIG}, sharing.Advice{})
	if !errors.Is(err, unknown) {
		t.Errorf("a name that no GPU knows: %v", err)
	}
	_, reason, err := Choose(nil, []Candidate{gpu("x")}, sharing.Request{Kind: sharing.KindMIG}, sharing.Advice{})
	if reason != mig.NoManager || !errors.Is(err, sharing.ErrUnavailable) {
		t.Errorf("without a manager: %q, %v", reason, err)
	}
}

func TestHardened(t *testing.T) {
	ask := sharing.Request{Kind: sharing.KindShared, GPUs: 1, Memory: 8 * sharing.GiB, MinLevel: sharing.LevelHardware}
	if h := Hardened(ask); h.Kind != sharing.KindMIG || h.MIG != ">= 8GiB" || h.Memory != 0 {
		t.Errorf("%+v", h)
	}
	for name, change := range map[string]func(*sharing.Request){
		"a lower level": func(r *sharing.Request) { r.MinLevel = sharing.LevelDriver },
		"a percent":     func(r *sharing.Request) { r.Percent = 10 },
		"two GPUs":      func(r *sharing.Request) { r.GPUs = 2 },
		"a profile":     func(r *sharing.Request) { r.Profile = "small" },
		"no memory":     func(r *sharing.Request) { r.Memory = 0 },
	} {
		r := ask
		if change(&r); !reflect.DeepEqual(Hardened(r), r) {
			t.Errorf("%s: %+v", name, Hardened(r))
		}
	}
}

var now = time.Unix(1e9, 0)

func grant(id ledger.GrantID, start int) Grant {
	f := at("x", start)
	return Grant{
		Reservation: ledger.Reservation{ID: id, Placement: sharing.Placement{f}, Owner: ledger.Owner{PodUID: "u",
			Namespace: "ns",
			PodName:   string(id)}},
		GPU: sharing.GPU{UUID: "x"}, Instance: f.MIG, Container: true,
	}
}

func stateOf(ready ...int) mig.State {
	s := mig.State{GPU: "x"}
	for _, start := range ready {
		s.Instances = append(s.Instances, mig.Instance{Instance: at("x", start).MIG, Managed: true, Ready: true})
	}
	return s
}

// An attempt is due for a container's grant without an instance, also if its instance is gone and no container uses it.
func TestAttemptIsDue(t *testing.T) {
	made := sharing.MIGDevice{GPU: "x", UUID: "MIG-1"}
	process, active := grant("g", 0), grant("g", 0)
	process.Container, active.Active = false, true
	trouble := stateOf()
	trouble.Error = "half an instance"
	for name, tt := range map[string]struct {
		a     attempt
		g     Grant
		state mig.State
		want  bool
		gone  bool
	}{
		"new":                     {attempt{}, grant("g", 0), stateOf(), true, true},
		"a process waits itself":  {attempt{}, process, stateOf(), false, true},
		"under way":               {attempt{busy: true}, grant("g", 0), stateOf(), false, true},
		"made":                    {attempt{device: made}, grant("g", 0), stateOf(0), false, false},
		"gone":                    {attempt{device: made}, grant("g", 0), stateOf(1), true, true},
		"gone under a container":  {attempt{device: made}, active, stateOf(1), false, false},
		"nothing is known of it":  {attempt{device: made}, grant("g", 0), trouble, false, false},
		"failed, and not yet due": {attempt{again: now.Add(1)}, grant("g", 0), stateOf(), false, true},
		"failed, and due":         {attempt{again: now}, grant("g", 0), stateOf(), true, true},
	} {
		a, due := tt.a.due(tt.g, []mig.State{tt.state}, now)
		if due != tt.want || (a.device.UUID == "") != tt.gone || due && !a.busy {
			t.Errorf("%s: due %t, %+v", name, due, a)
		}
	}
}

// The pause after a failure doubles up to a bound, and a success ends the attempts.
func TestPauseOfAttempts(t *testing.T) {
	a, fail := attempt{busy: true}, errors.New("IN_USE")
	for _, want := range []time.Duration{firstPause, 2 * firstPause, 4 * firstPause, 8 * firstPause, lastPause,
		lastPause} {
		if a = a.ended(fail, now); a.busy || !errors.Is(a.err, fail) || a.again.Sub(now) != want {
			t.Errorf("%+v, want a pause of %s", a, want)
		}
	}
	if a = a.ended(nil, now); a.err != nil {
		t.Errorf("%+v", a)
	}
}

// A grant is shown at its instance, also before that exists; those that share one are shown together.
func TestStatesWithGrants(t *testing.T) {
	share := func(id ledger.GrantID) Grant {
		g := grant(id, 2)
		g.Placement = sharing.Placement{{GPU: g.Instance.On("x"), Memory: 1}}
		return g
	}
	unknown, other := grant("u", 3), grant("o", 4)
	unknown.Instance, other.GPU.UUID = sharing.Instance{}, "y"
	waits := func(id ledger.GrantID) string {
		if id == "b" {
			return "IN_USE"
		}
		return ""
	}
	got := join([]mig.State{stateOf(0, 2), {GPU: "z"}}, []Grant{grant("a", 0), grant("b", 1), share("c"), share("d"),
		unknown, other}, waits)
	type row struct{ grant, holder, waits string }
	var rows []row
	for _, in := range got["x"].Instances {
		rows = append(rows, row{in.Grant, in.Owner, in.PendingReason})
	}
	want := []row{{"a", "pod ns/a", ""}, {"c", "pod ns/c, pod ns/d", ""}, {"b", "pod ns/b", "IN_USE"}}
	if !slices.Equal(rows, want) || len(got) != 2 {
		t.Errorf("%+v of %d", rows, len(got))
	}
}

// A fault is of one instance, of the shares of it and of no other, until the instance is healthy.
func TestFaults(t *testing.T) {
	hurt, fine := at("x", 0), at("x", 1)
	told := Fault{GPU: "x", Instance: hurt.MIG, Health: sharing.HealthUnhealthy, Reason: "XID 48"}
	f := Faults(nil).With(told).With(told)
	for _, tt := range []struct {
		part sharing.Share
		want bool
	}{{hurt, true}, {fine, false}, {sharing.Share{GPU: hurt.MIG.On("x")}, true},
		{sharing.Share{GPU: sharing.GPURef{UUID: "x"}}, false}, {at("y", 0), false}} {
		if o, is := f.Of(tt.part); is != tt.want || is && o != told {
			t.Errorf("%+v: %+v", tt.part, o)
		}
	}
	if on := f.On("x"); len(on) != 1 || on[0].Instance != hurt.MIG || on[0].Who != "a fault (XID 48)" ||
		len(f.On("y")) > 0 {
		t.Errorf("%+v", on)
	}
	if parts := f.Parts(sharing.Placement{hurt, fine}); len(parts) != 1 || parts[0].Reason != "XID 48" {
		t.Errorf("%+v", parts)
	}
	told.Health = sharing.HealthOK
	if left := f.With(told); len(left) > 0 || len(f) != 1 {
		t.Errorf("%+v of %+v", left, f)
	}
}

// wakes counts how often a manager heard that grants ended.
type wakes struct {
	Manager
	n int
}

func (w *wakes) Wake() { w.n++ }

// The manager hears of grants that are gone. What becomes of attachments concerns no instance.
func TestHeard(t *testing.T) {
	grant := func(from, to ledger.State) ledger.Transition {
		return ledger.Transition{Grant: "g", Instance: true, From: from, To: to}
	}
	attachment := ledger.Transition{Grant: "g", Attachment: true, From: ledger.Released, To: ledger.Assigned}
	ended := ledger.Transition{Grant: "g", Attachment: true, From: ledger.Active, To: ledger.Released}
	for name, tt := range map[string]struct {
		steps  []ledger.Transition
		resync bool
		look   bool
		wakes  int
	}{
		"nothing":     {},
		"a new grant": {steps: []ledger.Transition{grant(ledger.Released, ledger.Reserved)}, look: true},
		"a new grant without an instance": {steps: []ledger.Transition{{Grant: "h", From: ledger.Released,
			To: ledger.Reserved}}},
		"attachments": {steps: []ledger.Transition{attachment, grant(ledger.Reserved, ledger.Active), ended,
			grant(ledger.Active, ledger.Reserved)}},
		"a grant ended": {steps: []ledger.Transition{attachment, grant(ledger.Reserved, ledger.Released)}, look: true,
			wakes: 1},
		"some ended": {steps: []ledger.Transition{grant(ledger.Reserved, ledger.Released),
			grant(ledger.Releasing, ledger.Released)}, look: true, wakes: 1},
		"some of it is lost": {steps: []ledger.Transition{attachment}, resync: true, look: true, wakes: 1},
	} {
		t.Run(name, func(t *testing.T) {
			steps := slices.DeleteFunc(tt.steps, func(s ledger.Transition) bool { return !startsOrEnds(s) })
			m := &wakes{}
			s := New(slog.New(slog.DiscardHandler), nil, Files{})
			s.SetManager(m)
			if look := s.heard(steps, tt.resync); look != tt.look || m.n != tt.wakes {
				t.Errorf("look %v, %d wakes", look, m.n)
			}
			s.SetManager(nil)
			s.heard(steps, tt.resync)
		})
	}
}
