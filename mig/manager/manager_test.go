// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kerf-gpu/kerf/mig"
	"github.com/kerf-gpu/kerf/mig/exec"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/config"
	"github.com/kerf-gpu/kerf/sim/machine"
)

const gpuID = sharing.GPUID("GPU-01234567-89ab-cdef-0123-456789abcdef")

// world is a GPU's driver, disk, clock, grants and pool.
type world struct {
	t      testing.TB
	table  *mig.Table
	mode   exec.Mode
	have   []exec.Instance
	made   int
	disk   []byte
	refuse error
	grants []mig.Granted
	unsure error
	pool   config.Pool
	now    time.Time
	calls  []string
	// readOnly is of the next Manager.
	readOnly bool
	*Manager
}

func newWorld(t testing.TB, name string, pool config.Pool) *world {
	t.Helper()
	m, err := machine.Load(name)
	if err != nil {
		t.Fatal(err)
	}
	var list []mig.Profile
	for _, p := range m.GPUs[0].Model.Profiles {
		list = append(list, mig.Profile{
			ID: int(p.ID), Name: p.Name, Compute: p.Slices, Memory: p.Memory, SMs: int(p.SMs), MaxInstances: p.Max,
			Size: p.Size, Starts: p.Starts,
			Engines: mig.Engines{Decoders: int(p.Decoders), Encoders: int(p.Encoders), JPEGs: int(p.JPEGs),
				OFAs: int(p.OFAs)},
		})
	}
	table, err := mig.NewTable(list)
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, table: table, pool: pool, now: time.Unix(1e9, 0),
		mode: exec.Mode{NeedsReset: m.GPUs[0].Model.CCMajor < 9}}
	w.start()
	return w
}

// start is a new process.
func (w *world) start() { w.startAfter(nil) }

// startAfter is another Manager in the same process.
func (w *world) startAfter(before *Manager) {
	w.Manager = New(Options{
		Before: before, ReadOnly: w.readOnly,
		Log: slog.New(slog.DiscardHandler), Driver: w, Store: w, BootID: "boot",
		Grants: func(sharing.GPUID) ([]mig.Granted, error) { return w.grants, w.unsure },
		Pool:   func() config.Pool { return w.pool }, Now: func() time.Time { return w.now },
		Around: func(step string) func(error) { return func(error) { w.calls = append(w.calls, step) } },
	}, []sharing.GPU{{UUID: gpuID, Hardware: sharing.Hardware{PCI: "0000:17:00.0"}}})
}

func (w *world) Load(sharing.GPUID) ([]byte, error)                     { return slices.Clone(w.disk), nil }
func (w *world) Save(_ sharing.GPUID, data []byte) error                { w.disk = slices.Clone(data); return nil }
func (w *world) Mode(context.Context, sharing.GPUID) (exec.Mode, error) { return w.mode, nil }

func (w *world) SetMode(_ context.Context, _ sharing.GPUID, on bool) (bool, error) {
	w.mode.Current, w.mode.Pending = on, on
	return true, w.refuse
}

func (w *world) Table(context.Context, sharing.GPUID) (*mig.Table, error) {
	if w.table == nil {
		return nil, sharing.ErrUnsupported
	}
	return w.table, nil
}

func (w *world) Instances(context.Context, sharing.GPUID) ([]exec.Instance, error) {
	out := slices.Clone(w.have)
	for i := range out {
		out[i].CIs = slices.Clone(out[i].CIs)
	}
	return out, nil
}

func (w *world) CreateGI(_ context.Context, _ sharing.GPUID, at mig.Place) (int, error) {
	if w.refuse != nil {
		return 0, w.refuse
	}
	places := []mig.Place{at}
	for _, in := range w.have {
		places = append(places, in.Place)
	}
	if _, err := w.table.Occupy(places); err != nil {
		return 0, err
	}
	w.made++
	w.have = append(w.have, exec.Instance{Place: at, GI: w.made})
	return w.made, nil
}

func (w *world) at(gi int) int {
	return slices.IndexFunc(w.have, func(in exec.Instance) bool { return in.GI == gi })
}

