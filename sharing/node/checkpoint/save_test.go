// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package checkpoint

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/node/record"
)

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
	if err := s.Settle(func() ([]byte, error) {
		t.Error("both are equal, and it is written again")
		return record.Encode(of())
	}); err != nil {
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
	take := func() ([]byte, error) {
		mu.Lock()
		defer mu.Unlock()
		taken++
		return record.Encode(of(ids...))
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
