// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package file

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/audit"
)

// session opens the log, writes n entries, and ends.
func session(t *testing.T, o Options, n int) {
	t.Helper()
	o.Log, o.Node = slog.New(slog.DiscardHandler), "n1"
	l, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	for i := range n {
		l.Write(audit.Entry{Type: audit.Reserve, Time: time.Unix(int64(i), 0), Grant: fmt.Sprint("k-", i)})
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := l.Run(ctx); err != nil {
		t.Fatal(err)
	}
}

func verifyDir(t *testing.T, dir string) (v Verified, whats []string, err error) {
	t.Helper()
	paths, err := Files(dir)
	if err != nil {
		t.Fatal(err)
	}
	v, err = Verify(paths, func(e audit.Entry) {
		if e.Node != "n1" {
			t.Errorf("an entry of node %q", e.Node)
		}
		whats = append(whats, e.Type+": "+e.Reason)
	})
	return v, whats, err
}

func TestAChainOverSessionsAndFiles(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "audit")
	const sessions, each = 5, 20
	for range sessions {
		session(t, Options{Dir: dir, MaxBytes: 4000, Files: 100}, each)
	}
	v, whats, err := verifyDir(t, dir)
	if err != nil || v.First != 1 || v.Entries != sessions*(each+1) || v.Tail.Seq != uint64(v.Entries) || v.Torn {
		t.Errorf("%+v %v", v, err)
	}
	if !strings.Contains(whats[0], "the log begins") || !strings.Contains(whats[each+1], "start: the agent started") {
		t.Errorf("starts: %q, %q", whats[0], whats[each+1])
	}
	paths, _ := Files(dir)
	if len(paths) < 3 {
		t.Errorf("%d files", len(paths))
	}
	for _, p := range paths {
		if info, err := os.Stat(p); err != nil || info.Size() > 4000 || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v %v", p, info, err)
		}
	}
}

func TestOldFilesAreRemoved(t *testing.T) {
	dir := t.TempDir()
	session(t, Options{Dir: dir, MaxBytes: 1000, Files: 3}, 100)
	paths, _ := Files(dir)
	v, _, err := verifyDir(t, dir)
	if err != nil || len(paths) != 3 || v.First < 50 || v.Tail.Seq != 101 {
		t.Errorf("%d files, %+v, %v", len(paths), v, err)
	}
}

// A crash may truncate the last line anywhere. Complete lines stay, and the next start notes what it removed.
func TestATornLineIsRemoved(t *testing.T) {
	dir := t.TempDir()
	session(t, Options{Dir: dir}, 2)
	paths, _ := Files(dir)
	data, err := os.ReadFile(paths[0])
	if err != nil {
		t.Fatal(err)
	}
	last := bytes.LastIndexByte(data[:len(data)-1], '\n') + 1
	for end := last; end < len(data); end += 29 {
		again := t.TempDir()
		if err := os.WriteFile(filepath.Join(again, filepath.Base(paths[0])), data[:end], 0o600); err != nil {
			t.Fatal(err)
		}
		session(t, Options{Dir: again}, 1)
		v, whats, err := verifyDir(t, again)
		if err != nil || v.Entries != 4 {
			t.Fatalf("cut at %d: %+v %v", end, v, err)
		}
		torn := fmt.Sprintf("%d bytes of an incomplete line", end-last)
		if said := strings.Contains(whats[2], torn); said != (end > last) {
			t.Fatalf("cut at %d: the start says %q", end, whats[2])
		}
	}
}

// Evidence is not touched: a log that is not whole is gone on with in a new file, and stays not whole.
func TestADamagedLogIsKept(t *testing.T) {
	for name, damage := range map[string]func([]byte) []byte{
		"a changed line": func(b []byte) []byte { return bytes.Replace(b, []byte("k-3"), []byte("k-x"), 1) },
		"nothing left":   func(b []byte) []byte { return []byte("rubbish\n") },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			session(t, Options{Dir: dir}, 9)
			paths, _ := Files(dir)
			data, err := os.ReadFile(paths[0])
			if err != nil {
				t.Fatal(err)
			}
			bad := damage(data)
			if err := os.WriteFile(paths[0], bad, 0o600); err != nil {
				t.Fatal(err)
			}
			session(t, Options{Dir: dir}, 1)
			session(t, Options{Dir: dir}, 1)
			if now, err := os.ReadFile(paths[0]); err != nil || !bytes.Equal(now, bad) {
				t.Errorf("the damaged file was changed: %v", err)
			}
			_, whats, err := verifyDir(t, dir)
			if !errors.Is(err, sharing.ErrInvalid) || !strings.Contains(strings.Join(whats, "\n"), "is not whole") {
				t.Errorf("%v; %q", err, whats)
			}
			paths, _ = Files(dir)
			if v, err := Verify(paths[1:], nil); len(paths) != 2 || err != nil || v.Entries != 4 {
				t.Errorf("what follows in %d files: %+v %v", len(paths), v, err)
			}
		})
	}
}

func TestTooManyAreCounted(t *testing.T) {
	dir := t.TempDir()
	session(t, Options{Dir: dir}, queue+10)
	_, whats, err := verifyDir(t, dir)
	if err != nil || !strings.Contains(whats[len(whats)-1], "lost: 11 entries") {
		t.Errorf("%v; the last is %q", err, whats[len(whats)-1])
	}
}

func FuzzVerify(f *testing.F) {
	line, _, err := audit.Tail{}.Append(audit.Entry{Type: audit.Start})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(line)
	f.Add(append(line, line...))
	f.Add(line[:len(line)-1])
	f.Add(bytes.Repeat([]byte("x"), 2*audit.MaxLine))
	f.Fuzz(func(t *testing.T, data []byte) {
		path := filepath.Join(t.TempDir(), "audit-1.jsonl")
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		v, err := Verify([]string{path}, nil)
		if err != nil && !errors.Is(err, sharing.ErrInvalid) {
			t.Fatalf("error %v is not ErrInvalid", err)
		}
		if err == nil && v.Entries != bytes.Count(data, []byte("\n")) {
			t.Fatalf("%d entries in %d lines", v.Entries, bytes.Count(data, []byte("\n")))
		}
	})
}
