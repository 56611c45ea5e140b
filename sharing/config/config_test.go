// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kerf-gpu/kerf/sharing"
)

const head = "apiVersion: kerf.dev/v1alpha2\nkind: SharingConfig\n"

const full = head + `spec:
  prices:
    currency: EUR
    perKWh: 0.3
    perGPUHour:
    - {model: "*H100*", price: 2.50}
    - {model: "*", price: 1}
  pools:
  - name: default
    mode: shared
    placementPolicy: spread
  - name: inference
    nodeSelector: {kerf.dev/pool: inference, zone: ""}
    placementPolicy: pack
    minEnforcement: driver
    backends: [driver, reactive]
    onOverCap: kill
    onUnmanagedProcess: kill
    managedMemory: reject
    userQuota: {grants: 4, memory: 40GiB}
    health: {onFault: evict, gracePeriod: 1m30s, nodeSignal: taint,
    terminationTaints: [aws-node-termination-handler/spot-itn]}
    idle: {timeout: 2h, action: evict, exemptNamespaces: [research]}
    computePolicy: strict
    timeSlice: short
    computeMode: default
    gpuRules:
    - {model: ["*T4*"], index: [0, 3], migCapable: incapable, excluded: true}
    - {uuid: [GPU-4f2b1c9a-0d3e-4a56-8b7c-1d2e3f405162], mode: whole, maxSharesPerGPU: 1, memoryReserve: 1GiB,
    powerLimitWatts: 300, timeSlice: long}
    maxSharesPerGPU: 7
    memoryReserve: 2GiB
    powerLimitWatts: 400
    overcommit: {compute: 1.25}
    perGPUHour: 3.5
    allowedProfiles: [small, half]
  profiles:
  - name: small
    memory: 10GiB
    gpuModel: ["*H100*", "!*T4*"]
    minEnforcement: reactive
    onOverCap: warn
    placementPolicy: spread
    priority: -100
    namespaces: [ml-*, "!ml-test"]
    startWindows: ["Mon-Fri 20:00-06:00 Europe/Berlin", "Sat,Sun 00:00-24:00"]
    maxMemoryPerPod: 40GiB
    allowPrivileged: true
  - name: half
    percent: 50
    maxBurstMemory: 150%
  - name: pair
    gpuCount: 2
  - name: wide
    memory: 40GiB
    percent: 150
    gpuCount: 2
    maxBurstMemory: 60GiB
`

func fullSpec() Spec {
	return Spec{
		Prices: Prices{Currency: "EUR", PerKWh: 0.3, PerGPUHour: []GPUPrice{{"*H100*", 2.5}, {"*", 1}}},
		Pools: []Pool{
			{Name: "default", Mode: ModeShared, Place: sharing.PlaceSpread},
			{
				Name: "inference", NodeSelector: map[string]string{"kerf.dev/pool": "inference", "zone": ""},
				Place:    sharing.PlacePack,
				MinLevel: sharing.LevelDriver, Backends: []sharing.Backend{sharing.BackendDriver,
					sharing.BackendReactive}, OverCap: OverCapKill, OnUnmanagedProcess: UnmanagedKill,
				ManagedMemory: ManagedReject,
				UserQuota:     sharing.UserQuota{Grants: 4, Memory: 40 * sharing.GiB},
				Health: Health{OnFault: FaultEvict, Grace: 90 * time.Second, Node: NodeMarkTaint,
					TerminationTaints: []string{"aws-node-termination-handler/spot-itn"}},
				Idle:          Idle{After: 2 * time.Hour, Do: IdleEvict, Except: []string{"research"}},
				ComputePolicy: ComputeStrict, TimeSlice: sharing.TimeSliceShort,
				ComputeMode:     sharing.ComputeModeDefault,
				MaxSharesPerGPU: 7, MemoryReserve: 2 * sharing.GiB, PowerLimitWatts: 400,
				Overcommit: sharing.Overcommit{Compute: 125}, PerGPUHour: 3.5,
				GPURules: []GPURule{
					{Models: []string{"*T4*"}, Indexes: []int{0, 3}, MIG: MIGIncapable,
						Settings: GPUSettings{Excluded: true}},
					{UUIDs: []sharing.GPUID{"GPU-4f2b1c9a-0d3e-4a56-8b7c-1d2e3f405162"},
						Settings: GPUSettings{Mode: ModeWhole, MaxSharesPerGPU: 1, MemoryReserve: sharing.GiB,
							PowerLimitWatts: 300, TimeSlice: sharing.TimeSliceLong}},
				},
				Profiles: []string{"small", "half"},
			},
		},
		Profiles: []Profile{
			{Name: "small", Memory: 10 * sharing.GiB, Models: []string{"*H100*", "!*T4*"},
				MinLevel: sharing.LevelReactive, OverCap: OverCapWarn, Place: sharing.PlaceSpread, Priority: -100,
				Namespaces: []string{"ml-*", "!ml-test"}, MaxPerPod: 40 * sharing.GiB, AllowPrivileged: true,
				Hours: []Hours{{[7]bool{1: true, 2: true, 3: true, 4: true, 5: true}, 20 * 60, 6 * 60, "Europe/Berlin"},
					{[7]bool{0: true, 6: true}, 0, 24 * 60, ""}}},
			{Name: "half", Percent: 50, Burst: sharing.Burst{Percent: 150}},
			{Name: "pair", GPUs: 2},
			{Name: "wide", Memory: 40 * sharing.GiB, Percent: 150, GPUs: 2,
				Burst: sharing.Burst{Memory: 60 * sharing.GiB}},
		},
	}
}

