// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package sharing

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func FuzzParseBytes(f *testing.F) {
	for _, s := range []string{"10GiB", "1.5Gi", "0", "18446744073709551615", "16777216TiB", "1e9", "-1", "nan",
		"0.1KB", "1.", "١"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		b, err := ParseBytes("f", s)
		if err != nil {
			if !errors.Is(err, ErrInvalid) || b != 0 {
				t.Fatalf("ParseBytes(%q) = %d, %v", s, uint64(b), err)
			}
			return
		}
		// What is shown reads back as no more than there is.
		again, err := ParseBytes("f", b.String())
		if err == nil && again > b {
			t.Fatalf("%d is shown as %q, which is %d", uint64(b), b.String(), uint64(again))
		}
	})
}

func FuzzParsePercent(f *testing.F) {
	for _, s := range []string{"25", "25%", "0", "-1", "6401", "1e2", ""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		p, err := ParsePercent("f", s)
		if (err == nil) != (p >= 1 && p <= FullGPU*MaxGPUs) {
			t.Fatalf("ParsePercent(%q) = %d, %v", s, p, err)
		}
		if err == nil {
			if again, err := ParsePercent("f", p.String()); err != nil || again != p {
				t.Fatalf("%q reads back as %d, %v", p, again, err)
			}
		}
	})
}

func FuzzNames(f *testing.F) {
	for _, s := range []string{"job-1", "GPU-8f6d1c2a-0b1e-4c55-9d3f-2a7b6c5d4e3f", "MIG-x", "pack", "driver", ""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if err := ValidateName("f", s); err == nil && (len(s) == 0 || len(s) > 63) {
			t.Fatalf("name %q is taken", s)
		}
		if id, err := ParseGPUID("f", s); err == nil {
			if again, err := ParseGPUID("f", string(id)); err != nil || again != id {
				t.Fatalf("UUID %q reads back as %q, %v", id, again, err)
			}
		}
		if p, err := ParseSpread("f", s); err == nil && p.String() != s {
			t.Fatalf("placement %q reads as %q", s, p)
		}
		if l, err := ParseLevel("f", s); err == nil && l.String() != s && s != OldLevelUserspace {
			t.Fatalf("level %q reads as %q", s, l)
		}
	})
}

// Any input gives a valid request or an ErrInvalid. A request that goes over the node API is the same on the other
// side.
func FuzzRequestFromFlags(f *testing.F) {
	f.Add("10GiB", "25", "", "*H100*", "", "driver", "pack", "")
	f.Add("", "", "2", "!*T4*", "GPU-8f6d1c2a-0b1e-4c55-9d3f-2a7b6c5d4e3f", "", "spread", "")
	f.Add("", "", "", "", "", "", "", "small")
	f.Add("0", "101", "65", "[", "x", "x", "x", "X")
	f.Fuzz(func(t *testing.T, memory, percent, gpus, model, uuid, level, place, profile string) {
		in := Flags{Memory: memory, Percent: percent, GPUs: gpus, Level: level, Placement: place, Profile: profile}
		if model != "" {
			in.Models = []string{model}
		}
		if uuid != "" {
			in.UUIDs = []string{uuid}
		}
		r, err := RequestFromFlags(in)
		if err != nil {
			if !errors.Is(err, ErrInvalid) {
				t.Fatalf("%+v: error %v is not ErrInvalid", in, err)
			}
			return
		}
		if err := r.Validate(); err != nil {
			t.Fatalf("%+v gives %+v, which is invalid: %v", in, r, err)
		}
		again, err := RequestFromAmounts(r.Amounts())
		if diff := cmp.Diff(r, again, cmpopts.EquateEmpty()); err != nil || diff != "" {
			t.Fatalf("over the node API: %v\n%s", err, diff)
		}
	})
}

func FuzzRequestFromResources(f *testing.F) {
	f.Add("gpu-memory-gib", "10", "kerf.dev/gpu-count", "2", "main")
	f.Add("gpu", "2", "profile.kerf.dev/main", "small", "main")
	f.Add("mig-1g.10gb", "1", "x.kerf.dev/main", "", "main")
	f.Add("gpu-percent", "-1", "kerf.dev/gpu-model", ",", "")
	f.Fuzz(func(t *testing.T, resource, amount, annotation, value, container string) {
		r, asks, err := RequestFromResources(map[string]string{Domain + "/" + resource: amount},
			map[string]string{annotation: value}, container)
		switch {
		case err != nil && !errors.Is(err, ErrInvalid):
			t.Fatalf("error %v is not ErrInvalid", err)
		case err == nil && !asks:
			t.Fatal("a kerf.dev limit requests nothing")
		case err == nil:
			if err := r.Validate(); err != nil {
				t.Fatalf("gives %+v, which is invalid: %v", r, err)
			}
		}
	})
}
