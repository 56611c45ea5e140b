// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// A log that an agent of the release before wrote is verified and read, and the present form continues it.
func TestLinesOfTheEarlierForm(t *testing.T) {
	seal := func(body string) []byte {
		return []byte(body[:len(body)-1] + sumBegin + sumOf([]byte(body)) + sumEnd)
	}
	first := seal(`{"seq":7,"time":"2026-01-02T03:04:05Z","what":"arm","node":"n","who":{"pod":"p","pod_uid":"u","uid":7},` +
		`"grant":"k-1","fragments":[{"gpu":"GPU-1","percent":25}],"why":"container c"}`)
	var v Verifier
	got, err := v.Next(first)
	if err != nil {
		t.Fatal(err)
	}
	want := Entry{Seq: 7, Time: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Type: Activate, Node: "n", Grant: "k-1",
		Subject: &Subject{Pod: "p", PodUID: "u", UID: 7}, Shares: []Share{{GPU: "GPU-1", Percent: 25}},
		Reason: "container c", Sum: got.Sum}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("entry (-want +got):\n%s", diff)
	}
	next, _, err := v.Tail().Append(Entry{Type: Usage})
	if err != nil {
		t.Fatal(err)
	}
	if got, err = v.Next(next[:len(next)-1]); err != nil || got.Seq != 8 || got.Type != Usage {
		t.Errorf("the next entry: %+v, %v", got, err)
	}
	for was, is := range map[string]string{"claim": Reserve, "limit": Resize, "usage": Usage} {
		if e, err := Parse(seal(`{"seq":1,"what":"` + was + `"}`)); err != nil || e.Type != is {
			t.Errorf("%s: %+v, %v", was, e, err)
		}
	}
}
