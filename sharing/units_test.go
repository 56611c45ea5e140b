// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package sharing

import (
	"errors"
	"math"
	"strings"
	"testing"
)

func TestParseBytes(t *testing.T) {
	t.Parallel()
	good := map[string]Bytes{
		"0": 0, "1": 1, "512B": 512, "10GiB": 10 * GiB, "10Gi": 10 * GiB, "1.5GiB": GiB + GiB/2,
		"0.5KiB": 512, "1.25GiB": GiB + GiB/4, "1.50GiB": GiB + GiB/2, "1K": 1000, "1k": 1000, "1kB": 1000,
		"1KB": 1000, "3MB": 3e6, "3M": 3e6, "2G": 2e9, "2GB": 2e9, "1TB": 1e12, "1T": 1e12, "1Ti": TiB, "1TiB": TiB,
		"007MiB": 7 * MiB, "0.001KB": 1, "1.0": 1, "16777215TiB": 16777215 * TiB,
		"18446744073709551615": math.MaxUint64,
	}
	for in, want := range good {
		got, err := ParseBytes("--memory", in)
		if err != nil || got != want {
			t.Errorf("ParseBytes(%q) = %d, %v; want %d", in, uint64(got), err, uint64(want))
		}
	}
	bad := map[string]string{
		"": "is empty", "-1": "is negative", "+1GiB": "has a sign", " 1GiB": "has a space", "1 GiB": "has a space",
		"1GiB ": "has a space",
		"GiB":   "is not a size", ".5GiB": "is not a size", "1.GiB": "is not a size",
		"1.5": "is not a whole number of bytes",
		"nan": "is not a size", "inf": "is not a size", "NaNGiB": "is not a size", "1e3": "unknown unit",
		"1E3":  "unknown unit",
		"0x10": "unknown unit", "1_000": "unknown unit", "1,5GiB": "unknown unit", "1.5.5GiB": "unknown unit",
		"10gib": "unknown unit", "10m": "unknown unit", "10GiBs": "unknown unit", "10PiB": "unknown unit",
		"١GiB": "is not a size", "1٠GiB": "unknown unit", "10G\u200biB": "unknown unit", "1\x00": "unknown unit",
		"18446744073709551616": "is too large", "16777216TiB": "is too large",
		"99999999999999999999GiB":   "is too large",
		"16777215.9999999999999TiB": "is not a whole number", "0.1GiB": "is not a whole number",
		"0.0000000000000000001TiB": "is not a whole number",
	}
	for in, want := range bad {
		got, err := ParseBytes("--memory", in)
		var field *FieldError
		if !errors.As(err, &field) || !errors.Is(err, ErrInvalid) || got != 0 {
			t.Errorf("ParseBytes(%q) = %d, %v; want a FieldError", in, uint64(got), err)
			continue
		}
		if !strings.Contains(err.Error(), want) || field.Field != "--memory" || field.Remedy == "" {
			t.Errorf("ParseBytes(%q): error %q, want %q in it", in, err, want)
		}
	}
}

func TestParseSizeRefusesZero(t *testing.T) {
	t.Parallel()
	for _, in := range []string{"0", "0GiB", "0.0GiB"} {
		if _, err := ParseSize("m", in); !errors.Is(err, ErrInvalid) {
			t.Errorf("ParseSize(%q) = %v, want it refused", in, err)
		}
	}
	if b, err := ParseSize("m", "1GiB"); err != nil || b != GiB {
		t.Errorf("ParseSize(1GiB) = %v, %v", b, err)
	}
}

func TestBytesString(t *testing.T) {
	t.Parallel()
	tests := map[Bytes]string{
		0: "0B", 1: "1B", 1023: "1023B", KiB: "1KiB", KiB + 512: "1.5KiB", 10 * GiB: "10GiB",
		79*GiB + GiB/4: "79.25GiB",
		10*GiB + 1:     "10.0GiB", 10*GiB - 1: "9.9GiB", GiB - 1: "1023.9MiB", 81559 * MiB: "79.6GiB", 2 * TiB: "2TiB",
		2048 * TiB: "2048TiB", math.MaxUint64: "16777215.9TiB", TiB + TiB/2: "1.5TiB", 5*GiB + 3*GiB/4: "5.75GiB",
	}
	for in, want := range tests {
		if got := in.String(); got != want {
			t.Errorf("Bytes(%d).String() = %q, want %q", uint64(in), got, want)
		}
	}
}

