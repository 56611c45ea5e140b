// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"strings"
	"testing"

	"github.com/kerf-gpu/kerf/sharing"
)

// Libkerf alone counts managed memory, and alone can reject it: the others say what they leave open, and that reject
// does nothing.
func TestManagedCaveat(t *testing.T) {
	for b, allowed := range map[sharing.Backend]string{
		sharing.BackendNone: "", sharing.BackendLibkerf: "", sharing.BackendDriver: "in no process",
		sharing.BackendMPS: "in no process", sharing.BackendReactive: "in no process",
	} {
		if got := ManagedAllow.Caveat(b); !strings.Contains(got, allowed) || (got == "") != (allowed == "") ||
			strings.Contains(got, "reject") {
			t.Errorf("%v, allow: %q", b, got)
		}
		want := "managedMemory: reject has no effect"
		if b == sharing.BackendLibkerf {
			want = ""
		}
		if got := ManagedReject.Caveat(b); !strings.Contains(got, want) || !strings.Contains(got, allowed) ||
			(got == "") != (want == "") {
			t.Errorf("%v, reject: %q", b, got)
		}
	}
}
