// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package sharing

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const (
	uuidA = "GPU-8f6d1c2a-0b1e-4c55-9d3f-2a7b6c5d4e3f"
	uuidB = "GPU-00000000-0b1e-4c55-9d3f-2a7b6c5d4e3f"
)

// checkErrors compares the lines of a joined error with the wanted parts, one for each error. A missing, doubled or new
// error fails the test.
func checkErrors(t *testing.T, err error, want []string) {
	t.Helper()
	if len(want) == 0 {
		if err != nil {
			t.Fatalf("refused: %v", err)
		}
		return
	}
	if !errors.Is(err, ErrInvalid) {
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

func TestRequestFromFlags(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		in   Flags
		want Request
		errs []string
	}{
		"memory":  {in: Flags{Memory: "10GiB"}, want: Request{Memory: 10 * GiB, GPUs: 1}},
		"percent": {in: Flags{Percent: "25"}, want: Request{Percent: 25, GPUs: 1}},
		"both over two": {in: Flags{Memory: "20GiB", Percent: "150", GPUs: "2"},
			want: Request{Memory: 20 * GiB, Percent: 150, GPUs: 2}},
		"whole":         {in: Flags{GPUs: "2"}, want: Request{Kind: KindWhole, GPUs: 2}},
		"profile alone": {in: Flags{Profile: "small"}, want: Request{Profile: "small"}},
		"profile, narrowed": {in: Flags{Profile: "small", Memory: "1GiB", GPUs: "1"},
			want: Request{Profile: "small", Memory: GiB, GPUs: 1}},
		"profile over gpus": {in: Flags{Profile: "small", GPUs: "3"}, want: Request{Profile: "small", GPUs: 3}},
		"uuid in upper case": {in: Flags{GPUs: "1", UUIDs: []string{"GPU-" + strings.ToUpper(uuidA[4:])}},
			want: Request{Kind: KindWhole, GPUs: 1, UUIDs: []GPUID{uuidA}}},
		"everything": {
			in: Flags{Memory: "1GiB", Models: []string{"*H100*", "!*T4*"}, UUIDs: []string{uuidA}, Level: "driver",
				Placement: "spread"},
			want: Request{Memory: GiB, GPUs: 1, Models: []string{"*H100*", "!*T4*"}, UUIDs: []GPUID{uuidA},
				MinLevel: LevelDriver, Place: PlaceSpread},
		},
		"nothing": {errs: []string{
			"the request requests nothing; give --memory, --percent or --gpus"}},
		"zero memory":     {in: Flags{Memory: "0GiB"}, errs: []string{`--memory "0GiB" is zero`}},
		"negative memory": {in: Flags{Memory: "-1GiB"}, errs: []string{"is negative"}},
		"a forgotten unit": {in: Flags{Memory: "10"},
			errs: []string{`--memory "10B" is less than 1MiB per GPU; write a number with a unit`}},
		"too little per GPU": {in: Flags{Memory: "1MiB", GPUs: "2"},
			errs: []string{"is less than 1MiB per GPU"}},
		"overflow": {in: Flags{Memory: "16777216TiB"}, errs: []string{"is too large"}},
		"percent above one GPU": {in: Flags{Percent: "101"},
			errs: []string{`--percent "101%" is more than 1 GPU, 100% each; write at most 100, or request more GPUs`}},
		"percent above two GPUs": {in: Flags{Percent: "202", GPUs: "2"}, errs: []string{"is more than 2 GPUs"}},
		"zero gpus":              {in: Flags{GPUs: "0"}, errs: []string{`--gpus "0" is zero`}},
		"too many gpus":          {in: Flags{GPUs: "65"}, errs: []string{"is more than 64"}},
		"half a gpu":             {in: Flags{GPUs: "0.5"}, errs: []string{"is not a whole number"}},
		"memory does not divide": {in: Flags{Memory: "10GiB", GPUs: "3"},
			errs: []string{`--memory "10GiB" does not divide evenly by 3 GPUs`}},
		"percent does not divide": {in: Flags{Percent: "25", GPUs: "2"},
			errs: []string{`--percent "25%" does not divide evenly by 2 GPUs; write a multiple of 2`}},
		"uuid twice": {in: Flags{GPUs: "1", UUIDs: []string{uuidA, uuidA}},
			errs: []string{"is named twice"}},
		"fewer uuids than gpus": {in: Flags{GPUs: "2", UUIDs: []string{uuidA}},
			errs: []string{"--gpu-uuid names 1 GPU where 2 are requested"}},
		"bad uuid": {in: Flags{GPUs: "1", UUIDs: []string{"0"}},
			errs: []string{`--gpu-uuid "0" is not a GPU's UUID`}},
		"mig uuid": {in: Flags{GPUs: "1", UUIDs: []string{"MIG-" + uuidA[4:]}},
			errs: []string{"names a MIG instance"}},
		"bad glob": {in: Flags{GPUs: "1", Models: []string{"[", "!"}},
			errs: []string{`--gpu-model "[" has a [ without its ]`, `--gpu-model "!" is empty`}},
		"level of the release before": {in: Flags{GPUs: "1", Level: "client"},
			want: Request{Kind: KindWhole, GPUs: 1, MinLevel: LevelUserspace}},
		"unknown level": {in: Flags{GPUs: "1", Level: "strong"},
			errs: []string{`--min-enforcement "strong" is not an enforcement level`}},
		"level unknown": {in: Flags{GPUs: "1", Level: "unknown"},
			errs: []string{"is not an enforcement level"}},
		"unknown placement": {in: Flags{GPUs: "1", Placement: "tight"},
			errs: []string{`--placement-policy "tight" is not a placement policy; write pack or spread`}},
		"bad profile name": {in: Flags{Profile: "Small!"}, errs: []string{"--profile"}},
		"profile, percent too high": {in: Flags{Profile: "small", Percent: "150", GPUs: "1"},
			errs: []string{"is more than 1 GPU"}},
		"all at once": {
			in: Flags{Memory: "x", Percent: "0", GPUs: "-1", Models: []string{""}, UUIDs: []string{"1"}, Level: "x",
				Placement: "y", Profile: "Z"},
			errs: []string{"--memory", "--percent", "--gpus", "--gpu-uuid", "--min-enforcement", "--placement-policy",
				"--gpu-model",
				"--profile"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := RequestFromFlags(tt.in)
			checkErrors(t, err, tt.errs)
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("request (-want +got):\n%s", diff)
			}
		})
	}
}

