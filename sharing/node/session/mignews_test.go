// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package session

import (
	"slices"
	"testing"
)

// Each message is sent once, and again if it comes back. The first check of a manager sends none.
func TestMIGNews(t *testing.T) {
	var m migNews
	var got []string
	m.say("a", "", "before anybody listens")
	m.to(func(reason, message string) { got = append(got, reason+": "+message) })
	for _, s := range [][2]string{{"", "for pod x"}, {"", "for pod x"}, {"half", "for pod x"}, {"", ""}, {"", ""},
		{"", "for pod x"}} {
		m.say("a", s[0], s[1])
	}
	waits := "MIGLayoutPending: The MIG layout of GPU a is pending: for pod x"
	if want := []string{waits, "MIGFailed: GPU a has no MIG instances because of an error: half",
		waits}; !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}
