// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"errors"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kerf-gpu/kerf/sharing"
)

func TestCandidates(t *testing.T) {
	const (
		proc    = "22 27 0:21 / /proc rw,relatime - proc proc rw\n"
		tmpfs   = "31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755\n"
		v1      = "32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu\n"
		hybrid  = "41 31 0:38 / /sys/fs/cgroup/unified rw,relatime shared:9 master:1 - cgroup2 cgroup2 rw\n"
		usual   = "30 24 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
		other   = `50 27 0:26 / /mnt/my\040cgroup\011\134x rw - cgroup2 none rw` + "\n"
		long    = "60 27 0:40 / /var/lib/layers rw - overlay overlay rw,lowerdir="
		partial = "51 27 0:26 /kubepods/pod1 /sys/fs/cgroup ro - cgroup2 cgroup ro\n"
	)
	at := func(points ...string) []string { return points }
	tests := map[string]struct {
		in   string
		want []string
	}{
		"usual":                      {proc + usual, at("/sys/fs/cgroup")},
		"hybrid":                     {proc + tmpfs + v1 + hybrid, at("/sys/fs/cgroup/unified")},
		"other place, escaped":       {proc + other, at("/mnt/my cgroup\t\\x")},
		"usual before others":        {other + usual, at("/sys/fs/cgroup", "/mnt/my cgroup\t\\x")},
		"hybrid before others":       {other + hybrid, at("/sys/fs/cgroup/unified", "/mnt/my cgroup\t\\x")},
		"part of the hierarchy":      {proc + partial, nil},
		"part, and the whole too":    {partial + other, at("/mnt/my cgroup\t\\x")},
		"covered by a later mount":   {usual + tmpfs, nil},
		"hidden beneath a later one": {hybrid + tmpfs, nil},
		"version 1 only":             {proc + tmpfs + v1, nil},
		"next to a very long line":   {long + strings.Repeat("/a", 50000) + "\n" + usual, at("/sys/fs/cgroup")},
		"next to a line of rubbish":  {"x y\n" + usual + "1 2 0:3 / /a\\9 rw - tmpfs tmpfs rw\n", at("/sys/fs/cgroup")},
		"empty source and options":   {"30 24 0:26 / /sys/fs/cgroup rw - cgroup2  rw\n", at("/sys/fs/cgroup")},
		"empty":                      {"", nil},
		"rubbish":                    {"x\n - \n1 2 3 - cgroup2\n", nil},
		"no newline at the end":      {strings.TrimSuffix(usual, "\n"), at("/sys/fs/cgroup")},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			all, err := candidates(strings.NewReader(tc.in))
			if err != nil || !slices.Equal(all, tc.want) {
				t.Errorf("%q, %v; want %q", all, err, tc.want)
			}
		})
	}
}

func TestHasV1(t *testing.T) {
	for table, want := range map[string]bool{
		"30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n":       false,
		"32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n": true,
		"32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n30 23 0:26 / /sys/fs/cgroup/unified rw - cgroup2 " +
			"cgroup2 rw\n": true,
		"": false,
	} {
		if got, err := hasV1(strings.NewReader(table)); got != want || err != nil {
			t.Errorf("%q: %t, %v", table, got, err)
		}
	}
	if _, err := hasV1(brokenReader{}); !errors.Is(err, sharing.ErrUnavailable) {
		t.Errorf("%v, want ErrUnavailable", err)
	}
}

type brokenReader struct{}

func (brokenReader) Read([]byte) (int, error) { return 0, errors.New("broken") }

func TestUnreadableTableIsAnError(t *testing.T) {
	if _, err := candidates(brokenReader{}); !errors.Is(err, sharing.ErrUnavailable) {
		t.Errorf("%v, want ErrUnavailable", err)
	}
}

func FuzzCandidates(f *testing.F) {
	f.Add("41 31 0:38 / /sys/fs/cgroup/unified rw,relatime shared:9 - cgroup2 cgroup2 rw\n")
	f.Add(`1 1 0:1 / /a\0 rw - cgroup2 x rw`)
	f.Fuzz(func(t *testing.T, s string) {
		all, _ := candidates(strings.NewReader(s)) // a line may be too long
		for _, p := range all {
			if !path.IsAbs(p) {
				t.Errorf("mount %q is not absolute", p)
			}
		}
	})
}

