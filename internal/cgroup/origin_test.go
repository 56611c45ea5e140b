// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"errors"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/kerf-gpu/kerf/sharing"
)

func inodeAt(t *testing.T, h Hierarchy) uint64 {
	t.Helper()
	fd, err := openDir(h.Mount, "")
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	ino, err := inodeOf(fd)
	if err != nil {
		t.Fatal(err)
	}
	return ino
}

func TestMarks(t *testing.T) {
	g := frozenGroup(t)
	if text, has, err := g.Mark("x"); text != "" || has || err != nil {
		t.Errorf("no mark: %q, %v, %v", text, has, err)
	}
	for _, want := range []string{"a", "", strings.Repeat("b", maxMark)} {
		if err := g.SetMark("x", want); err != nil {
			t.Fatal(err)
		}
		if text, has, err := g.Mark("x"); text != want || !has || err != nil {
			t.Errorf("mark: %q, %v, %v", text, has, err)
		}
	}
	if err := errors.Join(g.ClearMark("x"), g.ClearMark("x")); err != nil {
		t.Error(err)
	}
	if _, has, err := g.Mark("x"); has || err != nil {
		t.Errorf("a cleared mark: %v, %v", has, err)
	}
	gone := g
	gone.Dir += "-gone"
	if _, _, err := gone.Mark("x"); !errors.Is(err, sharing.ErrNotFound) {
		t.Errorf("mark of no group: %v", err)
	}
}

func TestParseOrigin(t *testing.T) {
	for _, o := range []Origin{{"", 1}, {"a", 2}, {"user.slice/a b:c", 1 << 60}} {
		if got, err := ParseOrigin(o.String()); got != o || err != nil {
			t.Errorf("%q: %+v, %v", o.String(), got, err)
		}
	}
	for _, bad := range []string{"", "1", ":a", "x:a", "-1:a", "1:/a", "1:../a", "1:a//b", "1:a\n"} {
		if _, err := ParseOrigin(bad); !errors.Is(err, sharing.ErrInvalid) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

func FuzzParseOrigin(f *testing.F) {
	f.Add("12:kerf/a")
	f.Fuzz(func(t *testing.T, s string) {
		if o, err := ParseOrigin(s); err == nil {
			if again, err := ParseOrigin(o.String()); err != nil || again != o {
				t.Errorf("%q: %+v, %+v, %v", s, o, again, err)
			}
		}
	})
}
