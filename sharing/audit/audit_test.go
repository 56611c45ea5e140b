// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kerf-gpu/kerf/sharing"
)

func entries(n int) (out []Entry) {
	for i := range n {
		out = append(out, Entry{
			Time: time.Unix(1000+int64(i), 5).UTC(), Type: Reserve, Node: "n", Grant: fmt.Sprint("k-", i),
			Reason:  "because \n<\u2028>",
			Subject: &Subject{Namespace: "ns", Pod: "p", UID: 7},
			Shares:  []Share{{GPU: "GPU-1", MemoryBytes: 1 << 40, Percent: 25}},
		})
	}
	return out
}

func chain(t testing.TB, es []Entry) (lines [][]byte) {
	t.Helper()
	var tail Tail
	for _, e := range es {
		line, next, err := tail.Append(e)
		if err != nil {
			t.Fatal(err)
		}
		if tail = next; line[len(line)-1] != '\n' || bytes.Count(line, []byte("\n")) != 1 {
			t.Fatalf("not one line: %q", line)
		}
		lines = append(lines, line[:len(line)-1])
	}
	return lines
}

func verify(lines [][]byte) (out []Entry, err error) {
	var v Verifier
	for _, l := range lines {
		e, bad := v.Next(l)
		err = errors.Join(err, bad)
		out = append(out, e)
	}
	return out, err
}

func TestChainRoundTrip(t *testing.T) {
	want := entries(5)
	got, err := verify(chain(t, want))
	if err != nil {
		t.Fatal(err)
	}
	for i := range got {
		if got[i].Seq != uint64(i+1) || (got[i].Prev == "") != (i == 0) {
			t.Errorf("entry %d has number %d and hangs on %q", i, got[i].Seq, got[i].Prev)
		}
		got[i].Seq, got[i].Prev, got[i].Sum = 0, "", ""
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if _, err := verify(chain(t, want)[2:]); err != nil {
		t.Errorf("a log whose begin was rotated away: %v", err)
	}
}

func TestLongTextsAreCut(t *testing.T) {
	lines := chain(t, []Entry{{Type: Config, Error: strings.Repeat("\x01", 1<<20)}})
	if len(lines[0]) > MaxLine {
		t.Errorf("a line of %d bytes", len(lines[0]))
	}
}

// Whatever is done to a log before its last line is seen: bytes changed, lines taken out, put in twice, moved.
func TestEveryChangeIsSeen(t *testing.T) {
	const n = 12
	good := chain(t, entries(n))
	for seed := range uint64(300) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		lines := slices.Clone(good)
		i := 1 + rnd.IntN(n-2) // the first may be the begin, and a truncation at the end is not seen
		switch rnd.IntN(4) {
		case 0:
			l := bytes.Clone(lines[i])
			l[rnd.IntN(len(l))] ^= byte(1 + rnd.IntN(255))
			lines[i] = l
		case 1:
			lines = slices.Delete(lines, i, i+1)
		case 2:
			lines = slices.Insert(lines, i, lines[i])
		case 3:
			lines[i], lines[i+1] = lines[i+1], lines[i]
		}
		if _, err := verify(lines); !errors.Is(err, sharing.ErrInvalid) {
			t.Fatalf("seed %d: the change of line %d is not seen: %v", seed, i, err)
		}
	}
	// If a line is written again with its hash, the next line detects it.
	forged := slices.Clone(good)
	e, _ := Parse(forged[4])
	e.Subject.Pod = "another"
	line, _, err := Tail{Seq: e.Seq - 1, Sum: e.Prev}.Append(e)
	if err != nil {
		t.Fatal(err)
	}
	forged[4] = line[:len(line)-1]
	if _, err := verify(forged); err == nil || !strings.Contains(err.Error(), "entry 6 does not hang on entry 5") {
		t.Errorf("a forged line: %v", err)
	}
}

func FuzzParse(f *testing.F) {
	for _, l := range chain(f, entries(2)) {
		f.Add(l)
	}
	f.Add([]byte(`{"sum":""}`))
	f.Add([]byte(strings.Repeat("x", 80) + `,"sum":"` + strings.Repeat("0", 64) + `"}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		e, err := Parse(line)
		if err != nil {
			if !errors.Is(err, sharing.ErrInvalid) {
				t.Fatalf("error %v is not ErrInvalid", err)
			}
			return
		}
		if len(e.Sum) != sumLength || !bytes.HasSuffix(line, []byte(e.Sum+sumEnd)) {
			t.Fatalf("%q is taken for the sum of %q", e.Sum, line)
		}
	})
}
