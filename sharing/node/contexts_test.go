// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kerf-gpu/kerf/internal/libkerf"
	"github.com/kerf-gpu/kerf/sharing"
)

// What a context takes is not known until one was seen, and then on all GPUs of its model, and after a restart.
func TestTheSizeOfContextsIsKept(t *testing.T) {
	g := newPreloaded(t, preloading)
	g.bench.opt.ContextsPath = filepath.Join(g.bench.dir, "contexts.json")
	g.restartPreloading()
	p, a := g.share(4)
	if u := g.usage(a); u.Context != libkerf.UnknownContext {
		t.Errorf("before any was seen: %+v", u)
	}
	g.countsWaiting(a, 0, p, 4*sharing.GiB, 4*sharing.GiB)
	g.holds(ProcessUse{PID: p.PID, Used: sharing.GiB / 2, Known: true})
	g.bench.upkeep(t.Context())
	if u := g.usage(a); u.Context != sharing.GiB/2 || u.Overhead != sharing.GiB/2 || u.Used != 0 {
		t.Errorf("at once, for who waits: %+v", u)
	}
	text, err := os.ReadFile(g.bench.opt.ContextsPath)
	if err != nil || !strings.Contains(string(text), "driver "+g.bench.driver.Version()) {
		t.Errorf("%s %v", text, err)
	}
	g.restartPreloading()
	if _, b := g.share(2); g.usage(b).Context != sharing.GiB/2 {
		t.Errorf("after a restart: %+v", g.usage(b))
	}
	if sizes := g.bench.contextSizes(); sizes[g.gpus[1].UUID] != sharing.GiB/2 {
		t.Errorf("of another GPU: %v", sizes)
	}
}

// A file that says nothing is learnt anew, and a region keeps what an agent knew that is gone.
func TestSizesOfContextsThatCannotBeRead(t *testing.T) {
	for name, text := range map[string]string{"damaged": "{", "of another schema": `{"schema": 2, "sizes": {"x": 1}}`, "of another driver": `{"schema": 1, "sizes": {"x, driver 1": 1}}`} {
		t.Run(name, func(t *testing.T) {
			g := newPreloaded(t, preloading)
			_, a := g.share(1)
			open, err := libkerf.Open(g.bench.regionOf(string(a.ID)))
			if err != nil {
				t.Fatal(err)
			}
			defer open.Close()
			if err := open.SetContext(g.gpus[0].UUID, 7*sharing.MiB); err != nil {
				t.Fatal(err)
			}
			g.bench.opt.ContextsPath = filepath.Join(g.bench.dir, "contexts.json")
			if err := os.WriteFile(g.bench.opt.ContextsPath, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			g.restartPreloading()
			g.bench.upkeep(t.Context())
			if u := g.usage(a); u.Context != 7*sharing.MiB {
				t.Errorf("of before: %+v", u)
			}
			if _, b := g.share(1); g.usage(b).Context != libkerf.UnknownContext {
				t.Errorf("of a new one: %+v", g.usage(b))
			}
		})
	}
}
