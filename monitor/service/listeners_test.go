// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package service

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/kerf-gpu/kerf/internal/serve/limit"
)

// TestListenersAreDocumented finds each share in docs/limits.md, with its numbers.
func TestListenersAreDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/limits.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range listenerShares() {
		want := documented(s)
		found := false
		for line := range strings.Lines(string(page)) {
			found = found || strings.HasPrefix(line, "| kerf-monitor | `"+s.Name+"` |") && strings.HasSuffix(strings.TrimSpace(line), want)
		}
		if !found {
			t.Errorf("docs/limits.md has no row of share %s that ends in %q", s.Name, want)
		}
	}
	if want := fmt.Sprintf("%d in kerf-monitor", reservedFiles); !strings.Contains(string(page), want) {
		t.Errorf("docs/limits.md does not say %q", want)
	}
}

// documented are the cells of a share in docs/limits.md.
func documented(s limit.Share) string {
	cell := func(all, peer int64) string {
		if all == 0 {
			return " |"
		}
		return fmt.Sprintf(" %d / %d |", all, peer)
	}
	const mib = 1 << 20
	return "|" + cell(int64(s.Conns), int64(s.PeerConns)) + cell(int64(s.Requests), int64(s.PeerRequests)) +
		cell(int64(s.Streams), int64(s.PeerStreams)) + cell(s.Bytes/mib, s.PeerBytes/mib)
}
