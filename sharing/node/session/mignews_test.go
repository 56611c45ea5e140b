// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package session

import (
	"slices"
	"testing"
)

// Each sentence is said once, and again when it comes back; the first look of a manager is none of them.
func TestMIGNews(t *testing.T) {
	var m migNews
	var got []string
	m.say("a", "", "before anybody listens")
	m.to(func(reason, message string) { got = append(got, reason+": "+message) })
	for _, s := range [][2]string{{"", "for pod x"}, {"", "for pod x"}, {"half", "for pod x"}, {"", ""}, {"", ""}, {"", "for pod x"}} {
		m.say("a", s[0], s[1])
	}
	waits := "MIGWaits: MIG on GPU a is not as the pool says: for pod x"
	if want := []string{waits, "MIGTrouble: GPU a gives no MIG instances: half", waits}; !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}
