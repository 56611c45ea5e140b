// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package sharing

import (
	"errors"
	"testing"
)

func TestParseBurst(t *testing.T) {
	t.Parallel()
	for s, want := range map[string]Burst{
		"40GiB": {Memory: 40 * GiB}, "200%": {Percent: 200}, "101%": {Percent: 101}, "10000%": {Percent: 10_000},
	} {
		got, err := ParseBurst("f", s)
		if err != nil || got != want || got.String() != s {
			t.Errorf("%q: %+v, %v, %q", s, got, err, got.String())
		}
	}
	for _, s := range []string{"", "100%", "0%", "%", "-5%", "1.5%", "10001%", "0", "40", "many", "40 GiB", "200 %"} {
		if b, err := ParseBurst("f", s); s != "40" && (!errors.Is(err, ErrInvalid) || b != Burst{}) {
			t.Errorf("%q is read as %+v, %v", s, b, err)
		}
	}
}

func TestBurstOfAFragment(t *testing.T) {
	t.Parallel()
	g := GPU{UUID: "a", Memory: 80 * GiB, Reserved: GiB}
	for name, tt := range map[string]struct {
		r    Request
		want Bytes
	}{
		"none":                          {Request{Memory: 10 * GiB, GPUs: 1}, 0},
		"a size":                        {Request{Memory: 10 * GiB, GPUs: 1, Burst: Burst{Memory: 40 * GiB}}, 40 * GiB},
		"a size over two":               {Request{Memory: 20 * GiB, GPUs: 2, Burst: Burst{Memory: 40 * GiB}}, 20 * GiB},
		"a percentage":                  {Request{Memory: 10 * GiB, GPUs: 1, Burst: Burst{Percent: 150}}, 15 * GiB},
		"of half a GPU":                 {Request{Percent: 50, GPUs: 1, Burst: Burst{Memory: 60 * GiB}}, 60 * GiB},
		"more than there is":            {Request{Memory: 10 * GiB, GPUs: 1, Burst: Burst{Percent: 10_000}}, 79 * GiB},
		"no more than what it has":      {Request{Percent: 100, GPUs: 1, Burst: Burst{Memory: 60 * GiB}}, 0},
		"more guaranteed than there is": {Request{Memory: 1 << 63, GPUs: 1, Burst: Burst{Percent: 10_000}}, 0},
		"a whole GPU":                   {Request{Kind: KindWhole, GPUs: 1, Burst: Burst{Percent: 200}}, 0},
	} {
		if got := tt.r.On(g); got.Burst != tt.want {
			t.Errorf("%s: %s, want %s", name, got.Burst, tt.want)
		}
	}
}