func TestRequestFromAmounts(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		in   Amounts
		want Request
		errs []string
	}{
		"memory":         {in: Amounts{Memory: uint64(GiB)}, want: Request{Memory: GiB, GPUs: 1}},
		"whole":          {in: Amounts{Whole: true}, want: Request{Kind: KindWhole, GPUs: 1}},
		"whole, profile": {in: Amounts{Whole: true, Profile: "big"}, want: Request{Kind: KindWhole, Profile: "big"}},
		"nothing":        {errs: []string{"requests nothing; give memory_bytes, percent or whole"}},
		"gpus alone":     {in: Amounts{GPUs: 2}, errs: []string{"requests nothing"}},
		"mixed": {in: Amounts{Whole: true, Memory: uint64(GiB), Percent: 10},
			errs: []string{"memory_bytes \"1GiB\" cannot be given together with whole",
				"percent \"10%\" cannot be given together"}},
		"gpus huge":    {in: Amounts{Whole: true, GPUs: 1<<32 - 1}, errs: []string{"gpu_count"}},
		"percent huge": {in: Amounts{Percent: 1<<32 - 1}, errs: []string{"is more than 1 GPU"}},
		"memory odd":   {in: Amounts{Memory: 1<<64 - 1, GPUs: 2}, errs: []string{"does not divide evenly"}},
		"level":        {in: Amounts{Whole: true, MinLevel: "x"}, errs: []string{"min_enforcement"}},
		"old level": {in: Amounts{Whole: true, MinLevel: "client"},
			want: Request{Kind: KindWhole, GPUs: 1, MinLevel: LevelUserspace}},
		"a request's text": {in: Amounts{Memory: uint64(GiB), Place: "pack"},
			want: Request{Memory: GiB, GPUs: 1, Place: PlacePack}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := RequestFromAmounts(tt.in)
			checkErrors(t, err, tt.errs)
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("request (-want +got):\n%s", diff)
			}
		})
	}
}