func TestCheckedArithmetic(t *testing.T) {
	t.Parallel()
	const most = Bytes(math.MaxUint64)
	if _, err := most.Add(1); !errors.Is(err, ErrInvalid) {
		t.Errorf("Add wraps: %v", err)
	}
	if _, err := Bytes(1).Sub(2); !errors.Is(err, ErrInvalid) {
		t.Errorf("Sub wraps: %v", err)
	}
	if _, err := most.Mul(2); !errors.Is(err, ErrInvalid) {
		t.Errorf("Mul wraps: %v", err)
	}
	if got := Bytes(1).SubFloor(2); got != 0 {
		t.Errorf("SubFloor = %d, want 0", uint64(got))
	}
	if got, err := Bytes(5).Sub(2); got != 3 || err != nil {
		t.Errorf("5-2 = %d, %v", uint64(got), err)
	}
}

// Shares that sum to 100 percent fit, on any size of GPU.
func TestSharesFit(t *testing.T) {
	t.Parallel()
	for _, usable := range []Bytes{0, 1, MiB, 15*GiB + 7, 79*GiB + 123*MiB + 5, math.MaxUint64} {
		for p := Percent(1); p <= FullGPU; p++ {
			n := uint64(FullGPU / p)
			sum, err := usable.Share(p).Mul(n)
			rest := usable.Share(FullGPU - p*Percent(n))
			if err == nil {
				sum, err = sum.Add(rest)
			}
			if err != nil || sum > usable {
				t.Fatalf("%d shares of %d%% and the rest of %d take %d (%v)", n, p, uint64(usable), uint64(sum), err)
			}
		}
	}
}

func TestParsePercent(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]Percent{"1": 1, "25": 25, "25%": 25, "100": 100, "6400": 6400} {
		if got, err := ParsePercent("p", in); err != nil || got != want {
			t.Errorf("ParsePercent(%q) = %d, %v; want %d", in, got, err, want)
		}
	}
	for in, want := range map[string]string{
		"": "is empty", "%": "is empty", "0": "is zero", "0%": "is zero", "-5": "is negative",
		"1.5": "not a whole number", "6401": "is more than 6400",
		"99999999999999999999": "is more than", "25%%": "not a whole number", "+5": "not a whole number",
		" 5": "not a whole number", "٥": "not a whole number", "-": "not a whole number",
	} {
		if _, err := ParsePercent("p", in); err == nil || !strings.Contains(err.Error(), want) ||
			!errors.Is(err, ErrInvalid) {
			t.Errorf("ParsePercent(%q) = %v, want %q", in, err, want)
		}
	}
}

func TestParseNames(t *testing.T) {
	t.Parallel()
	for _, ok := range []string{"a", "7b-chat.v2", strings.Repeat("x", 63)} {
		if err := ValidateName("--name", ok); err != nil {
			t.Errorf("ValidateName(%q) = %v", ok, err)
		}
	}
	for _, bad := range []string{"", "A", "-a", "a-", ".a", "a.", "a_b", "a b", "ä", "a/b", "a\n",
		strings.Repeat("x", 64)} {
		if err := ValidateName("--name", bad); !errors.Is(err, ErrInvalid) {
			t.Errorf("ValidateName(%q) = %v, want it refused", bad, err)
		}
	}
	const uuid = "8f6d1c2a-0b1e-4c55-9d3f-2a7b6c5d4e3f"
	for in, want := range map[string]GPUID{"GPU-" + uuid: "GPU-" + uuid, "GPU-" + strings.ToUpper(uuid): "GPU-" +
		uuid} {
		if got, err := ParseGPUID("u", in); err != nil || got != want {
			t.Errorf("ParseGPUID(%q) = %q, %v", in, got, err)
		}
	}
	for _, bad := range []string{"", "0", uuid, "gpu-" + uuid, "GPU-", "GPU-" + uuid + "0", "GPU-" + uuid[:35] + "g",
		"MIG-" + uuid, "GPU-" + strings.ReplaceAll(uuid, "-", "0")} {
		if _, err := ParseGPUID("u", bad); !errors.Is(err, ErrInvalid) {
			t.Errorf("ParseGPUID(%q) = %v, want it refused", bad, err)
		}
	}
	for _, p := range []Spread{PlacePack, PlaceSpread} {
		if got, err := ParseSpread("p", p.String()); err != nil || got != p {
			t.Errorf("ParseSpread(%q) = %v, %v", p, got, err)
		}
	}
	if _, err := ParseSpread("p", "default"); !errors.Is(err, ErrInvalid) {
		t.Errorf("ParseSpread(default) = %v, want it refused", err)
	}
}

// A hostile value stays one line of printable characters and does not flood the log.
func TestFieldErrorIsOneShortLine(t *testing.T) {
	t.Parallel()
	_, err := ParseBytes("--memory", "1\n\x1b[31m"+strings.Repeat("x", 1<<20))
	if s := err.Error(); strings.ContainsAny(s, "\n\x1b") || len(s) > 500 {
		t.Errorf("error is %d bytes: %.200q", len(s), s)
	}
}
