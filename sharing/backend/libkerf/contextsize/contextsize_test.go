// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package contextsize

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kerf-gpu/kerf/sharing"
)

func TestBound(t *testing.T) {
	for model, want := range map[string]sharing.Bytes{
		"Tesla T4": usualBound, "NVIDIA A100-SXM4-80GB": usualBound, "NVIDIA A30": usualBound,
		"Quadro RTX 8000":                usualBound,
		"NVIDIA A100-SXM4-80GB instance": usualBound, "NVIDIA RTX A6000": usualBound,
		"NVIDIA L40S": largeBound, "NVIDIA H100 80GB HBM3": largeBound, "NVIDIA H200": largeBound,
		"NVIDIA B200": largeBound,
		"NVIDIA RTX PRO 6000 Blackwell Server Edition": largeBound, "a model of tomorrow": largeBound, "": largeBound,
	} {
		if got := Bound(model); got != want {
			t.Errorf("%q: %s, want %s", model, got, want)
		}
	}
}

func TestOf(t *testing.T) {
	kind := Kind{"Tesla T4", "580.1"}
	if got := Of(kind, 0, false); got != (Size{Bytes: usualBound}) {
		t.Errorf("not measured: %+v", got)
	}
	if got := Of(kind, 7, true); got != (Size{Bytes: 7, Measured: true}) {
		t.Errorf("measured: %+v", got)
	}
}

// at is one sample of a GPU, so many seconds after the first one. busy and failed are reported before it.
type at struct {
	second                  int
	granted, useless, known bool
	busy, failed            bool
	want                    bool
}

func TestPlanner(t *testing.T) {
	const rest, minute = 10, 60
	for name, samples := range map[string][]at{
		"idle for long enough": {{}, {second: rest - 1}, {second: rest, want: true}},
		"a grant in between":   {{}, {second: 5, granted: true}, {second: rest}, {second: 2 * rest, want: true}},
		"never idle":           {{granted: true}, {second: minute, granted: true}},
		"of no use":            {{useless: true}, {second: minute, useless: true}, {second: minute, want: true}},
		"known":                {{known: true}, {second: minute, known: true}},
		"another process":      {{}, {second: rest, busy: true}, {second: 2 * rest, want: true}},
		"failed, and again": {
			{}, {second: rest, failed: true}, {second: rest + minute - 1}, {second: rest + minute, want: true},
			{second: rest + minute, failed: true}, {second: rest + 2*minute}, {second: rest + 3*minute, want: true},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var p Planner
			kind, start := Kind{"m", "d"}, time.Unix(1000, 0)
			for i, l := range samples {
				now := start.Add(time.Duration(l.second) * time.Second)
				if l.busy {
					p.Busy("GPU-1")
				}
				if l.failed {
					p.Failed(kind, now)
				}
				gpus := []GPU{{ID: "GPU-0", Kind: Kind{"other", "d"}}, {ID: "GPU-1", Kind: kind, Idle: !l.granted,
					Useful: !l.useless}}
				got, ok := p.Next(now, gpus, func(k Kind) bool { return l.known && k == kind })
				if ok != l.want || ok && got != gpus[1] {
					t.Errorf("sample %d: %+v %v, want %v", i, got, ok, l.want)
				}
			}
		})
	}
}

// The pause grows to an hour, and a failure of one kind stops no other.
func TestPlannerPauses(t *testing.T) {
	var p Planner
	kind, now := Kind{"m", "d"}, time.Unix(1000, 0)
	for range 20 {
		p.Failed(kind, now)
	}
	both := []GPU{{ID: "GPU-0", Kind: kind, Idle: true, Useful: true}, {ID: "GPU-1", Kind: Kind{"n", "d"}, Idle: true,
		Useful: true}}
	unknown := func(Kind) bool { return false }
	p.Next(now, both, unknown)
	if g, ok := p.Next(now.Add(Rest), both, unknown); !ok || g.ID != "GPU-1" {
		t.Errorf("of another kind: %+v %v", g, ok)
	}
	for after, want := range map[time.Duration]bool{lastRetry - time.Second: false, lastRetry: true} {
		if _, ok := p.Next(now.Add(after), both[:1], unknown); ok != want {
			t.Errorf("after %s: %v", after, ok)
		}
	}
}