func TestRequestFromResources(t *testing.T) {
	t.Parallel()
	type kv = map[string]string
	tests := map[string]struct {
		limits, annotations kv
		want                Request
		none                bool
		errs                []string
	}{
		"memory":  {limits: kv{"kerf.dev/gpu-memory-gib": "10", "cpu": "2"}, want: Request{Memory: 10 * GiB, GPUs: 1}},
		"percent": {limits: kv{"kerf.dev/gpu-percent": "50"}, want: Request{Percent: 50, GPUs: 1}},
		"both": {limits: kv{"kerf.dev/gpu-memory-gib": "10", "kerf.dev/gpu-percent": "25"},
			want: Request{Memory: 10 * GiB, Percent: 25, GPUs: 1}},
		"whole": {limits: kv{"kerf.dev/gpu": "2"}, want: Request{Kind: KindWhole, GPUs: 2}},
		"nothing": {limits: kv{"cpu": "2", "nvidia.com/gpu": "1"}, annotations: kv{"kerf.dev/profile": "small",
			"example.com/x": "y"}, none: true},
		"annotations": {
			limits: kv{"kerf.dev/gpu-memory-gib": "20"},
			annotations: kv{
				"kerf.dev/gpu-count": "2", "kerf.dev/gpu-model": "*H100*, !*T4*", "kerf.dev/gpu-uuid": uuidA + "," +
					uuidB,
				"kerf.dev/min-enforcement": "driver", "kerf.dev/placement-policy": "spread", "kerf.dev/profile": "big",
			},
			want: Request{
				Memory: 20 * GiB, GPUs: 2, Models: []string{"*H100*", "!*T4*"}, UUIDs: []GPUID{uuidA, uuidB},
				MinLevel: LevelDriver, Place: PlaceSpread, Profile: "big",
			},
		},
		"the container's own win": {
			limits: kv{"kerf.dev/gpu-memory-gib": "20"},
			annotations: kv{"kerf.dev/gpu-count": "2", "gpu-count.kerf.dev/main": "4", "gpu-count.kerf.dev/side": "5",
				"profile.kerf.dev/main": "own", "kerf.dev/profile": "pod"},
			want: Request{Memory: 20 * GiB, GPUs: 4, Profile: "own"},
		},
		"names of an earlier version": {
			limits: kv{"kerf.dev/gpu-memory-gib": "1"},
			annotations: kv{"kerf.dev/gpus": "2", "kerf.dev/placement": "pack", "share-with.kerf.dev/main": "a",
				"placement.kerf.dev/main": "GPU-1"},
			errs: []string{`annotation kerf.dev/gpus is not known; write kerf.dev/gpu-count`,
				`annotation kerf.dev/placement is not known; write kerf.dev/placement-policy`,
				`annotation placement.kerf.dev/main is not known; leave it out: only the scheduler sets scheduling.kerf.dev/main`,
				`annotation share-with.kerf.dev/main is not known; write share-cap-with.kerf.dev/main`},
		},
		"the scheduler's placement is not the tenant's": {
			limits:      kv{"kerf.dev/gpu-memory-gib": "1"},
			annotations: kv{"scheduling.kerf.dev/main": `[{"gpu":"x"}]`, "kerf.dev/placement-policy": "spread"},
			want:        Request{Memory: GiB, GPUs: 1, Place: PlaceSpread},
		},
		"whole with its own count": {limits: kv{"kerf.dev/gpu": "2"}, annotations: kv{"kerf.dev/gpu-count": "2"},
			want: Request{Kind: KindWhole, GPUs: 2}},
		"whole with another count": {limits: kv{"kerf.dev/gpu": "2"}, annotations: kv{"kerf.dev/gpu-count": "3"},
			errs: []string{`annotation kerf.dev/gpu-count "3" differs from kerf.dev/gpu`}},
		"mixed kinds": {limits: kv{"kerf.dev/gpu": "1", "kerf.dev/gpu-memory-gib": "1"},
			errs: []string{`kerf.dev/gpu "1" cannot be mixed`}},
		"mig": {limits: kv{"kerf.dev/mig-1g.10gb": "1"}, want: Request{Kind: KindMIG, MIG: "1g.10gb",
			GPUs: 1}},
		"mig with an attribute": {limits: kv{"kerf.dev/mig-1g.10gb.me": "1"},
			annotations: kv{"kerf.dev/gpu-model": "*H100*"}, want: Request{Kind: KindMIG, MIG: "1g.10gb.me", GPUs: 1,
				Models: []string{"*H100*"}}},
		"mig misspelt": {limits: kv{"kerf.dev/mig-1g10gb": "1"},
			errs: []string{`kerf.dev/mig-1g10gb "1" is not the name of a MIG profile`}},
		"several instances": {limits: kv{"kerf.dev/mig-1g.10gb": "2"},
			errs: []string{`kerf.dev/mig-1g.10gb "2" is more than one instance`}},
		"two profiles": {limits: kv{"kerf.dev/mig-1g.10gb": "1", "kerf.dev/mig-2g.20gb": "1"},
			errs: []string{`kerf.dev/mig-2g.20gb "1" cannot be mixed with kerf.dev/mig-1g.10gb`}},
		"a cap on top of mig": {
			limits: kv{"kerf.dev/mig-1g.10gb": "1", "kerf.dev/gpu-memory-gib": "4", "kerf.dev/gpu-percent": "10"},
			errs: []string{
				`kerf.dev/gpu-memory-gib "4" cannot be given together with kerf.dev/mig-1g.10gb: the instance has its own`,
				`kerf.dev/gpu-percent "10" cannot be given together with kerf.dev/mig-1g.10gb`,
			},
		},
		"mig of a whole GPU": {limits: kv{"kerf.dev/mig-1g.10gb": "1", "kerf.dev/gpu": "1"},
			errs: []string{`kerf.dev/gpu "1" cannot be given together with kerf.dev/mig-1g.10gb`}},
		"mig over GPUs": {limits: kv{"kerf.dev/mig-1g.10gb": "1"}, annotations: kv{"kerf.dev/gpu-count": "2"},
			errs: []string{`annotation kerf.dev/gpu-count "2" cannot be given together`}},
		"mig with a profile": {limits: kv{"kerf.dev/mig-1g.10gb": "1"}, annotations: kv{"kerf.dev/profile": "small"},
			errs: []string{`annotation kerf.dev/profile "small" cannot be given together`}},
		"mig, more than that": {limits: kv{"kerf.dev/mig-1g.10gb": "1"},
			annotations: kv{"kerf.dev/min-enforcement": "exclusive"},
			errs:        []string{"is more than a MIG instance has"}},
		"unknown resource": {limits: kv{"kerf.dev/gpu-count": "1"},
			errs: []string{`kerf.dev/gpu-count "1" is not a resource of Kerf`}},
		"a quantity's text": {limits: kv{"kerf.dev/gpu-memory-gib": "10Gi"},
			errs: []string{`"10Gi" is not a whole number; write a whole number, without a unit`}},
		"bad numbers": {
			limits: kv{"kerf.dev/gpu-memory-gib": "0", "kerf.dev/gpu-percent": "-5"},
			errs:   []string{`kerf.dev/gpu-memory-gib "0" is zero`, `kerf.dev/gpu-percent "-5" is negative`},
		},
		"overflow": {limits: kv{"kerf.dev/gpu-memory-gib": "17179869184"},
			errs: []string{"is more than 17179869183"}},
		"percent too high": {limits: kv{"kerf.dev/gpu-percent": "150"},
			errs: []string{"kerf.dev/gpu-percent \"150%\" is more than 1 GPU"}},
		"does not divide": {limits: kv{"kerf.dev/gpu-percent": "25"}, annotations: kv{"kerf.dev/gpu-count": "2"},
			errs: []string{"does not divide evenly"}},
		"unknown key": {limits: kv{"kerf.dev/gpu": "1"}, annotations: kv{"kerf.dev/gpu-modle": "x",
			"colour.kerf.dev/main": "x"}, errs: []string{"annotation colour.kerf.dev/main is not known",
			"annotation kerf.dev/gpu-modle is not known; use one of profile,"}},
		"share-with": {limits: kv{"kerf.dev/gpu-memory-gib": "1"},
			annotations: kv{"share-cap-with.kerf.dev/main": "other", "share-cap-with.kerf.dev/side": "main"},
			want:        Request{Memory: GiB, GPUs: 1}},
		"shares with itself": {limits: kv{"kerf.dev/gpu": "1"}, annotations: kv{"share-cap-with.kerf.dev/main": "main"},
			errs: []string{`annotation share-cap-with.kerf.dev/main "main" names the container itself`}},
		"the pod shares": {limits: kv{"kerf.dev/gpu": "1"}, annotations: kv{"kerf.dev/share-cap-with": "main"},
			errs: []string{
				`annotation kerf.dev/share-cap-with "main" applies to one container, not to the pod; write share-cap-with.kerf.dev/CONTAINER`}},
		"shares nothing": {annotations: kv{"share-cap-with.kerf.dev/main": "other"},
			errs: []string{"is for a container that requests no GPU"}},
		"a translator's note": {limits: kv{"kerf.dev/gpu": "1"},
			annotations: kv{"kerf.dev/translated-from": "rounded up"},
			want:        Request{Kind: KindWhole, GPUs: 1}},
		"a pod that stays": {limits: kv{"kerf.dev/gpu": "1"}, annotations: kv{"kerf.dev/do-not-disrupt": "true"},
			want: Request{Kind: KindWhole, GPUs: 1}},
		"a container cannot stay": {limits: kv{"kerf.dev/gpu": "1"},
			annotations: kv{"do-not-disrupt.kerf.dev/main": "true"},
			errs:        []string{"annotation do-not-disrupt.kerf.dev/main is not known"}},
		"unknown key alone": {annotations: kv{"kerf.dev/x": "y"}, errs: []string{"annotation kerf.dev/x is not known"}},
		"empty value": {limits: kv{"kerf.dev/gpu": "1"}, annotations: kv{"kerf.dev/gpu-model": " , "},
			errs: []string{"annotation kerf.dev/gpu-model \" , \" is empty"}},
		"for a container without": {
			annotations: kv{"profile.kerf.dev/main": "small"},
			errs:        []string{"annotation profile.kerf.dev/main is for a container that requests no GPU"},
		},
		"all at once": {
			limits: kv{"kerf.dev/gpu-memory-gib": "x", "kerf.dev/mig-7g.80gb": "1"},
			annotations: kv{"kerf.dev/gpu-count": "0", "kerf.dev/gpu-uuid": "1", "kerf.dev/min-enforcement": "x",
				"kerf.dev/placement-policy": "x", "kerf.dev/profile": "X", "kerf.dev/gpu-model": "["},
			errs: []string{
				`gpu-memory-gib "x" is`, "together with kerf.dev/mig-7g.80gb: the instance",
				"annotation kerf.dev/gpu-count",
				"annotation kerf.dev/gpu-uuid", "annotation kerf.dev/min-enforcement",
				"annotation kerf.dev/placement-policy", "together with kerf.dev/mig-7g.80gb: a profile",
				"annotation kerf.dev/gpu-model", `annotation kerf.dev/profile "X" does`,
			},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, asks, err := RequestFromResources(tt.limits, tt.annotations, "main")
			checkErrors(t, err, tt.errs)
			if err == nil && asks == tt.none {
				t.Errorf("asks = %v", asks)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("request (-want +got):\n%s", diff)
			}
		})
	}
}

