// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"log/slog"
	"slices"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
)

// Which groups are looked at after what the kernel has said.
func TestWhatIsLookedAt(t *testing.T) {
	event := func(mark int32, name string) []byte {
		b := binary.NativeEndian.AppendUint32(nil, uint32(mark))
		b = binary.NativeEndian.AppendUint32(b, 2) // IN_MODIFY
		b = binary.NativeEndian.AppendUint32(b, 0)
		b = binary.NativeEndian.AppendUint32(b, uint32(len(name)))
		return append(b, name...)
	}
	for name, tc := range map[string]struct {
		events []byte
		all    bool
		want   []string
	}{
		"nothing": {},
		"one":     {events: event(2, ""), want: []string{"b"}},
		"one, with a name": {events: slices.Concat(event(3, "name\x00\x00\x00\x00"), event(2, "")),
			want: []string{"b", "c"}},
		"one twice":          {events: slices.Concat(event(1, ""), event(1, "")), want: []string{"a"}},
		"dropped since":      {events: event(9, "")},
		"the queue was full": {events: slices.Concat(event(1, ""), event(-1, "")), want: []string{"a", "b", "c"}},
		"the poll":           {all: true, want: []string{"a", "b", "c"}},
		"cut short":          {events: event(2, "")[:15]},
		"a name cut short":   {events: event(2, "name")[:17], want: []string{"b"}},
		"nonsense":           {events: bytes.Repeat([]byte{0xfe}, 64)},
	} {
		t.Run(name, func(t *testing.T) {
			w := NewWatcher(time.Hour, slog.New(slog.DiscardHandler))
			for i, dir := range []string{"a", "b", "c"} {
				g := Group{Dir: dir}
				w.groups[g], w.marks[i+1] = i+1, g
			}
			w.note(tc.events)
			var got []string
			for _, g := range w.take(tc.all) {
				got = append(got, g.Dir)
			}
			slices.SortFunc(got, cmp.Compare[string])
			if d := gocmp.Diff(tc.want, got); d != "" {
				t.Error(d)
			}
			if again := w.take(false); len(again) != 0 {
				t.Errorf("still due: %v", again)
			}
		})
	}
}