func (w *world) DestroyGI(_ context.Context, _ sharing.GPUID, gi int) error {
	w.have = slices.Delete(w.have, w.at(gi), w.at(gi)+1)
	return nil
}

func (w *world) CreateCI(_ context.Context, _ sharing.GPUID, gi int) (exec.Compute, error) {
	w.made++
	c := exec.Compute{Whole: true, UUID: fmt.Sprintf("MIG-%d", w.made)}
	w.have[w.at(gi)].CIs = []exec.Compute{c}
	return c, nil
}

func (w *world) DestroyCI(_ context.Context, _ sharing.GPUID, gi, _ int) error {
	w.have[w.at(gi)].CIs = nil
	return nil
}

func (w *world) view() mig.State { return w.States()[0] }

func demandPool() config.Pool {
	return config.Pool{Mode: config.ModeMIG, MIGIdleTTL: time.Minute}
}

// For any sequence of grants and creations: an offer overlaps no grant and no unmanaged instance, an offered instance
// can be created, no granted instance changes, and at the end no managed instance remains.
func TestDemand(t *testing.T) {
	for _, name := range []string{"a30x2", "h100x8", "rtxpro6000x4"} {
		w := newWorld(t, name, demandPool())
		w.mode.NeedsReset = false
		r := rand.New(rand.NewPCG(1, 2))
		w.Tick(t.Context())
		if _, err := w.CreateGI(t.Context(), gpuID, mig.Place{Profile: w.table.Profiles()[0].ID,
			Start: 0}); err != nil {
			t.Fatal(err)
		}
		w.Tick(t.Context())
		devices := map[string]string{}
		offered, refused := 0, 0
		for step := range 600 {
			w.now = w.now.Add(time.Duration(r.IntN(40)) * time.Second)
			if len(w.grants) > 0 && r.IntN(5) < 2 {
				i := r.IntN(len(w.grants))
				delete(devices, w.grants[i].Who)
				w.grants = slices.Delete(w.grants, i, i+1)
				w.Tick(t.Context())
				continue
			}
			p := w.table.Profiles()[r.IntN(len(w.table.Profiles()))]
			o := w.Candidate(gpuID, p.Name, mig.AnyStart, w.grants)
			if o.Detail != "" {
				refused++
				occupied := []mig.Place{w.have[0].Place}
				for _, c := range w.grants {
					occupied = append(occupied, mig.Place{Profile: c.Instance.ID, Start: c.Instance.Start})
				}
				taken, err := w.table.Occupy(occupied)
				if err != nil || w.table.UnfitReason(taken, p.ID) == "" {
					t.Fatalf("%s, step %d: %s is refused (%s) next to %v", name, step, p.Name, o.Detail, occupied)
				}
				continue
			}
			offered++
			c := mig.Granted{Instance: o.Share.MIG, Who: fmt.Sprintf("grant %d", step)}
			for _, other := range append(slices.Clone(w.grants),
				mig.Granted{Instance: instance(w.table, w.have[0].Place)}) {
				if other.Instance.Overlaps(c.Instance) {
					t.Fatalf("%s, step %d: %v overlaps %v", name, step, c.Instance, other)
				}
			}
			w.grants = append(w.grants, c)
			d, warm, err := w.Ensure(t.Context(), gpuID, c.Instance, c.Who)
			if err != nil || warm != (o.Steps == 0) || d.UUID == "" {
				t.Fatalf("%s, step %d: %v, warm %v after an offer of %d steps: %v", name, step, d, warm, o.Steps, err)
			}
			devices[c.Who] = d.UUID
			for _, c := range w.grants {
				if d, warm, err := w.Ensure(t.Context(), gpuID, c.Instance, c.Who); err != nil || !warm ||
					d.UUID != devices[c.Who] {
					t.Fatalf("%s, step %d: %v became %v: %v", name, step, devices[c.Who], d, err)
				}
			}
		}
		if offered < 100 || refused < 20 {
			t.Errorf("%s: %d offered and %d refused are no test", name, offered, refused)
		}
		w.grants = nil
		w.Tick(t.Context())
		w.now = w.now.Add(time.Hour)
		w.Tick(t.Context())
		if v := w.view(); len(w.have) != 1 || len(v.Instances) != 1 || v.Instances[0].Managed || v.Error != "" {
			t.Errorf("%s: left over: %v, %+v", name, w.have, v)
		}
	}
}

