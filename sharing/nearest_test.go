// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package sharing

import (
	"math/rand/v2"
	"testing"
)

func TestNearest(t *testing.T) {
	t.Parallel()
	among := []string{"driver", "mps", "libkerf", "reactive", "nodeSelector", "kill"}
	for in, want := range map[string]string{
		"": "", "Driver": "driver", "drivre": "driver", "nodeselector": "nodeSelector", "node_selector": "nodeSelector",
		"nodSelektor": "nodeSelector",
		"lib-kerf":    "libkerf", "kil": "kill", "mpx": "mps", "mxx": "", "quite another": "", "reactive!": "reactive",
		"ktll": "kill",
	} {
		if got := Nearest(in, among); got != want {
			t.Errorf("nearest to %q is %q, want %q", in, got, want)
		}
	}
}

// The distance is that of the plain definition.
func TestDistance(t *testing.T) {
	t.Parallel()
	var naive func(a, b string) int
	naive = func(a, b string) int {
		if a == "" || b == "" {
			return len(a) + len(b)
		}
		cost := 1
		if a[0] == b[0] {
			cost = 0
		}
		d := min(naive(a[1:], b)+1, naive(a, b[1:])+1, naive(a[1:], b[1:])+cost)
		if len(a) > 1 && len(b) > 1 && a[0] == b[1] && a[1] == b[0] {
			d = min(d, naive(a[2:], b[2:])+1)
		}
		return d
	}
	rnd := rand.New(rand.NewPCG(5, 6))
	letters := func() string {
		out := make([]byte, rnd.IntN(6))
		for i := range out {
			out[i] = "abc"[rnd.IntN(3)]
		}
		return string(out)
	}
	for range 500 {
		if a, b := letters(), letters(); distance([]byte(a), []byte(b)) != naive(a, b) {
			t.Fatalf("distance of %q and %q is %d, want %d", a, b, distance([]byte(a), []byte(b)), naive(a, b))
		}
	}
}
