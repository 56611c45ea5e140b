// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"testing"

	"github.com/kerf-gpu/kerf/test/policies"
)

// What the admission policies let pass, and what they refuse with which words, is tried one by one.
func TestPolicies(t *testing.T) {
	t.Parallel()
	e := begin(t)
	ctx, cancel := context.WithTimeout(background(), *patience)
	defer cancel()
	n, err := policies.Run(ctx, e.config)
	if err != nil {
		t.Error(err)
	}
	t.Logf("%d trials", n)
}
