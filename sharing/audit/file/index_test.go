// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package file

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kerf-gpu/kerf/sharing/audit"
)

// written writes entries and ends. Of every four, one is a usage entry; entry i has the time i.
func written(t *testing.T, dir string, from, to int, maxBytes int64) {
	t.Helper()
	l, err := Open(Options{Dir: dir, MaxBytes: maxBytes, Files: 1000, Node: "n1", Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for i := from; i < to; i++ {
		e := audit.Entry{Type: audit.Reserve, Time: time.Unix(int64(i), 0), Grant: fmt.Sprint("k-", i),
			Reason: strings.Repeat("x", 100)}
		if i%4 == 0 {
			e.Type = audit.Usage
		}
		l.Write(e)
		if i%queue == queue-2 || i == to-1 {
			if err := l.Run(ctx); err != nil {
				t.Fatal(err)
			}
			if l, err = Open(Options{Dir: dir, MaxBytes: maxBytes, Files: 1000, Node: "n1",
				Log: slog.New(slog.DiscardHandler)}); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// found are the grants of the entries that the index has since then.
func found(t *testing.T, x *Index, since int) (grants []string, bytes int64) {
	t.Helper()
	blocks, err := x.Since(time.Unix(int64(since), 0))
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range blocks {
		bytes += b.to - b.from
		if err := b.Read(time.Unix(int64(since), 0), func(line []byte) {
			e, err := audit.Parse(line)
			if err != nil || e.Type != audit.Usage {
				t.Errorf("%v: %s", err, line)
			}
			grants = append(grants, e.Grant)
		}); err != nil {
			t.Fatal(err)
		}
	}
	return grants, bytes
}

func sizeOf(t *testing.T, dir string) (sum int64) {
	t.Helper()
	paths, err := Files(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range paths {
		info, err := os.Stat(p)
		if err != nil {
			t.Fatal(err)
		}
		sum += info.Size()
	}
	return sum
}

// Each question finds the entries after its time, in order, and reads no more of the log than has them: the log as a
// whole is read once, and what is added to it once.
func TestIndexReadsTheLogOnce(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "audit")
	const n = 3000
	written(t, dir, 0, n, 300_000)
	x := NewIndex(dir, audit.Usage)
	want := func(since, to int) (all []string) {
		for i := range to {
			if i%4 == 0 && i > since {
				all = append(all, fmt.Sprint("k-", i))
			}
		}
		return all
	}
	for _, since := range []int{-1, 0, 1, 1000, 2990, n, n + 100} {
		got, read := found(t, x, since)
		if !slices.Equal(got, want(since, n)) {
			t.Errorf("since %d: %d entries %.3q, want %d", since, len(got), got, len(want(since, n)))
		}
		if since >= 2990 && read > 3*blockSize {
			t.Errorf("since %d: %d bytes are read", since, read)
		}
	}
	if size := sizeOf(t, dir); x.scanned > size {
		t.Errorf("%d bytes were scanned of a log of %d", x.scanned, size)
	}
	before := x.scanned
	written(t, dir, n, n+100, 300_000)
	if got, _ := found(t, x, n); !slices.Equal(got, want(n, n+100)) {
		t.Errorf("of what was added: %.5q", got)
	}
	if more := x.scanned - before; more > 100_000 || more == 0 {
		t.Errorf("%d bytes were scanned for 100 entries", more)
	}
}

// A line whose sum is wrong, one that is too long and one without an end are left out; a file that is rotated away has
// none.
func TestIndexOfADamagedLog(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "audit")
	written(t, dir, 0, 40, 4000)
	paths, err := Files(dir)
	if err != nil || len(paths) < 3 {
		t.Fatal(paths, err)
	}
	x := NewIndex(dir, audit.Usage)
	whole, _ := found(t, x, -1)
	data, err := os.ReadFile(paths[0])
	if err != nil {
		t.Fatal(err)
	}
	changed := strings.Replace(string(data), whole[0], "k-x", 1)
	if err := os.WriteFile(paths[0], []byte(changed), 0o600); err != nil {
		t.Fatal(err)
	}
	last, err := os.OpenFile(paths[len(paths)-1], os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer last.Close()
	usage := `{"seq":99,"time":"2026-01-01T00:00:00Z","type":"usage"`
	if _, err := last.WriteString(usage + strings.Repeat("y", 2*audit.MaxLine) + "\n" + usage); err != nil {
		t.Fatal(err)
	}
	if got, _ := found(t, x, -1); !slices.Equal(got, whole[1:]) {
		t.Errorf("%q, want %q", got, whole[1:])
	}
	blocks, err := x.Since(time.Unix(-1, 0))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(paths[1]); err != nil {
		t.Fatal(err)
	}
	for _, b := range blocks {
		if err := b.Read(time.Time{}, func([]byte) {}); err != nil {
			t.Error(err)
		}
	}
	got, _ := found(t, x, -1)
	if len(got) >= len(whole)-1 || len(x.files) != len(paths)-1 {
		t.Errorf("%d entries of %d files after a file was removed", len(got), len(x.files))
	}
}

// TestIndexOfTheEarlierForm reads a file in which an agent of the release before wrote each line.
func TestIndexOfTheEarlierForm(t *testing.T) {
	dir := t.TempDir()
	written(t, dir, 0, 20, 1<<20)
	want, _ := found(t, NewIndex(dir, audit.Usage), -1)
	paths, err := Files(dir)
	if err != nil || len(paths) != 1 || len(want) != 5 {
		t.Fatal(paths, want, err)
	}
	data, err := os.ReadFile(paths[0])
	if err != nil {
		t.Fatal(err)
	}
	var earlier []byte
	for line := range bytes.Lines(data) {
		body, _, _ := bytes.Cut(line, []byte(`,"sum":`))
		body = bytes.Replace(body, []byte(`,"type":`), []byte(`,"what":`), 1)
		earlier = fmt.Appendf(earlier, "%s,\"sum\":\"%x\"}\n", body, sha256.Sum256(append(bytes.Clone(body), '}')))
	}
	if err := os.WriteFile(paths[0], earlier, 0o600); err != nil {
		t.Fatal(err)
	}
	if got, _ := found(t, NewIndex(dir, audit.Usage), -1); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
