// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package sharing

import (
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func TestParseResourceRequest(t *testing.T) {
	for in, want := range map[string]ResourceRequest{
		"gpu:1":              {Resource: "gpu", Count: 1},
		"gpu-memory-gib:10":  {Resource: "gpu-memory-gib", Count: 10},
		"gpu-percent:2500":   {Resource: "gpu-percent", Count: 2500},
		"gpu:2147483647":     {Resource: "gpu", Count: 1<<31 - 1},
		"gpu":                {},
		"gpu:":               {},
		"gpu:0":              {},
		"gpu:-1":             {},
		"gpu:+1":             {},
		"gpu:01":             {},
		"gpu: 1":             {},
		"gpu:1 ":             {},
		"gpu:1:1":            {},
		"gpu:1e3":            {},
		"gpu:0x10":           {},
		"gpu:1_000":          {},
		"gpu:2147483648":     {},
		"GPU:1":              {},
		"gpu-memory-gib:10i": {},
		"mig-1g.10gb:1":      {Resource: "mig-1g.10gb", Count: 1},
		"mig-1g.10gb.me:2":   {Resource: "mig-1g.10gb.me", Count: 2},
		"mig-1g.10gb+me:1":   {},
		"mig-:1":             {},
		"mig-x/../y:1":       {},
		":1":                 {},
		"":                   {},
	} {
		t.Run(in, func(t *testing.T) {
			got, err := ParseResourceRequest(in)
			if got != want {
				t.Errorf("%+v, want %+v", got, want)
			}
			var field *FieldError
			switch {
			case want == (ResourceRequest{}) && (!errors.As(err, &field) || field.Field != "request" ||
				field.Value != in || field.Remedy == ""):
				t.Errorf("error %v is no *FieldError with field, value and remedy", err)
			case want != (ResourceRequest{}) && (err != nil || got.String() != in ||
				got.Device() != "kerf.dev/ask="+in):
				t.Errorf("%v; reads back as %q, device %q", err, got, got.Device())
			}
		})
	}
}

func TestAsksOfAndLimits(t *testing.T) {
	asks := ResourceRequestsOf(map[string]string{
		ResourcePercent: "25", ResourceMemory: "10", ResourceGPU: "0", "cpu": "4", "nvidia.com/gpu": "1",
		"kerf.dev/other": "3",
	})
	want := []ResourceRequest{{Resource: "gpu-memory-gib", Count: 10}, {Resource: "gpu-percent", Count: 25}}
	if d := cmp.Diff(want, asks); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff(map[string]string{ResourceMemory: "10", ResourcePercent: "25"}, Limits(asks)); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff(asks, ResourceRequestsOf(Limits(asks))); d != "" {
		t.Error(d)
	}
	for _, bad := range []string{"10Gi", "-1", "1.5", "", "1e3"} {
		if asks := ResourceRequestsOf(map[string]string{ResourceMemory: bad}); len(asks) != 0 {
			t.Errorf("%q reads as %v", bad, asks)
		}
	}
	// Whatever the asks say, a request comes of them, and of nothing else.
	r, ok, err := RequestFromResources(Limits(want), nil, "main")
	if err != nil || !ok || r.Memory != 10*GiB || r.Percent != 25 || r.GPUs != 1 {
		t.Errorf("request %+v %v %v", r, ok, err)
	}
}

func TestSortAsks(t *testing.T) {
	want := []ResourceRequest{{Resource: "gpu", Count: 1}, {Resource: "gpu-memory-gib", Count: 3},
		{Resource: "gpu-percent", Count: 2}}
	got := []ResourceRequest{want[2], want[0], want[1]}
	SortResourceRequests(got)
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func TestAdmittedBy(t *testing.T) {
	tests := map[string]struct {
		names []string
		want  Admitted
		fails bool
	}{
		"nothing": {},
		"others' names": {names: []string{"nvidia.com/gpu=all", "vendor.example/kerf.dev=x", "kerf.device/x=y",
			"", "="}},
		"admin access": {names: []string{"kerf.dev/gpu=GPU-a", "kerf.dev/gpu=GPU-b"}, want: Admitted{Admin: true}},
		"admin access and a grant": {names: []string{"kerf.dev/gpu=GPU-a", "kerf.dev/guard=armed",
			"kerf.dev/ask=gpu-memory-gib:10"}, fails: true},
		"memory": {names: []string{"kerf.dev/guard=armed", "kerf.dev/ask=gpu-memory-gib:10"},
			want: Admitted{Guarded: true, Requests: []ResourceRequest{{Resource: "gpu-memory-gib", Count: 10}}}},
		"order is not the name": {names: []string{"kerf.dev/ask=gpu-percent:25", "x/y=z",
			"kerf.dev/ask=gpu-memory-gib:10", "kerf.dev/guard=armed"},
			want: Admitted{Guarded: true, Requests: []ResourceRequest{{Resource: "gpu-memory-gib", Count: 10},
				{Resource: "gpu-percent", Count: 25}}}},
		"each resource tells of the guard, so it comes twice": {names: []string{"kerf.dev/guard=armed",
			"kerf.dev/ask=gpu-percent:25", "kerf.dev/guard=armed", "kerf.dev/ask=gpu-percent:25"},
			want: Admitted{Guarded: true, Requests: []ResourceRequest{{Resource: "gpu-percent", Count: 25}}}},
		"near": {
			names: []string{"kerf.dev/guard=armed", "kerf.dev/ask=gpu:3", "kerf.dev/near=numa1:1",
				"kerf.dev/near=numa0:2", "kerf.dev/near=numa1:1"},
			want: Admitted{Guarded: true, Requests: []ResourceRequest{{Resource: "gpu", Count: 3}},
				NUMA: []NUMAAffinity{{0, 2},
					{1, 1}}},
		},
		"numa": {
			names: []string{"kerf.dev/guard=armed", "kerf.dev/ask=gpu:3", "kerf.dev/numa=1:1", "kerf.dev/numa=0:2",
				"kerf.dev/numa=1:1"},
			want: Admitted{Guarded: true, Requests: []ResourceRequest{{Resource: "gpu", Count: 3}},
				NUMA: []NUMAAffinity{{0, 2},
					{1, 1}}},
		},
		"numa in both spellings": {
			names: []string{"kerf.dev/guard=armed", "kerf.dev/ask=gpu:3", "kerf.dev/numa=1:1", "kerf.dev/near=numa0:2"},
			want: Admitted{Guarded: true, Requests: []ResourceRequest{{Resource: "gpu", Count: 3}},
				NUMA: []NUMAAffinity{{0,
					2}, {1, 1}}},
		},
		"two amounts in two spellings": {names: []string{"kerf.dev/guard=armed", "kerf.dev/ask=gpu:3",
			"kerf.dev/numa=0:1", "kerf.dev/near=numa0:2"}, fails: true},
		"two amounts": {names: []string{"kerf.dev/guard=armed", "kerf.dev/ask=gpu-percent:25",
			"kerf.dev/ask=gpu-percent:26"}, fails: true},
		"two amounts near": {names: []string{"kerf.dev/guard=armed", "kerf.dev/ask=gpu:3", "kerf.dev/near=numa0:1",
			"kerf.dev/near=numa0:2"}, fails: true},
		"an ask without guard": {names: []string{"kerf.dev/ask=gpu-percent:25"}, fails: true},
		"near without guard":   {names: []string{"kerf.dev/near=numa0:1"}, fails: true},
		"a guard without ask":  {names: []string{"kerf.dev/guard=armed"}, fails: true},
		"another guard": {names: []string{"kerf.dev/guard=off", "kerf.dev/guard=armed", "kerf.dev/ask=gpu:1"},
			fails: true},
		"a guard with no name": {names: []string{"kerf.dev/guard"}, fails: true},
		"a GPU by its name": {names: []string{"kerf.dev/guard=armed", "kerf.dev/ask=gpu:1", "kerf.dev/gpu=GPU-1"},
			fails: true},
		"a kind that is none":   {names: []string{"kerf.dev/=x"}, fails: true},
		"an ask of nothing":     {names: []string{"kerf.dev/guard=armed", "kerf.dev/ask=gpu:0"}, fails: true},
		"an ask of another":     {names: []string{"kerf.dev/guard=armed", "kerf.dev/ask=cpu:1"}, fails: true},
		"an ask with no amount": {names: []string{"kerf.dev/guard=armed", "kerf.dev/ask"}, fails: true},
		"near no node": {names: []string{"kerf.dev/guard=armed", "kerf.dev/ask=gpu:1", "kerf.dev/near=numa:1"},
			fails: true},
		"near the 17th node": {names: []string{"kerf.dev/guard=armed", "kerf.dev/ask=gpu:1",
			"kerf.dev/near=numa16:1"}, fails: true},
		"near with none": {names: []string{"kerf.dev/guard=armed", "kerf.dev/ask=gpu:1",
			"kerf.dev/near=numa0:0"}, fails: true},
		"near with a zero": {names: []string{"kerf.dev/guard=armed", "kerf.dev/ask=gpu:1",
			"kerf.dev/near=numa00:1"}, fails: true},
		"near without a number": {names: []string{"kerf.dev/guard=armed", "kerf.dev/ask=gpu:1", "kerf.dev/near=numa0"},
			fails: true},
		"numa with a prefix": {names: []string{"kerf.dev/guard=armed", "kerf.dev/ask=gpu:1", "kerf.dev/numa=numa0:1"},
			fails: true},
		"numa the 17th node": {names: []string{"kerf.dev/guard=armed", "kerf.dev/ask=gpu:1", "kerf.dev/numa=16:1"},
			fails: true},
		"near without a prefix": {names: []string{"kerf.dev/guard=armed", "kerf.dev/ask=gpu:1", "kerf.dev/near=0:1"},
			fails: true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := AdmittedBy(tc.names)
			if tc.fails {
				if !errors.Is(err, ErrInvalid) || got.Guarded {
					t.Errorf("%+v, %v; want ErrInvalid", got, err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(tc.want, got, cmpopts.EquateEmpty()); d != "" {
				t.Error(d)
			}
		})
	}
}

func FuzzParseAsk(f *testing.F) {
	for _, s := range []string{"gpu:1", "gpu-memory-gib:10", "gpu-percent:0", "gpu:+1", "gpu:007", "gpu:2147483648",
		"x:1", ""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		a, err := ParseResourceRequest(s)
		switch {
		case err != nil && (!errors.Is(err, ErrInvalid) || a != ResourceRequest{}):
			t.Fatalf("%q: %+v, %v", s, a, err)
		case err == nil && (a.String() != s || a.Count < 1):
			t.Fatalf("%q reads as %+v", s, a)
		}
	})
}

// Admitted has the hook device and requests, or neither. It does not depend on the order of the names. Every name of
// Kerf that it was read from can be written again.
func FuzzAdmittedBy(f *testing.F) {
	f.Add("kerf.dev/guard=armed kerf.dev/ask=gpu-memory-gib:10 nvidia.com/gpu=0", uint64(1))
	f.Add("kerf.dev/near=numa1:2 kerf.dev/guard=armed kerf.dev/ask=gpu:3 kerf.dev/near=numa0:1", uint64(2))
	f.Add("kerf.dev/numa=1:2 kerf.dev/guard=armed kerf.dev/ask=gpu:3 kerf.dev/near=numa0:1", uint64(2))
	f.Add("kerf.dev/ask=gpu:1", uint64(3))
	f.Add("kerf.dev/guard=armed kerf.dev/guard=armed", uint64(4))
	f.Fuzz(func(t *testing.T, joined string, seed uint64) {
		names := strings.Split(joined, " ")
		got, err := AdmittedBy(names)
		if err != nil {
			if !errors.Is(err, ErrInvalid) || got.Guarded || len(got.Requests)+len(got.NUMA) > 0 {
				t.Fatalf("%q: %+v, %v", names, got, err)
			}
			return
		}
		if got.Guarded != (len(got.Requests) > 0) || !got.Guarded && len(got.NUMA) > 0 {
			t.Fatalf("%q: %+v", names, got)
		}
		ours := map[string]bool{}
		if got.Guarded {
			ours[HookDevice] = true
		}
		for _, a := range got.Requests {
			ours[a.Device()] = true
		}
		for _, n := range got.NUMA {
			ours[n.Device()] = true
			if former := EarlierCDINUMA + "=" + n.Former(); slices.Contains(names, former) {
				ours[former] = true
				if !slices.Contains(names, n.Device()) {
					delete(ours, n.Device())
				}
			}
		}
		for _, name := range names {
			if strings.HasPrefix(name, CDIVendor+"/") && !ours[name] {
				t.Fatalf("%q was passed over: %+v", name, got)
			}
		}
		for name := range ours {
			if !slices.Contains(names, name) {
				t.Fatalf("%q was not among %q", name, names)
			}
		}
		rand.New(rand.NewPCG(seed, 0)).Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
		again, err := AdmittedBy(names)
		if d := cmp.Diff(got, again, cmpopts.EquateEmpty()); err != nil || d != "" {
			t.Fatalf("in another order: %v\n%s", err, d)
		}
	})
}

// TestClaimAsks: the request of a ResourceClaim has a name in each form that kubelet and hooks use.
func TestClaimAsks(t *testing.T) {
	const uid = "11111111-0000-4000-8000-000000000000"
	a := ClaimRequest(uid, "gpu")
	if a.String() != "claim:"+uid+".gpu" || a.Device() != "kerf.dev/claim="+uid+".gpu" || a.ClaimUID() != uid {
		t.Errorf("%q, %q", a, a.Device())
	}
	if got, err := ParseResourceRequest(a.String()); err != nil || got != a {
		t.Errorf("parse: %+v, %v", got, err)
	}
	b := ClaimRequest(uid, "other")
	got, err := AdmittedBy([]string{b.Device(), HookDevice, a.Device(), a.Device()})
	if err != nil || !slices.Equal(got.Requests, []ResourceRequest{a, b}) || !OfClaims(got.Requests) {
		t.Errorf("admitted: %+v, %v", got, err)
	}
	hook := []string{HookProgram, HookActivate, HookRequest, a.String()}
	if name, ours := DeviceOfHook("/opt/kerf-hook", hook); !ours || name != a.Device() {
		t.Errorf("hook: %q, %v", name, ours)
	}
	for _, bad := range [][]string{
		{a.Device()},
		{HookDevice, a.Device(), CDIRequest + "=gpu-memory-gib:10"},
		{HookDevice, a.Device(), CDINUMA + "=0:1"},
		{HookDevice, CDIRequest + "=" + a.String()},
		{HookDevice, CDIClaim + "=gpu-memory-gib:10"},
		{HookDevice, CDIClaim + "=" + uid},
		{HookDevice, CDIClaim + "=" + uid + ".g/u"},
		{HookDevice, CDIClaim + "=." + uid},
	} {
		if got, err := AdmittedBy(bad); !errors.Is(err, ErrInvalid) {
			t.Errorf("%q: %+v, %v", bad, got, err)
		}
	}
}

func TestClaimNames(t *testing.T) {
	for want, in := range map[string][]string{
		"": nil, "a": {"a/gpu"}, "a,b": {"a/large", "a/small", "b/gpu"},
	} {
		if got := ClaimNames(in); got != want {
			t.Errorf("%v: %q, want %q", in, got, want)
		}
	}
	r := ClaimRequest("11111111-0000-4000-8000-000000000000", "gpu")
	if got := r.ClaimRequestName(); got != "gpu" {
		t.Errorf("request %q", got)
	}
	if got := (ResourceRequest{Resource: "gpu", Count: 1}).ClaimRequestName(); got != "" {
		t.Errorf("a limit has request %q", got)
	}
}