// An idle instance stays for the time that the pool says, from the end of its last grant.
func TestWarm(t *testing.T) {
	w := newWorld(t, "h100x8", demandPool())
	w.Tick(t.Context())
	o := w.Candidate(gpuID, "1g", mig.AnyStart, nil)
	w.grants = []mig.Granted{{Instance: o.Share.MIG, Who: "a"}}
	if _, _, err := w.Ensure(t.Context(), gpuID, o.Share.MIG, "a"); err != nil {
		t.Fatal(err)
	}
	w.now = w.now.Add(time.Hour)
	w.Tick(t.Context())
	w.grants = nil
	w.Tick(t.Context())
	w.now = w.now.Add(59 * time.Second)
	w.Tick(t.Context())
	if len(w.have) != 1 {
		t.Error("it went too early")
	}
	w.unsure = sharing.ErrUnavailable
	w.now = w.now.Add(2 * time.Second)
	w.Tick(t.Context())
	if len(w.have) != 1 {
		t.Error("it went while no one knew who holds it")
	}
	w.unsure = nil
	w.Tick(t.Context())
	w.now = w.now.Add(61 * time.Second)
	w.Tick(t.Context())
	if len(w.have) != 0 {
		t.Errorf("it stayed: %v", w.have)
	}
}

// A GPU in trouble gives nothing and says why, is tried again at growing intervals, and is well again when the driver
// is.
func TestTrouble(t *testing.T) {
	pool := config.Pool{MIGLayouts: []config.MIGLayout{
		{Enabled: true, Instances: []config.MIGCount{{Profile: "3g", Count: 2}}}}}
	w := newWorld(t, "h100x8", pool)
	w.Tick(t.Context())
	if v := w.view(); !v.On || !v.Fixed || len(v.Instances) != 2 || v.PendingReason != "" {
		t.Fatalf("%+v", v)
	}
	w.pool.MIGLayouts[0].Instances = []config.MIGCount{{Profile: "7g", Count: 1}}
	w.refuse = sharing.ErrExhausted
	w.Tick(t.Context())
	v := w.view()
	if o := w.Candidate(gpuID, "7g", mig.AnyStart, nil); v.Error == "" || o.Detail != v.Error || o.Never {
		t.Fatalf("%+v, %+v", v, o)
	}
	if _, _, err := w.Ensure(t.Context(), gpuID, sharing.Instance{Profile: "7g.80gb", ID: 0, Size: 8},
		"x"); !errors.Is(err, sharing.ErrUnavailable) {
		t.Errorf("ensured on a GPU in trouble: %v", err)
	}
	tries := 0
	for range 600 {
		calls := len(w.calls)
		w.now = w.now.Add(time.Second)
		if w.Tick(t.Context()); len(w.calls) > calls {
			tries++
		}
	}
	if tries < 8 || tries > 40 {
		t.Errorf("%d tries in ten minutes", tries)
	}
	w.refuse = nil
	w.now = w.now.Add(2 * time.Minute)
	w.Tick(t.Context())
	w.Tick(t.Context())
	if v := w.view(); v.Error != "" || len(v.Instances) != 1 || v.Instances[0].Profile != "7g.80gb" {
		t.Errorf("%+v", v)
	}
}

