// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/kerf-gpu/kerf/internal/libkerf"
)

// A grant whose programs ask for functions that libkerf does not know has a warning until it ends. Its level stays.
func TestFunctionsThatLibkerfDoesNotKnow(t *testing.T) {
	const rejectedAt = 8 // the second word of the usage file
	g := newPreloaded(t, preloading)
	p, a := g.share(4)
	warned := func() bool {
		return slices.ContainsFunc(g.bench.State(t.Context()).Warnings, func(w string) bool {
			return strings.Contains(w, string(a.ID)) && strings.Contains(w, "libkerf rejects their calls")
		})
	}
	g.bench.upkeep(t.Context())
	if warned() {
		t.Error("a warning before a program asked")
	}
	usage, err := os.OpenFile(filepath.Join(g.bench.regionOf(string(a.ID)), libkerf.UsageFileName), os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer usage.Close()
	if _, err := usage.WriteAt(binary.LittleEndian.AppendUint64(nil, 1), rejectedAt); err != nil {
		t.Fatal(err)
	}
	g.bench.upkeep(t.Context())
	if !warned() {
		t.Errorf("no warning: %q", g.bench.State(t.Context()).Warnings)
	}
	if s := g.shown(); s.Level.String() != "userspace" {
		t.Errorf("level %v: %q", s.Level, s.LevelReason)
	}
	p.end()
	g.bench.Reconcile(t.Context())
	if warned() {
		t.Error("a warning after the grant has ended")
	}
}
