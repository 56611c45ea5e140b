// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

func TestParseState(t *testing.T) {
	full :=
		`{"ociVersion":"1.2.0","id":"5f-a_B.c+9","status":"creating","pid":4711,"bundle":"/run/../x","annotations":{"kerf.dev/grant":"forged","id":"no","pid":"1"}}`
	for name, in := range map[string]string{"creating": full, "created, with a line end": strings.Replace(full,
		"creating", "created", 1) + "\n"} {
		s, err := parseState([]byte(in))
		s.Status = ""
		want := state{ID: "5f-a_B.c+9", PID: 4711}
		want.Annotations.Grant = "forged" // the agent compares it
		if diff := cmp.Diff(want, s); err != nil || diff != "" {
			t.Errorf("%s: %v %s", name, err, diff)
		}
	}
	of := func(id, status, pid string) string {
		return `{"id":` + id + `,"status":` + status + `,"pid":` + pid + `}`
	}
	bad := map[string]string{
		"empty":            "",
		"no object":        "null",
		"half":             `{"id":"c","status":"creating"`,
		"trailing garbage": of(`"c"`, `"creating"`, "7") + `{}`,
		"two states":       of(`"c"`, `"creating"`, "7") + "\n" + of(`"c"`, `"creating"`, "7"),
		"running":          of(`"c"`, `"running"`, "7"),
		"stopped":          of(`"c"`, `"stopped"`, "7"),
		"no status":        `{"id":"c","pid":7}`,
		"unknown status":   of(`"c"`, `"Creating "`, "7"),
		"no pid":           `{"id":"c","status":"creating"}`,
		"pid 0":            of(`"c"`, `"creating"`, "0"),
		"pid 1":            of(`"c"`, `"creating"`, "1"),
		"pid below 0":      of(`"c"`, `"creating"`, "-7"),
		"pid too large":    of(`"c"`, `"creating"`, "4194305"),
		"pid beyond int":   of(`"c"`, `"creating"`, "18446744073709551623"),
		"pid as text":      of(`"c"`, `"creating"`, `"7"`),
		"pid a fraction":   of(`"c"`, `"creating"`, "7.5"),
		"no id":            `{"status":"creating","pid":7}`,
		"id a path":        of(`"../c"`, `"creating"`, "7"),
		"id dots":          of(`".."`, `"creating"`, "7"),
		"id with NUL":      of(`"c\u0000"`, `"creating"`, "7"),
		"id with line end": of(`"c\nkerf-hook: ok"`, `"creating"`, "7"),
		"id too long":      of(`"`+strings.Repeat("c", maxID+1)+`"`, `"creating"`, "7"),
		"too large":        of(`"c"`, `"creating"`, "7") + strings.Repeat(" ", maxState),
	}
	for name, in := range bad {
		t.Run(name, func(t *testing.T) {
			if s, err := parseState([]byte(in)); !errors.Is(err, errState) || s != (state{}) {
				t.Errorf("got %+v (%v), want an error", s, err)
			}
		})
	}
}

// endless never ends and counts what was taken from it.
type endless struct{ n int }

func (e *endless) Read(b []byte) (int, error) {
	e.n += len(b)
	return len(b), nil
}

func TestReadStateIsBounded(t *testing.T) {
	var e endless
	if _, err := readState(t.Context(), &e); !errors.Is(err, errState) || e.n > maxState+1 {
		t.Errorf("%v after %d bytes, want an error after %d", err, e.n, maxState+1)
	}
	r, w := io.Pipe()
	defer w.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := readState(ctx, r); !errors.Is(err, errState) {
		t.Errorf("stdin that stays open: %v, want an error", err)
	}
}

func TestOneLine(t *testing.T) {
	tests := map[string]struct{ in, want string }{
		"plain":       {`pod "a/b" asks 10 GiB, 3 are free`, `pod "a/b" asks 10 GiB, 3 are free`},
		"line end":    {"no\nkerf-hook: ok\r", `no\nkerf-hook: ok\r`},
		"escape":      {"\x1b[31mred\x00", `\x1b[31mred\x00`},
		"not UTF-8":   {"a\xff\xfeb", `a\xff\xfeb`},
		"other words": {"größer", "größer"},
		"right left":  {"a\u202eb\u2028", `a\u202eb\u2028`},
	}
	for name, tc := range tests {
		if got := OneLine(tc.in); got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
	if got := OneLine(strings.Repeat("é", maxLine)); len(got) > maxLine+5 || !utf8.ValidString(got) {
		t.Errorf("a long line has %d bytes, want at most about %d", len(got), maxLine)
	}
}

func FuzzParseState(f *testing.F) {
	f.Add(
		[]byte(`{"ociVersion":"1.2.0","id":"c","status":"creating","pid":4711,"bundle":"/b","annotations":{"a":"b"}}`))
	f.Add([]byte(`{"id":"..","status":"created","pid":1}`))
	f.Fuzz(func(t *testing.T, in []byte) {
		s, err := parseState(in)
		if err != nil {
			if line := OneLine(err.Error()); strings.ContainsAny(line, "\n\r\x00\x1b") || len(line) > maxLine+16 {
				t.Errorf("line %q", line)
			}
			return
		}
		if s.PID <= 1 || s.Status != "creating" && s.Status != "created" || strings.ContainsAny(s.ID, "/\x00\n \"") ||
			s.ID == "" {
			t.Errorf("%+v was taken", s)
		}
	})
}

// The note that goes to the agent is the annotation of the grant, and no other. One that does not fit into a frame is
// none.
func TestNoteOfState(t *testing.T) {
	for name, c := range map[string]struct{ annotations, want string }{
		"none":                        {`{}`, ""},
		"null":                        {`null`, ""},
		"others":                      {`{"kerf.dev/gpu-uuid":"GPU-1"}`, ""},
		"its own":                     {`{"a":"b","kerf.dev/grant":"{\"id\":\"k-1\"}"}`, `{"id":"k-1"}`},
		"too long":                    {`{"kerf.dev/grant":"` + strings.Repeat("x", maxNote) + `"}`, ""},
		"too long when it is escaped": {`{"kerf.dev/grant":"` + strings.Repeat(`\u0001`, maxNote/6+1) + `"}`, ""},
	} {
		s, err := parseState([]byte(`{"id":"c1","status":"creating","pid":4711,"annotations":` + c.annotations + `}`))
		if err != nil || s.note() != c.want {
			t.Errorf("%s: %.40q (%v), want %q", name, s.note(), err, c.want)
		}
	}
}
