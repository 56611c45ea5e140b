// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/testutil"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/config"
)

// unread are rules that no scheduler uses.
func unread(t *testing.T) *Rules {
	t.Helper()
	r, err := New(func(config.Config) {}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// running are rules that may follow a config until the test ends.
func running(t *testing.T) (*Rules, context.Context) {
	t.Helper()
	r := unread(t)
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(func() { cancel(); r.Wait() })
	return r, ctx
}

// A changed file is taken; one with errors changes nothing.
func TestConfigIsReadAgain(t *testing.T) {
	const doc = "apiVersion: kerf.dev/v1alpha2\nkind: SharingConfig\nspec:\n  profiles:\n  - {name: small, memory: " +
		"%s, gpuCount: 1}\n  pools:\n  - {name: default}\n"
	file := filepath.Join(t.TempDir(), "sharing.yaml")
	write := func(text string) { // at once: half a config is another error
		err := os.WriteFile(file+".new", []byte(text), 0o600)
		if err == nil {
			err = os.Rename(file+".new", file)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	var now atomic.Uint64
	registry := metrics.NewKubeRegistry()
	r, err := New(func(c config.Config) { now.Store(uint64(c.Profiles()[0].Memory)) }, registry.Register)
	if err != nil {
		t.Fatal(err)
	}
	is := func(want sharing.Bytes) bool { return sharing.Bytes(now.Load()) == want }
	// says requires that the applied config, and how many were rejected, can be asked for.
	says := func(text string, refused int) {
		t.Helper()
		want := fmt.Sprintf("# HELP kerf_scheduler_config_errors_total [ALPHA] Configs that were rejected because of "+
			"errors.\n# TYPE kerf_scheduler_config_errors_total counter\nkerf_scheduler_config_errors_total %d\n"+
			"# HELP kerf_scheduler_config_info [ALPHA] 1 for the config of this replica, by its SHA-256. Absent "+
			"without a valid config; the replica then places no GPU pods.\n# TYPE kerf_scheduler_config_info "+
			"gauge\nkerf_scheduler_config_info{sha256=\"%x\"} 1\n",
			refused, sha256.Sum256([]byte(text)))
		if err := testutil.GatherAndCompare(registry, strings.NewReader(want)); err != nil {
			t.Error(err)
		}
	}
	write(fmt.Sprintf(doc, "30GiB"))
	if r.Read(t.Context(), Sources{File: file}); r.Err() != nil || r.refusal != nil || !is(30*sharing.GiB) {
		t.Fatalf("%v, %v, %d", r.Err(), r.refusal, now.Load())
	}
	says(fmt.Sprintf(doc, "30GiB"), 0)
	write("nonsense")
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(func() { cancel(); r.Wait() })
	r.running.Go(func() { r.reread(ctx, file, nil, time.Millisecond, "", func() {}) })
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(time.Millisecond) {
		if n, err := testutil.GetCounterMetricValue(r.shown.errors); err != nil || time.Now().After(deadline) {
			t.Fatalf("%v documents refused, %v", n, err)
		} else if n > 0 {
			break
		}
	}
	says(fmt.Sprintf(doc, "30GiB"), 1) // once, however often it is read
	write(fmt.Sprintf(doc, "10GiB"))
	for deadline := time.Now().Add(30 * time.Second); !is(10 * sharing.GiB); {
		if time.Now().After(deadline) {
			t.Fatal("the new file was not taken")
		}
		time.Sleep(time.Millisecond)
	}
	says(fmt.Sprintf(doc, "10GiB"), 1)
}

// Nothing is placed while there are to be rules and none are known.
func TestRulesAreWanted(t *testing.T) {
	for name, tt := range map[string]struct {
		from Sources
		is   error
	}{
		"a file that is not there":          {Sources{File: "/does/not/exist"}, ErrNone},
		"a configmap that was not read yet": {Sources{ConfigMap: "kerf-system/kerf-config"}, ErrNone},
		"none are wanted":                   {Sources{}, nil},
	} {
		r := unread(t)
		if r.Read(t.Context(), tt.from); !errors.Is(r.Err(), tt.is) {
			t.Errorf("%s: %v", name, r.Err())
		}
	}
}
