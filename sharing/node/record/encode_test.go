// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package record

import (
	"encoding/json"
	"fmt"
	"testing"
)

// The body is what encoding/json makes of the record, though it is put together from texts.
func TestBody(t *testing.T) {
	some := []Grant{
		{ID: "k-1", Level: "driver", Shares: []Share{{GPU: "GPU-1", MIG: &Instance{Profile: "1g", ID: 2}}}},
		{ID: "k-2", Level: "reactive", Shares: []Share{}},
		{ID: "k-3", Use: &Use{ContainerID: "c<1>", Requests: []string{"gpu:1"}}},
	}
	for n := range len(some) + 1 {
		r := Record{BootID: fmt.Sprintf("b%d\"<", n), Grants: some[:n]}
		data, err := Encode(r)
		if err != nil {
			t.Fatal(err)
		}
		var doc envelope
		if err := json.Unmarshal(data, &doc); err != nil {
			t.Fatal(err)
		}
		if body, err := json.Marshal(r); err != nil || string(body) != string(doc.Body) {
			t.Errorf("%s, want %s: %v", doc.Body, body, err)
		}
	}
}
