// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package service

import (
	"testing"

	"github.com/kerf-gpu/kerf/test/limitspage"
)

// TestListenersAreDocumented finds each share in docs/reference/limits.md, with its numbers.
func TestListenersAreDocumented(t *testing.T) {
	limitspage.Check(t, "../../docs/reference/limits.md", "kerf-monitor", listenerShares(), reservedFiles)
}