func TestParseProcCgroup(t *testing.T) {
	tests := map[string]struct {
		in   string
		want string
		err  error
	}{
		"unified":       {in: "0::/user.slice/job 1\n", want: "/user.slice/job 1"},
		"hybrid":        {in: "9:name=systemd:/a\n4:memory:/b\n0::/\n", want: "/"},
		"colons":        {in: "0::/a:b::c\n", want: "/a:b::c"},
		"version 1":     {in: "4:memory:/b\n", err: sharing.ErrUnsupported},
		"empty":         {in: "", err: sharing.ErrUnsupported},
		"deleted":       {in: "0::/gone (deleted)\n", err: sharing.ErrStale},
		"outside":       {in: "0::/../../other\n", err: sharing.ErrDenied},
		"dots in names": {in: "0::/a..b/..c\n", want: "/a..b/..c"},
		"relative":      {in: "0::x\n", err: sharing.ErrUnavailable},
		"not a v2 line": {in: "10::/x\n", err: sharing.ErrUnsupported},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := parseProcCgroup(tc.in)
			if got != tc.want || !errors.Is(err, tc.err) {
				t.Errorf("%q, %v; want %q, %v", got, err, tc.want, tc.err)
			}
		})
	}
}

func FuzzParseProcCgroup(f *testing.F) {
	f.Add("4:memory:/b\n0::/a/../b\n")
	f.Fuzz(func(t *testing.T, s string) {
		got, err := parseProcCgroup(s)
		if err == nil && (!path.IsAbs(got) || strings.Contains(got+"/", "/../")) {
			t.Errorf("accepted %q", got)
		}
	})
}

func TestParseEvents(t *testing.T) {
	tests := map[string]struct {
		want, bad bool
	}{
		"populated 1\nfrozen 0\n": {want: true},
		"populated 0\nfrozen 1\n": {},
		"frozen 0\npopulated 0":   {},
		"":                        {bad: true},
		"populated 2\n":           {bad: true},
		"xpopulated 1\n":          {bad: true},
	}
	for in, tc := range tests {
		got, err := parseEvents([]byte(in))
		if got != tc.want || (err != nil) != tc.bad {
			t.Errorf("parseEvents(%q) = %v, %v", in, got, err)
		}
	}
}

func TestParseProcs(t *testing.T) {
	got, err := parseProcs([]byte("12\n0\n7\n"))
	if d := cmp.Diff([]int{12, 7}, got); d != "" || err != nil {
		t.Error(d, err)
	}
	for _, bad := range []string{"x\n", "-1\n", "1 2\n", "99999999999\n", "\n"} {
		if got, err := parseProcs([]byte(bad)); !errors.Is(err, sharing.ErrUnavailable) {
			t.Errorf("parseProcs(%q) = %v, %v", bad, got, err)
		}
	}
}

func FuzzParseProcs(f *testing.F) {
	f.Add([]byte("12\n0\n7\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		pids, err := parseProcs(data)
		if err != nil {
			return
		}
		for _, p := range pids {
			if p <= 0 {
				t.Errorf("pid %d", p)
			}
		}
	})
}

func TestPathsAreRefused(t *testing.T) {
	h := Hierarchy{Mount: "/sys/fs/cgroup"}
	long := strings.Repeat("a", 256)
	for _, rel := range []string{"", "/abs", "..", "a/..", "a/../b", ".", "a/./b", "a//b", "a/", long, "a\nb", "a\x7f",
		strings.Repeat("a/", 4096) + "a"} {
		if _, err := h.Create(rel); !errors.Is(err, sharing.ErrInvalid) {
			t.Errorf("Create(%.20q) = %v, want ErrInvalid", rel, err)
		}
	}
	for _, dir := range []string{"", "/", "/sys/fs/cgroup", "/sys/fs/cgroup/", "/sys/fs/cgroupx/a", "a",
		"/sys/fs/cgroup/../../etc", "/sys/fs/cgroup//a"} {
		if _, err := h.Open(dir, 0); !errors.Is(err, sharing.ErrInvalid) {
			t.Errorf("Open(%q) = %v, want ErrInvalid", dir, err)
		}
		if err := (Group{Dir: dir, Inode: 1, mount: h.Mount}).Remove(); !errors.Is(err, sharing.ErrInvalid) {
			t.Errorf("Remove of %q = %v, want ErrInvalid", dir, err)
		}
	}
	if _, err := h.Children("a/.."); !errors.Is(err, sharing.ErrInvalid) {
		t.Errorf("Children: %v", err)
	}
}

func FuzzCheckRel(f *testing.F) {
	f.Add("kerf/job-1")
	f.Add("a/../b")
	f.Fuzz(func(t *testing.T, rel string) {
		if checkRel(rel) == nil && (path.Clean("/m/"+rel) != "/m/"+rel || rel == "") {
			t.Errorf("accepted %q", rel)
		}
	})
}
