// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package checkpoint

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/node/record"
)

// of is a record with grants of these ids.
func of(ids ...string) record.Record {
	r := record.Record{BootID: "boot", Grants: []record.Grant{}}
	for _, id := range ids {
		r.Grants = append(r.Grants, record.Grant{ID: id, Level: "reactive", Backend: "reactive",
			Shares: []record.Share{{GPU: "GPU-1", Memory: sharing.GiB}}})
	}
	return r
}

func always(r record.Record) func() ([]byte, error) {
	return func() ([]byte, error) { return record.Encode(r) }
}

func noPoint(string) error { return nil }

// newStore writes the records one after the other.
func newStore(t *testing.T, records ...record.Record) (s *Store, path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "record.json")
	s = New(path, noPoint)
	for _, r := range records {
		if err := s.Save(always(r)); err != nil {
			t.Fatal(err)
		}
	}
	return s, path
}

func mustRead(t *testing.T, path string) Found {
	t.Helper()
	found, err := Read(path)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func TestReadTheNewest(t *testing.T) {
	_, path := newStore(t)
	if found := mustRead(t, path); found.From != None || len(found.Damaged) != 0 {
		t.Errorf("nothing was written, and %+v is found", found)
	}
	_, path = newStore(t, of("a"), of("a", "b"))
	want := Found{Record: of("a", "b"), From: Newest}
	if d := cmp.Diff(want, mustRead(t, path)); d != "" {
		t.Error(d)
	}
}

// Whatever bit of the newest flips, one of the two records is found, whole.
func TestEachFlippedBit(t *testing.T) {
	newest, previous := of("a", "b"), of("a")
	_, path := newStore(t, previous, newest)
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	fellBack := 0
	for i := range good {
		for bit := range 8 {
			bad := bytes.Clone(good)
			bad[i] ^= 1 << bit
			if err := os.WriteFile(path, bad, 0o600); err != nil {
				t.Fatal(err)
			}
			found, err := Read(path)
			if err != nil {
				t.Fatalf("bit %d of byte %d (%q): %v", bit, i, good[i], err)
			}
			want := Found{Record: newest, From: Newest}
			if found.From == Previous {
				fellBack++
				want = Found{Record: previous, From: Previous, Damaged: found.Damaged}
				if len(found.Damaged) != 1 || found.Damaged[0].Path != path ||
					!errors.Is(found.Damaged[0].Err, sharing.ErrInvalid) {
					t.Fatalf("bit %d of byte %d: damaged are %+v", bit, i, found.Damaged)
				}
			}
			if d := cmp.Diff(want, found, cmp.Comparer(errors.Is)); d != "" {
				t.Fatalf("bit %d of byte %d (%q): %s", bit, i, good[i], d)
			}
		}
	}
	if fellBack < len(good)*8*9/10 {
		t.Errorf("%d of %d flips are noticed", fellBack, len(good)*8)
	}
}

func TestDamage(t *testing.T) {
	junk := func(path string) error { return os.WriteFile(path, []byte("junk"), 0o600) }
	for name, c := range map[string]struct {
		newest, previous func(string) error
		from             Generation
		damaged          int
	}{
		"newest removed":               {os.Remove, nil, Previous, 0},
		"newest empty":                 {func(p string) error { return os.Truncate(p, 0) }, nil, Previous, 1},
		"previous damaged":             {nil, junk, Newest, 0},
		"both damaged":                 {junk, junk, None, 2},
		"newest damaged, one removed":  {junk, os.Remove, None, 1},
		"newest removed, other broken": {os.Remove, junk, None, 1},
	} {
		t.Run(name, func(t *testing.T) {
			_, path := newStore(t, of("a"), of("a", "b"))
			for p, damage := range map[string]func(string) error{path: c.newest, PreviousPath(path): c.previous} {
				if damage == nil {
					continue
				}
				if err := damage(p); err != nil {
					t.Fatal(err)
				}
			}
			found := mustRead(t, path)
			if found.From != c.from || len(found.Damaged) != c.damaged {
				t.Errorf("%+v", found)
			}
			if want := map[Generation]int{Newest: 2, Previous: 1}[c.from]; len(found.Record.Grants) != want {
				t.Errorf("%d grants, want %d", len(found.Record.Grants), want)
			}
		})
	}
}

// A record of a newer agent is left alone, whichever of the two it is.
func TestNewerRecords(t *testing.T) {
	newer := fmt.Appendf(nil, `{"schema":%d,"sha256":"","body":{}}`, record.Schema+1)
	_, path := newStore(t, of("a"), of("a", "b"))
	if err := os.WriteFile(path, newer, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(path); !errors.Is(err, sharing.ErrUnsupported) {
		t.Errorf("a newer record: %v", err)
	}
	if err := errors.Join(os.WriteFile(path, []byte("junk"), 0o600), os.WriteFile(PreviousPath(path), newer,
		0o600)); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(path); !errors.Is(err, sharing.ErrUnsupported) {
		t.Errorf("a damaged record after a newer one: %v", err)
	}
}
