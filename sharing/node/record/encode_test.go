// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package record

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kerf-gpu/kerf/sharing"
)

// However the grants change from one record to the next, what an Encoder writes is the whole of each.
func TestEncoderForgetsNothing(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	var e Encoder
	var all []Grant
	for step := range 3000 {
		switch i := r.IntN(len(all) + 1); {
		case i == len(all) || r.IntN(3) == 0:
			all = append(all, Grant{ID: fmt.Sprint("k", r.IntN(40)), Level: "driver",
				Shares: []Share{{GPU: "GPU-1", Memory: sharing.Bytes(r.IntN(3))}}})
		case r.IntN(2) == 0:
			all = append(all[:i:i], all[i+1:]...)
		default: // a part of one that is deep inside
			g := all[i]
			g.Shares = []Share{{GPU: "GPU-1", Memory: sharing.Bytes(r.IntN(3)),
				MIG: &Instance{Profile: "1g", ID: r.IntN(3)}}}
			g.Use = &Use{ContainerID: fmt.Sprint("c", r.IntN(2)),
				Requests: []string{fmt.Sprint("gpu-memory-gib:", r.IntN(2))}}
			all[i] = g
		}
		if len(all) > 20 {
			all = nil
		}
		want := Record{BootID: fmt.Sprintf("b%d\"<", r.IntN(2)), Grants: append([]Grant{}, all...)}
		data, err := e.Encode(want)
		if err != nil {
			t.Fatal(err)
		}
		got, err := Decode(data)
		if err != nil {
			t.Fatalf("step %d: %v in %s", step, err, data)
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Fatalf("step %d: %s", step, d)
		}
		var doc envelope
		if err := json.Unmarshal(data, &doc); err != nil {
			t.Fatal(err)
		}
		if body, err := json.Marshal(want); err != nil || string(body) != string(doc.Body) {
			t.Fatalf("step %d: %v: %s, want %s", step, err, doc.Body, body)
		}
	}
}
