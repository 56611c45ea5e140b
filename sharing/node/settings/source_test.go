// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package settings

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/kerf-gpu/kerf/sharing/audit"
	"github.com/kerf-gpu/kerf/sharing/config"
	"github.com/kerf-gpu/kerf/sharing/config/change"
	"github.com/kerf-gpu/kerf/sharing/node"
	"github.com/kerf-gpu/kerf/sharing/node/options"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// counts are the configs that were applied and rejected.
type counts struct{ applied, refused atomic.Int64 }

func (c *counts) ConfigApplied() { c.applied.Add(1) }
func (c *counts) ConfigRefused() { c.refused.Add(1) }

// built is the source of a node with the built-in configuration and no driver.
func built(t *testing.T, file string) (*Source, *bytes.Buffer) {
	t.Helper()
	var text bytes.Buffer
	dir, log := t.TempDir(), slog.New(slog.NewTextHandler(&text, nil))
	pool, err := config.Default().PoolFor(nil)
	if err != nil {
		t.Fatal(err)
	}
	r := node.New(node.Options{
		Host: node.Host{BootID: "boot"}, Log: log, RecordPath: filepath.Join(dir, "record.json"),
		Config: config.Default(), Pool: pool,
		NewID: func() string { return "id" },
		Audit: func(e audit.Entry) { fmt.Fprintf(&text, "audit %s: %s, error %q\n", e.Type, e.Reason, e.Error) },
	})
	opt := &options.Options{Dirs: options.Dirs{Dir: dir}, Source: options.ConfigSource{File: file}}
	return NewSource(Deps{Log: log, Options: opt, Runtime: r, Events: &counts{}, State: dir}), &text
}

const (
	goodConfig = "apiVersion: kerf.dev/v1alpha2\nkind: SharingConfig\nspec:\n  pools:\n  - name: one\n"
	otherGood  = "apiVersion: kerf.dev/v1alpha2\nkind: SharingConfig\nspec:\n  pools:\n  - name: two\n"
	badConfig  = "apiVersion: kerf.dev/v1alpha2\nkind: SharingConfig\nspec:\n  pools:\n  - name: one\n    colour: " +
		"red\n    placementPolicy: sideways\n"
)

// load does what following the config does once it has settled; it returns the hash of what it found.
func load(a *Source, seen string) string {
	if seen == "" {
		return a.First()
	}
	var s change.Settling
	s.Seen(seen)
	c := a.fileCandidate()
	s.Add(time.Now(), c)
	good, bad, _ := s.Due(time.Now().Add(time.Second))
	if good != nil {
		a.useConfig(*good)
	}
	if bad != nil {
		a.refuseConfig(*bad, false)
	}
	return c.Hash
}

func TestConfigLifeCycle(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config.yaml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	pool := func(a *Source) string { return a.Runtime.State(t.Context()).Pool }
	blocked := func(a *Source) bool {
		return strings.Contains(strings.Join(a.Runtime.NotReady(), "\n"), "config has errors")
	}

	write(badConfig)
	a, log := built(t, file)
	seen := load(a, "")
	if !blocked(a) {
		t.Error("a bad first config left the agent ready with an unwanted default")
	}
	for _, mistake := range []string{"colour", "sideways"} {
		if !strings.Contains(log.String(), mistake) {
			t.Errorf("the log does not name %q:\n%s", mistake, log)
		}
	}
	write(goodConfig)
	if seen = load(a, seen); blocked(a) || pool(a) != "one" {
		t.Errorf("after the config was corrected: pool %q, not ready %q", pool(a), a.Runtime.NotReady())
	}
	for _, entry := range []string{"audit config: a newer config is rejected, error \"", "audit config: pool one of " +
		file + ", sha256 " + seen + ", error \"\""} {
		if !strings.Contains(log.String(), entry) {
			t.Errorf("the audit log does not have %q:\n%s", entry, log.String())
		}
	}
	write(badConfig)
	seen = load(a, seen)
	s := a.Runtime.State(t.Context())
	if blocked(a) || s.Pool != "one" || len(s.ConfigErrors) < 2 || len(s.Warnings) == 0 {
		t.Errorf("a bad edit: pool %q, errors %q, warnings %q", s.Pool, s.ConfigErrors, s.Warnings)
	}
	if again := load(a, seen); again != seen {
		t.Error("a config that did not change was read as new")
	}
	// An agent that starts while the config is bad goes on with the last good one.
	b, _ := built(t, file)
	b.Options.Dirs.Dir, b.State = a.Options.Dirs.Dir, a.State
	load(b, "")
	if blocked(b) || pool(b) != "one" {
		t.Errorf("restart on a bad document: pool %q, not ready %q", pool(b), b.Runtime.NotReady())
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	seen = load(a, seen)
	write(otherGood)
	if load(a, seen); pool(a) != "two" {
		t.Errorf("pool %q after a removed document came back", pool(a))
	}
}