func decode(t *testing.T, text string) Config {
	t.Helper()
	c, err := Decode([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestDecode(t *testing.T) {
	t.Parallel()
	c := decode(t, full)
	if diff := cmp.Diff(fullSpec(), c.Spec()); diff != "" {
		t.Errorf("document (-want +got):\n%s", diff)
	}
	json := `{"apiVersion":"kerf.dev/v1alpha2","kind":"SharingConfig","spec":{"pools":[{"name":"a"}]}}`
	if got := decode(t, json).Pools(); len(got) != 1 || got[0].Name != "a" {
		t.Errorf("JSON gives %+v", got)
	}
}

func TestRoundTrip(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]Config{"full": decode(t, full), "default": Default()} {
		text, err := c.Encode()
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(c.Spec(), decode(t, string(text)).Spec()); diff != "" {
			t.Errorf("%s (-want +got):\n%s\n%s", name, diff, text)
		}
	}
}

// Any valid document survives Encode and Decode, whatever its numbers and texts look like to YAML.
func TestRoundTripRandom(t *testing.T) {
	t.Parallel()
	rnd := rand.New(rand.NewPCG(1, 2))
	texts := []string{"", "true", "null", "1e3", "0x10", "~", "010", "a-b", "no", "1_0"}
	for i := range 500 {
		var doc Spec
		for n := range 1 + rnd.IntN(4) {
			p := Pool{
				Name: fmt.Sprint("p", n), Place: sharing.Spread(rnd.IntN(3)), MinLevel: sharing.Level(rnd.IntN(7)),
				OverCap:            OverCap(rnd.IntN(3)),
				OnUnmanagedProcess: OnUnmanagedProcess(rnd.IntN(2)), ManagedMemory: ManagedMemory(rnd.IntN(2)),
				MPSComputeMode: MPSComputeMode(rnd.IntN(2)), UserQuota: sharing.UserQuota{Grants: rnd.IntN(3),
					Memory: sharing.Bytes(rnd.IntN(2)) * 40 * sharing.GiB},
				Backends: [][]sharing.Backend{nil, {sharing.BackendDriver},
					{sharing.BackendDriver, sharing.BackendReactive}}[rnd.IntN(3)],
				NodeSelector: map[string]string{"n": fmt.Sprint(n), "true": texts[rnd.IntN(len(texts))]},
			}
			doc.Pools = append(doc.Pools, p)
		}
		for n := range rnd.IntN(4) {
			doc.Profiles = append(doc.Profiles, Profile{
				Name: fmt.Sprint(n), Memory: sharing.MiB + sharing.Bytes(rnd.Uint64()>>rnd.IntN(44)),
				Percent: sharing.Percent(rnd.IntN(101)),
				OverCap: OverCap(rnd.IntN(3)), Models: []string{texts[1+rnd.IntN(len(texts)-1)]},
			})
			doc.Pools[0].Profiles = append(doc.Pools[0].Profiles, fmt.Sprint(n))
		}
		c, err := New(doc)
		if err != nil {
			if !strings.Contains(err.Error(), "is not a label's value") { // "~" is none
				t.Fatal(err)
			}
			continue
		}
		text, err := c.Encode()
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(c.Spec(), decode(t, string(text)).Spec()); diff != "" {
			t.Fatalf("document %d (-want +got):\n%s\n%s", i, diff, text)
		}
	}
}

// What a Config hands out can be scribbled on.
func TestImmutable(t *testing.T) {
	t.Parallel()
	c := decode(t, full)
	scribble := func() {
		d := c.Spec()
		d.Pools[1].NodeSelector["zone"], d.Pools[1].Profiles[0], d.Profiles[0].Models[0] = "x", "x", "x"
		pools, profiles := c.Pools(), c.Profiles()
		pools[1].NodeSelector["zone"], profiles[0].Models[0] = "x", "x"
		p, _ := c.Profile("small")
		p.Models[0] = "x"
		pool, err := c.PoolFor(map[string]string{"kerf.dev/pool": "inference", "zone": ""})
		if err != nil {
			t.Fatal(err)
		}
		pool.NodeSelector["zone"], pool.Profiles[0] = "x", "x"
		r, err := c.Resolve(c.Pools()[0], sharing.Request{Profile: "small"})
		if err != nil {
			t.Fatal(err)
		}
		r.ProfileModels[0] = "x"
	}
	scribble()
	if diff := cmp.Diff(fullSpec(), c.Spec()); diff != "" {
		t.Errorf("changed (-want +got):\n%s", diff)
	}
	doc := fullSpec()
	c, err := New(doc)
	if err != nil {
		t.Fatal(err)
	}
	doc.Pools[1].NodeSelector["zone"], doc.Profiles[0].Models[0] = "x", "x"
	if diff := cmp.Diff(fullSpec(), c.Spec()); diff != "" {
		t.Errorf("changed through New's argument (-want +got):\n%s", diff)
	}
}

func TestPoolFor(t *testing.T) {
	t.Parallel()
	c := decode(t, head+`spec:
  pools:
  - {name: all}
  - {name: gpu, nodeSelector: {gpu: h100}}
  - {name: zone, nodeSelector: {zone: a}}
  - {name: both, nodeSelector: {gpu: h100, zone: b}}
`)
	tests := map[string]struct {
		labels map[string]string
		want   string
		err    string
	}{
		"none":      {nil, "all", ""},
		"one":       {map[string]string{"gpu": "h100", "x": "y"}, "gpu", ""},
		"other":     {map[string]string{"gpu": "t4"}, "all", ""},
		"most":      {map[string]string{"gpu": "h100", "zone": "b"}, "both", ""},
		"ambiguous": {map[string]string{"gpu": "h100", "zone": "a"}, "", `pools "gpu" and "zone"`},
	}
	for name, tt := range tests {
		p, err := c.PoolFor(tt.labels)
		if tt.err != "" {
			if !errors.Is(err, sharing.ErrConflict) || !strings.Contains(err.Error(), tt.err) {
				t.Errorf("%s: error %v, want %q", name, err, tt.err)
			}
			continue
		}
		if err != nil || p.Name != tt.want {
			t.Errorf("%s: %q, %v; want %q", name, p.Name, err, tt.want)
		}
	}
	c = decode(t, head+"spec: {pools: [{name: gpu, nodeSelector: {gpu: h100}}]}")
	if _, err := c.PoolFor(nil); !errors.Is(err, sharing.ErrNotFound) {
		t.Errorf("no pool: %v", err)
	}
	if p, err := Default().PoolFor(map[string]string{"any": "node"}); err != nil || p.Name != "default" {
		t.Errorf("default: %q, %v", p.Name, err)
	}
}

func TestResolve(t *testing.T) {
	t.Parallel()
	c := decode(t, full)
	open, strict := c.Pools()[0], c.Pools()[1]
	gib := func(n sharing.Bytes) sharing.Bytes { return n * sharing.GiB }
	models := []string{"*H100*", "!*T4*"}
	tests := map[string]struct {
		pool Pool
		in   sharing.Request
		want sharing.Request
		errs []string
	}{
		"no profile": {pool: open, in: sharing.Request{Memory: gib(1), GPUs: 1},
			want: sharing.Request{Memory: gib(1), GPUs: 1, Place: sharing.PlaceSpread}},
		"its own place": {
			pool: open, in: sharing.Request{Memory: gib(1), GPUs: 1, Place: sharing.PlacePack},
			want: sharing.Request{Memory: gib(1), GPUs: 1, Place: sharing.PlacePack},
		},
		"no one says the place": {pool: Pool{Name: "x"}, in: sharing.Request{Memory: gib(1), GPUs: 1},
			want: sharing.Request{Memory: gib(1), GPUs: 1, Place: sharing.PlacePack}},
		"profile alone": {
			pool: strict, in: sharing.Request{Profile: "small"},
			want: sharing.Request{Profile: "small", Memory: gib(10), GPUs: 1, ProfileModels: models,
				MinLevel: sharing.LevelDriver, Place: sharing.PlaceSpread},
		},
		"narrowed": {
			pool: open, in: sharing.Request{Profile: "small", Memory: gib(4), Models: []string{"*80GB*"},
				MinLevel: sharing.LevelNone},
			want: sharing.Request{Profile: "small", Memory: gib(4), GPUs: 1, Models: []string{"*80GB*"},
				ProfileModels: models, MinLevel: sharing.LevelReactive, Place: sharing.PlaceSpread},
		},
		"none is the admin's to allow": {
			pool: open, in: sharing.Request{Memory: gib(1), GPUs: 1, MinLevel: sharing.LevelNone},
			want: sharing.Request{Memory: gib(1), GPUs: 1, Place: sharing.PlaceSpread},
		},
		"none, allowed by the pool": {
			pool: Pool{Name: "x", MinLevel: sharing.LevelNone}, in: sharing.Request{Memory: gib(1), GPUs: 1},
			want: sharing.Request{Memory: gib(1), GPUs: 1, MinLevel: sharing.LevelNone, Place: sharing.PlacePack},
		},
		"level raised": {
			pool: strict, in: sharing.Request{Profile: "half", MinLevel: sharing.LevelExclusive},
			want: sharing.Request{Profile: "half", Percent: 50, GPUs: 1, MinLevel: sharing.LevelExclusive,
				Place: sharing.PlacePack, Burst: sharing.Burst{Percent: 150}},
		},
		"whole": {pool: open, in: sharing.Request{Profile: "pair"}, want: sharing.Request{Kind: sharing.KindWhole,
			Profile: "pair", GPUs: 2, Place: sharing.PlaceSpread}},
		"fewer whole": {
			pool: open, in: sharing.Request{Kind: sharing.KindWhole, Profile: "pair", GPUs: 1},
			want: sharing.Request{Kind: sharing.KindWhole, Profile: "pair", GPUs: 1, Place: sharing.PlaceSpread},
		},
		"over fewer gpus": {
			pool: open, in: sharing.Request{Profile: "wide", Percent: 100, GPUs: 1},
			want: sharing.Request{Profile: "wide", Memory: gib(40), Percent: 100, GPUs: 1, Place: sharing.PlaceSpread,
				Burst: sharing.Burst{Memory: gib(60)}},
		},
		"percent that no longer fits": {pool: open, in: sharing.Request{Profile: "wide", GPUs: 1},
			errs: []string{"percent \"150%\" is more than 1 GPU"}},
		"memory that does not divide": {pool: open, in: sharing.Request{Profile: "wide", Memory: gib(1) + 1},
			errs: []string{"does not divide evenly by 2"}},
		"a profile is required": {pool: strict, in: sharing.Request{Memory: gib(1), GPUs: 1},
			errs: []string{
				`profile is missing, and pool "inference" takes no request without one; name one of half, small`}},
		"not in this pool": {pool: strict, in: sharing.Request{Profile: "pair"},
			errs: []string{`profile "pair" is not a profile of pool "inference"; name one of half, small`}},
		"unknown": {pool: open, in: sharing.Request{Profile: "huge"},
			errs: []string{"name one of half, pair, small, wide"}},
		"more of everything": {
			pool: open, in: sharing.Request{Profile: "wide", Memory: gib(44), Percent: 200, GPUs: 4},
			errs: []string{`memory "44GiB" is more than the 40GiB of profile "wide"; request at most 40GiB`,
				`percent "200%" is more than the 150%`, `gpus "4" is more than the 2`},
		},
		"compute from a profile without": {pool: open, in: sharing.Request{Profile: "small", Percent: 10, GPUs: 1},
			errs: []string{"requests no compute percent"}},
		"memory from a share": {pool: open, in: sharing.Request{Profile: "half", Memory: gib(1), GPUs: 1},
			errs: []string{"does not say how much memory"}},
		"whole from an instance": {pool: open, in: sharing.Request{Kind: sharing.KindWhole, Profile: "half"},
			errs: []string{"whole is not what profile \"half\" gives"}},
		"invalid by itself": {pool: open, in: sharing.Request{GPUs: -1},
			errs: []string{"gpu_count", "requests nothing"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := c.Resolve(tt.pool, tt.in)
			if len(tt.errs) > 0 {
				checkLines(t, err, tt.errs)
				return
			}
			if diff := cmp.Diff(tt.want, got); err != nil || diff != "" {
				t.Errorf("%v (-want +got):\n%s", err, diff)
			}
		})
	}
}

// checkLines compares an error's lines with the parts that they must have.
func checkLines(t *testing.T, err error, want []string) {
	t.Helper()
	if !errors.Is(err, sharing.ErrInvalid) {
		t.Fatalf("error %v, want ErrInvalid with %q", err, want)
	}
	lines := strings.Split(err.Error(), "\n")
	if len(lines) != len(want) {
		t.Fatalf("%d errors, want %d:\n%v", len(lines), len(want), err)
	}
	for i, line := range lines {
		if !strings.Contains(line, want[i]) {
			t.Errorf("error %d is %q, want %q in it", i, line, want[i])
		}
	}
}

// A profile's policy goes before its pool's, and none at all is to kill.
func TestOverCapOf(t *testing.T) {
	t.Parallel()
	c, err := New(Spec{
		Pools: []Pool{{Name: "plain"}, {Name: "mild", NodeSelector: map[string]string{"a": "b"},
			OverCap: OverCapWarn}},
		Profiles: []Profile{{Name: "lax", Percent: 50, OverCap: OverCapWarn},
			{Name: "hard", Percent: 50, OverCap: OverCapKill}, {Name: "as-the-pool", Percent: 50}},
	})
	if err != nil {
		t.Fatal(err)
	}
	pools := c.Pools()
	for profile, want := range map[string][2]OverCap{
		"":            {OverCapKill, OverCapWarn},
		"as-the-pool": {OverCapKill, OverCapWarn},
		"forgotten":   {OverCapKill, OverCapWarn},
		"lax":         {OverCapWarn, OverCapWarn},
		"hard":        {OverCapKill, OverCapKill},
	} {
		for i, p := range pools {
			if got := c.OverCapOf(p, profile); got != want[i] {
				t.Errorf("profile %q in pool %q: %v, want %v", profile, p.Name, got, want[i])
			}
		}
	}
}

func TestBackends(t *testing.T) {
	t.Parallel()
	driver, both := []sharing.Backend{sharing.BackendDriver}, []sharing.Backend{sharing.BackendDriver,
		sharing.BackendReactive}
	c := decode(t, head+`spec:
  pools:
  - name: a
    nodeSelector: {p: a}
  - name: b
    nodeSelector: {p: b}
    backends: [driver, reactive]
  profiles:
  - {name: plain, percent: 10}
  - {name: strict, percent: 10, backends: [driver]}
  - {name: watched, percent: 10, backends: [driver, reactive]}
`)
	for profile, want := range map[string][2][]sharing.Backend{
		"": {DefaultBackends(), both}, "plain": {DefaultBackends(), both}, "strict": {driver, driver},
		"watched": {both, both}, "gone": {DefaultBackends(), both},
	} {
		for i, pool := range c.Pools() {
			got := c.BackendsOf(pool, profile)
			if d := cmp.Diff(want[i], got); d != "" {
				t.Errorf("profile %q in pool %q:\n%s", profile, pool.Name, d)
			}
			got[0] = sharing.BackendNone // it is a copy
		}
	}
}

// A list has the strongest first; of equals, either.
func TestBackendOrder(t *testing.T) {
	t.Parallel()
	var c checker
	c.backends("b", []sharing.Backend{sharing.BackendDriver, sharing.BackendReactive, sharing.BackendLibkerf})
	checkLines(t, c.mistakes, []string{`b[2] "libkerf" `})
	levels := []sharing.Level{sharing.LevelDriver, sharing.LevelUserspace, sharing.LevelUserspace,
		sharing.LevelReactive}
	for i, b := range sharing.Backends() {
		if again, err := sharing.ParseBackend("", b.String()); err != nil || again != b || b.Level() != levels[i] {
			t.Errorf("%v reads as %v, %v, level %v", b, again, err, b.Level())
		}
	}
	if sharing.BackendNone.String() != "none" || sharing.BackendNone.Level() != sharing.LevelNone {
		t.Error(sharing.BackendNone)
	}
}