func TestRequestByHand(t *testing.T) {
	t.Parallel()
	bad := Request{Kind: 7, GPUs: -1, MinLevel: 99, Place: 99,
		UUIDs: []GPUID{"GPU-" + GPUID(strings.ToUpper(uuidA[4:]))}, Models: make([]string, 65)}
	checkErrors(t, bad.Validate(), []string{"gpu_count", "kind", "models has more than", "is not in lower case",
		"min_enforcement", "placement_policy"})
}

func TestRequestOn(t *testing.T) {
	t.Parallel()
	g := GPU{UUID: uuidA, Memory: 80 * GiB, Reserved: 500 * MiB, Model: "NVIDIA H100"}
	tests := map[string]struct {
		r    Request
		want Share
		text string
	}{
		"both": {Request{Memory: 20 * GiB, Percent: 50, GPUs: 2},
			Share{GPU: GPURef{UUID: uuidA}, Memory: 10 * GiB, Percent: 25}, "20GiB and 50% over 2 GPUs"},
		"memory": {Request{Memory: 10 * GiB, GPUs: 1}, Share{GPU: GPURef{UUID: uuidA}, Memory: 10 * GiB},
			"10GiB of one GPU"},
		"percent": {Request{Percent: 50, GPUs: 1}, Share{GPU: GPURef{UUID: uuidA}, Memory: 40*GiB - 250*MiB,
			Percent: 50}, "50% of one GPU"},
		"whole": {Request{Kind: KindWhole, GPUs: 2}, Share{GPU: GPURef{UUID: uuidA}, Memory: 80*GiB - 500*MiB,
			Percent: 100, Whole: true}, "2 whole GPUs"},
		"open": {Request{Profile: "small"}, Share{GPU: GPURef{UUID: uuidA}}, `profile "small"`},
	}
	for name, tt := range tests {
		if diff := cmp.Diff(tt.want, tt.r.On(g)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		if got := tt.r.String(); got != tt.text {
			t.Errorf("%s: text %q, want %q", name, got, tt.text)
		}
	}
	if !(Request{Models: []string{"*H100*"}, ProfileModels: []string{"NVIDIA*"}, UUIDs: []GPUID{uuidB, uuidA}}).Admits(
		g) {
		t.Error("a GPU that satisfies everything is not admitted")
	}
	for _, r := range []Request{{Models: []string{"*T4*"}}, {ProfileModels: []string{"!*H100*"}},
		{UUIDs: []GPUID{uuidB}}} {
		if r.Admits(g) {
			t.Errorf("%+v admits %s", r, g.Model)
		}
	}
}

func TestPlacementTotal(t *testing.T) {
	t.Parallel()
	p := Placement{{GPU: GPURef{UUID: "a"}, Memory: GiB, Percent: 20}, {GPU: GPURef{UUID: "b"}, Memory: 2 * GiB,
		Percent: 30}}
	if m, c := p.Total(); m != 3*GiB || c != 50 {
		t.Errorf("Total = %s, %s", m, c)
	}
	if f, ok := p.On(GPURef{UUID: "b"}); !ok || f.Memory != 2*GiB {
		t.Errorf("On(b) = %v, %v", f, ok)
	}
	if _, ok := p.On(GPURef{UUID: "c"}); ok {
		t.Error("a share on a GPU that has none")
	}
	huge := Placement{{Memory: 1 << 63}, {Memory: 1 << 63}}
	if m, _ := huge.Total(); m != 1<<64-1 {
		t.Errorf("a sum that overflows is %d", uint64(m))
	}
}