// Each refusal has a reason in a word. A full GPU has another reason than a fragmented one, and so has one with
// unmanaged instances.
func TestReasons(t *testing.T) {
	place := func(w *world, profile string, start int) sharing.Instance {
		p, err := w.table.Lookup("profile", profile)
		if err != nil {
			t.Fatal(err)
		}
		return instance(w.table, mig.Place{Profile: p.ID, Start: start})
	}
	grant := func(profile string, starts ...int) func(*world) {
		return func(w *world) {
			for _, at := range starts {
				w.grants = append(w.grants, mig.Granted{Instance: place(w, profile, at),
					Who: fmt.Sprintf("pod %d", at)})
			}
		}
	}
	layout := config.Pool{MIGLayouts: []config.MIGLayout{
		{Enabled: true, Instances: []config.MIGCount{{Profile: "3g", Count: 2}}}}}
	for name, tt := range map[string]struct {
		pool config.Pool
		set  func(*world)
		ask  string
		want mig.Reason
	}{
		"there is room":          {demandPool(), grant("1g", 6), "4g", ""},
		"free capacity in parts": {demandPool(), grant("1g", 0), "4g", mig.Fragmented},
		"not enough free":        {demandPool(), grant("1g", 0, 1, 2, 3, 4, 5, 6), "1g", mig.Full},
		"someone else's": {demandPool(),
			func(w *world) { _, _ = w.CreateGI(t.Context(), gpuID, mig.Place{Profile: place(w, "7g", 0).ID}) }, "1g",
			mig.Unmanaged},
		"no such profile":   {demandPool(), grant("1g"), "9g", mig.NoProfile},
		"no name":           {demandPool(), grant("1g"), "small", mig.NoProfile},
		"not in the layout": {layout, grant("1g"), "1g", mig.NotLaidOut},
		"all of the layout": {layout, grant("3g", 0, 4), "3g", mig.Full},
		"shared": {config.Pool{
			MIGLayouts: []config.MIGLayout{{Enabled: true, Shared: true, Instances: layout.MIGLayouts[0].Instances}}},
			grant("3g"),
			"3g", mig.Shared},
		"not in MIG mode":   {config.Pool{}, grant("1g"), "1g", mig.NotInMIGMode},
		"never in MIG mode": {config.Pool{AutoMIGMode: config.AutoMIGModeOff}, grant("1g"), "1g", mig.NotInMIGMode},
		"a driver that fails": {layout, func(w *world) {
			w.pool = config.Pool{MIGLayouts: []config.MIGLayout{
				{Enabled: true, Instances: []config.MIGCount{{Profile: "7g", Count: 1}}}}}
			w.refuse = sharing.ErrExhausted
		}, "7g", mig.Faulty},
		"a layout that is not made yet": {layout, func(w *world) {
			w.grants = []mig.Granted{{Instance: place(w, "3g", 0), Who: "pod a/b"}}
			w.pool = config.Pool{MIGLayouts: []config.MIGLayout{
				{Enabled: true, Instances: []config.MIGCount{{Profile: "7g", Count: 1}}}}}
		}, "7g", mig.Faulty},
	} {
		w := newWorld(t, "h100x8", tt.pool)
		w.Tick(t.Context())
		tt.set(w)
		w.Tick(t.Context())
		if o := w.Candidate(gpuID, tt.ask, mig.AnyStart, w.grants); o.Reason != tt.want ||
			(o.Detail == "") != (tt.want == "") {
			t.Errorf("%s: %q: %s, want %q", name, o.Reason, o.Detail, tt.want)
		}
	}
}

// What is proposed is shown as the GPU is after it: what stays is there, what goes is not, and what others made stays.
func TestProposedAfter(t *testing.T) {
	w := newWorld(t, "h100x8", config.Pool{
		MIGLayouts: []config.MIGLayout{{Enabled: true, Instances: []config.MIGCount{{Profile: "1g", Count: 1},
			{Profile: "3g", Count: 1}}}}})
	w.Tick(t.Context())
	next := config.Pool{MIGLayouts: []config.MIGLayout{
		{Enabled: true, Instances: []config.MIGCount{{Profile: "3g", Count: 2}}}}}
	p := w.Propose(t.Context(), next)[0]
	w.pool = next
	w.Tick(t.Context())
	var want []string
	for _, in := range w.view().Instances {
		want = append(want, in.String())
	}
	var got []string
	for _, in := range p.After {
		if !in.Managed {
			t.Errorf("%+v is someone's", in)
		}
		got = append(got, in.String())
	}
	if !slices.Equal(got, want) || len(want) != 2 || p.Units != 8 {
		t.Errorf("proposed %q of %d units, and it became %q", got, p.Units, want)
	}
	if again := w.Propose(t.Context(), next)[0]; len(again.Steps) > 0 || again.After != nil {
		t.Errorf("nothing is left to be done, and %+v", again)
	}
	off := w.Propose(t.Context(), config.Pool{MIGLayouts: []config.MIGLayout{{}}})[0]
	if len(off.Steps) != 3 || len(off.After) > 0 {
		t.Errorf("without MIG mode: %+v", off)
	}
}

