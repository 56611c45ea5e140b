// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package sharing

import (
	"errors"
	"path"
	"strings"
	"testing"
)

func TestMatchModels(t *testing.T) {
	t.Parallel()
	const h100, t4 = "NVIDIA H100 80GB HBM3", "Tesla T4"
	tests := []struct {
		globs []string
		model string
		want  bool
	}{
		{nil, h100, true},
		{[]string{"*H100*"}, h100, true},
		{[]string{"*h100*"}, h100, true},
		{[]string{"H100"}, h100, false},
		{[]string{"*H100*"}, t4, false},
		{[]string{"!*T4*"}, t4, false},
		{[]string{"!*T4*"}, h100, true},
		{[]string{"*T4", "*H100*"}, h100, true},
		{[]string{"*", "!*H100*"}, h100, false},
		{[]string{"!*T4", "!*A100*"}, h100, true},
		{[]string{"*[AH]100*"}, h100, true},
		{[]string{"*[a-h]100*"}, h100, true},
		{[]string{"*[^A-G]100*"}, h100, true},
		{[]string{"*[^h]100*"}, h100, false},
		{[]string{"tesla ??"}, t4, true},
		{[]string{"tesla ?"}, t4, false},
		{[]string{"a*b"}, "a/x/b", true},
		{[]string{"a?b"}, "a/b", true},
		{[]string{`a\*b`}, "a*b", true},
		{[]string{`a\*b`}, "axb", false},
		{[]string{`\!x`}, "!x", true},
		{[]string{"["}, h100, false},
		{[]string{"!["}, h100, false},
		{[]string{"*a*a*a*a*a*a*a*a*b"}, strings.Repeat("a", 96), false},
	}
	for _, tt := range tests {
		if got := MatchModels(tt.globs, tt.model); got != tt.want {
			t.Errorf("MatchModels(%q, %q) = %v, want %v", tt.globs, tt.model, got, tt.want)
		}
	}
}

func TestCheckGlob(t *testing.T) {
	t.Parallel()
	for _, bad := range []string{"", "!", "[", "[]", "[^]", "[a", "[z-a]", `x\`, `[\`, "a\nb", "a\xffb",
		strings.Repeat("*", 129)} {
		if err := CheckGlob("--gpu-model", bad); !errors.Is(err, ErrInvalid) {
			t.Errorf("CheckGlob(%q) = %v, want it refused", bad, err)
		}
	}
	for _, good := range []string{"*", "!*", "[a-c]", `[\]]`, "[a-]", "H100/80"} {
		if err := CheckGlob("--gpu-model", good); err != nil {
			t.Errorf("CheckGlob(%q) = %v", good, err)
		}
	}
}

// Where case and "/" do not matter, the matching is that of path.Match.
func FuzzGlob(f *testing.F) {
	for _, s := range [][2]string{{"*h100*", "nvidia h100"}, {"[a-c]?", "b1"}, {`\*[^x]`, "*y"}, {"a*b*c", "aXbXc"},
		{"[", "x"}, {"!*t4", "t4"}} {
		f.Add(s[0], s[1])
	}
	f.Fuzz(func(t *testing.T, glob, name string) {
		err := CheckGlob("f", glob)
		got := MatchModels([]string{glob}, name)
		if err != nil {
			if got {
				t.Fatalf("bad glob %q matches %q", glob, name)
			}
			return
		}
		plain := func(s string) bool {
			return strings.IndexFunc(s, func(r rune) bool { return r >= 0x80 || r == '/' || 'A' <= r && r <= 'Z' }) < 0
		}
		// A class that spans both cases ([Z-a]) means more here than in path.Match, so classes are left to
		// the table.
		if !plain(glob) || !plain(name) || strings.HasPrefix(glob, "!") || strings.Contains(glob, "[") {
			return
		}
		if want, err := path.Match(glob, name); err != nil || want != got {
			t.Fatalf("glob %q on %q: got %v, path.Match says %v, %v", glob, name, got, want, err)
		}
	})
}

func TestPartOfName(t *testing.T) {
	t.Parallel()
	const t4 = "Tesla T4"
	for _, tt := range []struct {
		globs []string
		want  string
	}{
		{[]string{"T4"}, `; a pattern means the whole name: write "*T4*"`},
		{[]string{"*H100*", "tesla"}, `; a pattern means the whole name: write "*tesla*"`},
		{[]string{"*H100*"}, ""},
		{[]string{"!T4"}, ""},
		{[]string{"*T4*"}, ""},
		{[]string{"["}, ""},
		{[]string{""}, ""},
		{nil, ""},
	} {
		if got := PartOfName(tt.globs, t4); got != tt.want {
			t.Errorf("%q: %q, want %q", tt.globs, got, tt.want)
		}
	}
}
