// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package limitspage compares the bounds of a program's listeners with docs/reference/limits.md.
package limitspage

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/kerf-gpu/kerf/internal/serve/limit"
)

// Check fails the test for each share that has no row with its numbers, and if the number of reserved files is missing.
// The path of docs/reference/limits.md is page.
func Check(t *testing.T, page, program string, shares []limit.Share, reservedFiles int) {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range shares {
		begin, end, found := fmt.Sprintf("| %s | %#q |", program, s.Name), cells(s), false
		for line := range strings.Lines(string(text)) {
			found = found || strings.HasPrefix(line, begin) && strings.HasSuffix(strings.TrimSpace(line), end)
		}
		if !found {
			t.Errorf("%s has no row of share %s that ends in %q", page, s.Name, end)
		}
	}
	if want := fmt.Sprintf("%d in %s", reservedFiles, program); !strings.Contains(string(text), want) {
		t.Errorf("%s does not say %q", page, want)
	}
}

// cells are the numbers of a share, as the table has them.
func cells(s limit.Share) string {
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