func TestMeasurement(t *testing.T) {
	const helper = 7
	own := func(n sharing.Bytes) []Use { return []Use{{helper, n, true}} }
	for name, c := range map[string]struct {
		lists [][]Use
		size  sharing.Bytes
		err   error
	}{
		"two that agree":      {lists: [][]Use{own(500), own(500)}, size: 500},
		"it grows":            {lists: [][]Use{own(100), own(400), own(500), own(500)}, size: 500},
		"one only":            {lists: [][]Use{own(500)}},
		"listed late":         {lists: [][]Use{nil, nil, own(500), own(500)}, size: 500},
		"never listed":        {lists: [][]Use{nil, nil, nil}},
		"listed with nothing": {lists: [][]Use{own(0), own(0)}},
		"gone in between":     {lists: [][]Use{own(500), nil, own(500)}},
		"another process": {lists: [][]Use{own(500), {{helper, 500, true}, {8, 1, true}}},
			err: sharing.ErrConflict},
		"another process alone":      {lists: [][]Use{{{8, 1, true}}}, err: sharing.ErrConflict},
		"the driver does not tell":   {lists: [][]Use{{{helper, 0, false}}}, err: sharing.ErrUnsupported},
		"more than a context can be": {lists: [][]Use{own(most + 1)}, err: sharing.ErrInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			m := Measurement{PID: helper}
			var size sharing.Bytes
			var done bool
			var err error
			for i, list := range c.lists {
				if size, done, err = m.Step(list); (done || err != nil) && i != len(c.lists)-1 {
					t.Fatalf("list %d ended it: %s, %v", i, size, err)
				}
			}
			if done != (c.size > 0) || done && size != c.size || !errors.Is(err, c.err) {
				t.Errorf("%s, done %v, %v", size, done, err)
			}
		})
	}
}

func TestFile(t *testing.T) {
	sizes := map[Kind]sharing.Bytes{{"b", "1"}: 5, {"a", "2"}: 6, {"a", "1"}: 7}
	data, err := Encode(sizes)
	if err != nil {
		t.Fatal(err)
	}
	again, err := Decode(data)
	if d := cmp.Diff(sizes, again); d != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, d)
	}
	for text, want := range map[string]error{
		`{"schema": 1, "sizes": {"a, driver 1": 5}}`: ErrOtherSchema, `{"schema": 3}`: ErrOtherSchema,
		`{}`: ErrOtherSchema,
		`{`:  sharing.ErrInvalid, ``: sharing.ErrInvalid, `{"schema": 2, "sizes": {}}`: sharing.ErrInvalid,
		`{"schema": 2, "sizes": [{"model": "a", "driver": "1", "bytes": 0}]}`:             sharing.ErrInvalid,
		`{"schema": 2, "sizes": [{"model": "", "driver": "1", "bytes": 1}]}`:              sharing.ErrInvalid,
		`{"schema": 2, "sizes": [{"model": "a", "driver": "1", "bytes": 9000000000000}]}`: sharing.ErrInvalid,
	} {
		if got, err := Decode([]byte(text)); !errors.Is(err, want) {
			t.Errorf("%s: %v %v", text, got, err)
		}
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"schema": 2, "sizes": [{"model": "a", "driver": "1", "bytes": 1}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		sizes, err := Decode(data)
		if err != nil {
			return
		}
		again, err := Encode(sizes)
		if err != nil {
			t.Fatal(err)
		}
		if back, err := Decode(again); err != nil || !cmp.Equal(sizes, back) {
			t.Errorf("%v became %v: %v", sizes, back, err)
		}
	})
}
