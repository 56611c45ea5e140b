// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package checkpoint

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/node/record"
)

// of is a record with grants of these ids.
func of(ids ...string) record.Record {
	r := record.Record{BootID: "boot", Grants: []record.Grant{}}
	for _, id := range ids {
		r.Grants = append(r.Grants, record.Grant{ID: id, Level: "reactive", Backend: "reactive", Fragments: []record.Fragment{{GPU: "GPU-1", Memory: sharing.GiB}}})
	}
	return r
}

func always(r record.Record) func() record.Record { return func() record.Record { return r } }

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
				if len(found.Damaged) != 1 || found.Damaged[0].Path != path || !errors.Is(found.Damaged[0].Err, sharing.ErrInvalid) {
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
	if err := errors.Join(os.WriteFile(path, []byte("junk"), 0o600), os.WriteFile(PreviousPath(path), newer, 0o600)); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(path); !errors.Is(err, sharing.ErrUnsupported) {
		t.Errorf("a damaged record after a newer one: %v", err)
	}
}

// A write that ends at any point leaves the record of before it or its own, and the next write succeeds.
func TestSaveEndsAtEachPoint(t *testing.T) {
	ended := errors.New("ended")
	for _, point := range Failpoints() {
		t.Run(point, func(t *testing.T) {
			_, path := newStore(t, of("a"), of("a", "b"))
			s := New(path, func(at string) error {
				if at == point {
					return ended
				}
				return nil
			})
			if err := s.Save(always(of("a", "b", "c"))); !errors.Is(err, ended) {
				t.Fatal(err)
			}
			if s.Waiting() != 1 {
				t.Errorf("%d wait after a write that failed", s.Waiting())
			}
			found := mustRead(t, path)
			if found.From != Newest || len(found.Record.Grants) != 2 && point != "record-after-placed" {
				t.Errorf("%+v", found)
			}
			if err := New(path, noPoint).Save(always(of("d"))); err != nil {
				t.Fatal(err)
			}
			if found := mustRead(t, path); found.From != Newest || len(found.Record.Grants) != 1 {
				t.Errorf("after the next write: %+v", found)
			}
		})
	}
}

// A full disk takes no record, and leaves both generations as they were.
func TestFullDisk(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mount("none", dir, "tmpfs", 0, "size=64k"); errors.Is(err, unix.EPERM) {
		t.Skip("a small file system needs root:", sharing.ErrDenied)
	} else if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	path := filepath.Join(dir, "record.json")
	s := New(path, noPoint)
	for _, r := range []record.Record{of("a"), of("a", "b")} {
		if err := s.Save(always(r)); err != nil {
			t.Fatal(err)
		}
	}
	filler := filepath.Join(dir, "filler")
	if err := os.WriteFile(filler, make([]byte, 1<<20), 0o600); !errors.Is(err, unix.ENOSPC) {
		t.Fatalf("the disk is not full: %v", err)
	}
	for range 2 {
		if err := s.Save(always(of("c"))); !errors.Is(err, unix.ENOSPC) {
			t.Errorf("on a full disk: %v", err)
		}
		if found := mustRead(t, path); found.From != Newest || len(found.Record.Grants) != 2 {
			t.Errorf("%+v", found)
		}
	}
	if err := os.WriteFile(path, []byte("junk"), 0o600); err != nil {
		t.Fatal(err)
	}
	if found := mustRead(t, path); found.From != Previous || len(found.Record.Grants) != 1 {
		t.Errorf("the previous one is %+v", found)
	}
	if err := errors.Join(os.Remove(filler), s.Save(always(of("c")))); err != nil {
		t.Error(err)
	}
}

// After Settle either file can be lost without loss.
func TestSettle(t *testing.T) {
	s, path := newStore(t, of("a"), of("a", "b"))
	if err := s.Settle(always(of("a", "b"))); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("junk"), 0o600); err != nil {
		t.Fatal(err)
	}
	if found := mustRead(t, path); found.From != Previous || len(found.Record.Grants) != 2 {
		t.Errorf("%+v", found)
	}
	if err := s.Settle(func() record.Record { t.Error("both are equal, and it is written again"); return of() }); err != nil {
		t.Error(err)
	}
}

// Callers that wait for one disk share a write, which has what each of them changed.
func TestSaveIsShared(t *testing.T) {
	blocked, resume := make(chan struct{}), make(chan struct{})
	var once sync.Once
	path := filepath.Join(t.TempDir(), "record.json")
	s := New(path, func(point string) error {
		if point == "record-after-temporary" {
			once.Do(func() { close(blocked); <-resume })
		}
		return nil
	})
	var mu sync.Mutex
	var ids []string
	taken := 0
	take := func() record.Record {
		mu.Lock()
		defer mu.Unlock()
		taken++
		return of(ids...)
	}
	var all sync.WaitGroup
	save := func(id string) {
		all.Go(func() {
			mu.Lock()
			ids = append(ids, id)
			mu.Unlock()
			if err := s.Save(take); err != nil {
				t.Error(err)
			}
			for _, g := range mustRead(t, path).Record.Grants {
				if g.ID == id {
					return
				}
			}
			t.Errorf("%s is saved and not on the disk", id)
		})
	}
	save("first")
	<-blocked
	for i := range 100 {
		save(fmt.Sprint("k-", i))
	}
	for s.Waiting() < 101 {
		continue
	}
	close(resume)
	all.Wait()
	if taken != 2 {
		t.Errorf("%d writes for 101 callers", taken)
	}
}

// A write that fails loses nothing if the record is on the disk already, and says so.
func TestSaveOfWhatIsOnTheDisk(t *testing.T) {
	_, path := newStore(t, of("a"))
	broken := errors.New("broken")
	s := New(path, func(string) error { return broken })
	if err := s.Save(always(of("a"))); !errors.Is(err, ErrOnDisk) || !errors.Is(err, broken) {
		t.Errorf("the same record: %v", err)
	}
	if err := s.Save(always(of("b"))); errors.Is(err, ErrOnDisk) || !errors.Is(err, broken) {
		t.Errorf("another record: %v", err)
	}
	if n := s.Waiting(); n == 0 {
		t.Error("no caller waits, and nothing was written")
	}
}
