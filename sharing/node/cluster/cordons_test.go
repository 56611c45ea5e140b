// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kerf-gpu/kerf/api/gpunode"
	"github.com/kerf-gpu/kerf/internal/kube"
	"github.com/kerf-gpu/kerf/sharing"
)

// TestCordons: the last word of the cluster counts, over a restart and over words that cannot be read.
func TestCordons(t *testing.T) {
	dir := t.TempDir()
	var set []map[sharing.GPUID]string
	warned := ""
	start := func() *cordons {
		c := &cordons{
			log: slog.New(slog.DiscardHandler), dir: dir,
			set:  func(why map[sharing.GPUID]string) { set = append(set, why) },
			rest: func(gpunode.Spec) {},
			warn: func(sentence string) { warned = sentence },
		}
		c.restore()
		return c
	}
	c := start()
	if len(set) != 0 || warned != "" {
		t.Fatalf("nothing was ever said: %v, %q", set, warned)
	}
	c.tell(kube.Spec{Generation: 3, Text: []byte(`{"cordonedGPUs":[{"uuid":"GPU-a","reason":"fan","by":"ops"}]}`)}, nil)
	c.tell(kube.Spec{Generation: 3, Text: []byte(`{"cordonedGPUs":[{"uuid":"GPU-a","reason":"fan","by":"ops"}]}`)}, nil)
	c.tell(kube.Spec{}, sharing.ErrUnavailable)
	if warned == "" {
		t.Error("the silence of the cluster is not reported")
	}
	want := map[sharing.GPUID]string{"GPU-a": "fan (ops)"}
	if d := cmp.Diff([]map[sharing.GPUID]string{want}, set); d != "" {
		t.Error(d)
	}
	if c.applied.Load() != 3 {
		t.Errorf("applied generation %d", c.applied.Load())
	}
	set, warned = nil, ""
	c = start()
	if d := cmp.Diff([]map[sharing.GPUID]string{want}, set); d != "" || warned != "" {
		t.Errorf("after a restart: %s, %q", d, warned)
	}
	c.tell(kube.Spec{Generation: 3, Text: []byte(`{"cordoned":[]}`)}, nil)
	if len(set) != 1 || warned == "" {
		t.Errorf("what cannot be read changes: %v, %q", set, warned)
	}
	c.tell(kube.Spec{Generation: 4}, nil)
	if len(set) != 2 || len(set[1]) != 0 || warned != "" {
		t.Errorf("handed back: %v, %q", set, warned)
	}
	if err := os.WriteFile(filepath.Join(dir, CordonsFile), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if start(); warned == "" {
		t.Error("a damaged file is not said")
	}
}

// TestEarlierCordons: a spec and a file of the earlier release still cordon.
func TestEarlierCordons(t *testing.T) {
	dir := t.TempDir()
	var set map[sharing.GPUID]string
	c := &cordons{log: slog.New(slog.DiscardHandler), dir: dir, warn: func(string) {}, rest: func(gpunode.Spec) {},
		set: func(why map[sharing.GPUID]string) { set = why }}
	want := map[sharing.GPUID]string{"GPU-a": "fan (ops)"}
	earlier := []byte(`{"cordoned":{"GPU-a":{"reason":"fan","by":"ops"}}}`)
	if err := os.WriteFile(filepath.Join(dir, CordonsFile), earlier, 0o600); err != nil {
		t.Fatal(err)
	}
	c.restore()
	if d := cmp.Diff(want, set); d != "" {
		t.Errorf("from the file: %s", d)
	}
	set = nil
	c.tell(kube.Spec{Generation: 1, Text: earlier}, nil)
	if d := cmp.Diff(want, set); d != "" {
		t.Errorf("from the spec: %s", d)
	}
}

// TestDriverDrain: the spec drains the driver, over a restart and while the cluster is silent, until the mark goes.
func TestDriverDrain(t *testing.T) {
	dir, drained := t.TempDir(), "?"
	start := func() *cordons {
		c := &cordons{log: slog.New(slog.DiscardHandler), dir: dir, warn: func(string) {},
			set:  func(map[sharing.GPUID]string) {},
			rest: func(s gpunode.Spec) { drained = drainSentence(s.DriverDrain) }}
		c.restore()
		return c
	}
	want := "the NVIDIA driver is drained: 580 to 590 (ops)"
	start().tell(kube.Spec{Generation: 1,
		Text: []byte(`{"driverDrain":{"reason":"580 to 590","by":"ops","since":""}}`)}, nil)
	if drained != want {
		t.Errorf("the spec says %q", drained)
	}
	drained = "?"
	c := start()
	if drained != want {
		t.Errorf("after a restart %q", drained)
	}
	c.tell(kube.Spec{}, sharing.ErrUnavailable)
	if drained != want {
		t.Errorf("while the cluster is silent %q", drained)
	}
	c.tell(kube.Spec{Generation: 2, Text: []byte(`{}`)}, nil)
	if drained != "" || c.applied.Load() != 2 {
		t.Errorf("after its end %q, generation %d", drained, c.applied.Load())
	}
}
