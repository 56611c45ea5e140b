// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/kerf-gpu/kerf/internal/serve"
	"github.com/kerf-gpu/kerf/sharing/audit"
	"github.com/kerf-gpu/kerf/sharing/audit/file"
	"github.com/kerf-gpu/kerf/sharing/config"
)

// auditLog writes n usage entries, one per second of time, and as many others.
func auditLog(t *testing.T, n int) string {
	t.Helper()
	dir := t.TempDir()
	for written := 0; written < n; {
		l, err := file.Open(file.Options{Dir: dir, MaxBytes: 1 << 20, Files: 100, Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		for range min(2000, n-written) { // what the log's queue takes
			at := time.Unix(int64(written), 0)
			l.Write(audit.Entry{Type: audit.Usage, Time: at, Grant: fmt.Sprint("k-", written)})
			l.Write(audit.Entry{Type: audit.Reserve, Time: at, Reason: strings.Repeat("x", 500)})
			written++
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := l.Run(ctx); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// TestUsage asks for what came after a time, while another reader has asked for all of it and takes nothing.
func TestUsage(t *testing.T) {
	const n = 20_000 // some 4 MiB of usage entries, more than the sockets take
	u := newUsageLog(slog.New(slog.DiscardHandler), auditLog(t, n), func() config.Prices { return config.Prices{} })
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	share := serve.NewShare(listenerShares()[5])
	go func() { done <- serve.HTTP(ctx, share.Listen(l, serve.Rules{}), u) }()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	slow, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer slow.Close()
	if err := slow.(*net.TCPConn).SetReadBuffer(4 << 10); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(slow, "GET /usage?since="+time.Unix(-1, 0).UTC().Format(time.RFC3339)+
		" HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if _, err := slow.Read(make([]byte, 1)); err != nil { // it has begun
		t.Fatal(err)
	}
	for since, want := range map[int]int{-1: n, n - 10: 9, n: 0} {
		lines := usageLines(t, l.Addr().String(), since)
		if len(lines) != want+1 || !strings.HasPrefix(lines[0], "{") {
			t.Errorf("since %d: %d lines, want the prices and %d: %.80q", since, len(lines), want, lines)
		}
		for i, line := range lines[1:] {
			if e, err := audit.Parse([]byte(line)); err != nil || e.Grant != fmt.Sprint("k-", n-want+i) {
				t.Fatalf("since %d, line %d: %v: %s", since, i, err, line)
			}
		}
	}
	if now, _ := share.Stats(); now.Requests != 1 || now.Bytes > 1<<20 {
		t.Errorf("the slow reader has %+v", now)
	}
	for _, query := range []string{"", "?since=yesterday"} {
		r, err := http.Get("http://" + l.Addr().String() + "/usage" + query)
		if err != nil {
			t.Fatal(err)
		}
		_ = r.Body.Close()
		if r.StatusCode != http.StatusBadRequest {
			t.Errorf("%q: %d", query, r.StatusCode)
		}
	}
}

func usageLines(t *testing.T, address string, since int) (lines []string) {
	t.Helper()
	r, err := http.Get("http://" + address + "/usage?since=" + time.Unix(int64(since), 0).UTC().Format(time.RFC3339))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	in := bufio.NewScanner(r.Body)
	for in.Scan() {
		lines = append(lines, in.Text())
	}
	if err := in.Err(); err != nil {
		t.Fatal(err)
	}
	return lines
}
