// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package subuid

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kerf-gpu/kerf/sharing"
)

func names(name string) (uint32, bool) {
	uid, ok := map[string]uint32{"ann": 1000, "bob": 1001, "root": 0, "1002": 77}[name]
	return uid, ok
}

const text = `ann:100000:65536
bob:165536:65536
1003:300000:1
1002:300001:2
root:400000:65536

# a comment
nobody-knows:500000:65536
ann:x:1
ann:1:0
ann:4294967295:2
bob:4294967295:1
ann:1:2:3
`

func TestParse(t *testing.T) {
	got, err := Parse(strings.NewReader(text), names)
	if err != nil {
		t.Fatal(err)
	}
	want := []Range{{1000, 100_000, 65_536}, {1001, 165_536, 65_536}, {1003, 300_000, 1}, {77, 300_001, 2},
		{1001, math.MaxUint32, 1}}
	if d := cmp.Diff(want, got); d != "" {
		t.Fatal(d)
	}
	for uid, owner := range map[uint32]uint32{
		0: 0, 1000: 1000, 99_999: 99_999, 100_000: 1000, 165_535: 1000, 165_536: 1001, 231_071: 1001, 231_072: 231_072,
		300_000: 1003, 300_002: 77, 300_003: 300_003, 400_000: 400_000, math.MaxUint32: 1001,
	} {
		if got := OwnerOf(got, uid); got != owner {
			t.Errorf("UID %d belongs to %d, want %d", uid, got, owner)
		}
	}
	if _, err := Parse(strings.NewReader(strings.Repeat("x", 1<<20)), names); !errors.Is(err, sharing.ErrUnavailable) {
		t.Errorf("a line without end: %v", err)
	}
}

// A file that changes counts from the next reading on; one that cannot be read leaves what there was.
func TestFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "subuid")
	f := &File{}
	wantOwner := func(uid, want uint32) {
		t.Helper()
		if got := f.OwnerOf(uid); got != want {
			t.Errorf("UID %d belongs to %d, want %d", uid, got, want)
		}
	}
	wantOwner(100_000, 100_000)
	if err := f.Read(path, names); err != nil {
		t.Error(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := f.Read(path, names); err != nil {
		t.Error(err)
	}
	wantOwner(100_000, 1000)
	unchanged := func(string) (uint32, bool) {
		t.Error("a name of a file that did not change is resolved")
		return 0, false
	}
	if err := f.Read(path, unchanged); err != nil {
		t.Error(err)
	}
	if err := os.WriteFile(path, []byte("bob:100000:9\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := f.Read(path, names); err != nil {
		t.Error(err)
	}
	wantOwner(100_000, 1001)
	if err := f.Read(filepath.Dir(path), names); !errors.Is(err, sharing.ErrUnavailable) {
		t.Errorf("a folder: %v", err)
	}
	wantOwner(100_000, 1001)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := f.Read(path, names); err != nil {
		t.Error(err)
	}
	wantOwner(100_000, 100_000)
}

func FuzzParse(f *testing.F) {
	f.Add(text, uint32(100_000))
	f.Fuzz(func(t *testing.T, text string, uid uint32) {
		ranges, err := Parse(strings.NewReader(text), names)
		if err != nil {
			return
		}
		if owner := OwnerOf(ranges, uid); owner == 0 && uid != 0 {
			t.Errorf("UID %d belongs to root by %q", uid, text)
		}
		for _, r := range ranges {
			if r.Count == 0 || uint64(r.First)+uint64(r.Count)-1 > math.MaxUint32 {
				t.Errorf("range %+v", r)
			}
		}
	})
}