// What stands in the way is said in words of this trade alone, with what to do about it, and a plan says no less than
// the agent does.
func TestWhatIsLeftUndone(t *testing.T) {
	on := func(counts ...config.MIGCount) config.Pool {
		return config.Pool{MIGLayouts: []config.MIGLayout{{Enabled: true, Instances: counts}}}
	}
	off := config.Pool{MIGLayouts: []config.MIGLayout{{}}}
	byHand := func(w *world) {
		w.mode.Current, w.mode.Pending = true, true
		whole, err := w.table.Lookup("whole", "7g")
		if err == nil {
			_, err = w.CreateGI(t.Context(), gpuID, mig.Place{Profile: whole.ID})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for name, tt := range map[string]struct {
		pool  config.Pool
		first func(*world)
		want  []string
	}{
		"impossible": {on(config.MIGCount{Profile: "3g", Count: 3}), func(*world) {},
			[]string{"this GPU can never have that layout: 3 x 3g.40gb", "takes 12 of 8 memory units"}},
		"misspelt": {on(config.MIGCount{Profile: "5g", Count: 1}), func(*world) {},
			[]string{`"5g" is no profile of this GPU`, "7g.80gb"}},
		"next to what is theirs": {on(config.MIGCount{Profile: "3g", Count: 1}), byHand,
			[]string{"3g.40gb takes",
				"an instance that Kerf did not make is left alone; destroy it with nvidia-smi mig"}},
		"off with what is theirs": {off, byHand, []string{"once", "instance"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, "h100x8", tt.pool)
			tt.first(w)
			w.Tick(t.Context())
			p := w.Propose(t.Context(), tt.pool)[0]
			for who, said := range map[string]string{"plan": p.PendingReason, "agent": w.view().PendingReason} {
				for _, want := range tt.want {
					if !strings.Contains(said, want) {
						t.Errorf("%s: no %q in %q", who, want, said)
					}
				}
				for _, word := range []string{": invalid", ": unavailable", ": conflict", "\n"} {
					if strings.Contains(said, word) {
						t.Errorf("%s: %q in %q", who, word, said)
					}
				}
			}
		})
	}
}

// What a fixed layout has is all that it gives.
func TestFixed(t *testing.T) {
	w := newWorld(t, "h100x8", config.Pool{
		MIGLayouts: []config.MIGLayout{{Enabled: true, Instances: []config.MIGCount{{Profile: "1g", Count: 1},
			{Profile: "3g", Count: 1}}}}})
	w.Tick(t.Context())
	o := w.Candidate(gpuID, "1g", mig.AnyStart, nil)
	if o.Detail != "" || o.Steps != 0 {
		t.Fatalf("%+v", o)
	}
	if o := w.Candidate(gpuID, "1g", mig.AnyStart, []mig.Granted{{Instance: o.Share.MIG, Who: "a"}}); !strings.Contains(
		o.Detail, "in use") || o.Never {
		t.Errorf("a second one: %+v", o)
	}
	if o := w.Candidate(gpuID, "2g", mig.AnyStart, nil); !strings.Contains(o.Detail, "layout has no") || !o.Never {
		t.Errorf("another profile: %+v", o)
	}
	if o := w.Candidate(gpuID, "9g", mig.AnyStart, nil); o.Unknown == nil ||
		!strings.Contains(o.Unknown.Error(), "7g.80gb") {
		t.Errorf("no profile at all: %+v", o)
	}
	w.grants = []mig.Granted{{Instance: o.Share.MIG, Who: "pod a/b"}}
	w.pool.MIGLayouts[0].Enabled, w.pool.MIGLayouts[0].Instances = false, nil
	w.Tick(t.Context())
	if v := w.view(); !v.On || !strings.Contains(v.PendingReason, "pod a/b") || len(v.Instances) != 1 {
		t.Errorf("leaving MIG mode with an instance in use: %+v", v)
	}
	w.grants = nil
	w.Tick(t.Context())
	if v := w.view(); v.On || v.PendingReason != "" {
		t.Errorf("%+v", v)
	}
}
