// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"sync"
	"testing"
	"time"

	"github.com/kerf-gpu/kerf/sharing/audit"
	"github.com/kerf-gpu/kerf/sharing/config"
	"github.com/kerf-gpu/kerf/sharing/usage"
)

// What a pod uses is written with whose it is, and one that leaves its GPUs idle is told of and evicted as the pool says.
func TestTheMeter(t *testing.T) {
	b := newPodBench(t)
	b.opt.Pool.Idle = config.Idle{After: time.Nanosecond, Do: config.IdleEvict, Except: []string{"other"}}
	var mu sync.Mutex
	var log []audit.Entry
	b.opt.Audit = func(e audit.Entry) { mu.Lock(); defer mu.Unlock(); log = append(log, e) }
	b.Runtime = New(b.opt)
	b.PodLabels(func(string) map[string]string {
		return map[string]string{"team": "x", "pod-template-hash": "7f"}
	})
	ears := &heard{}
	ears.listen(b.Runtime)
	if err := b.Restore(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.attach()
	c := b.run(b.app("p", "gpu-percent:50"))
	// By hand, so that the clock does not matter: the loop looks every ten seconds.
	m := newMeter(b.Runtime)
	b.driver.times = map[int]int{c.p.PID: 25}
	tick := func() { t.Helper(); time.Sleep(5 * time.Millisecond); m.tick(t.Context()) }
	tick()
	tick()
	if told, evicted := ears.count("", "p"); told != 0 || evicted != 0 {
		t.Errorf("one who works is told of %d times, and evicted %d times", told, evicted)
	}
	b.driver.times = nil // the driver does not tell
	tick()
	tick()
	if told, evicted := ears.count("", "p"); told != 0 || evicted != 0 {
		t.Errorf("one of whom nothing is known is told of %d times, and evicted %d times", told, evicted)
	}
	b.driver.times = map[int]int{}
	tick()
	tick()
	tick()
	if err := m.ends.Wait(); err != nil {
		t.Fatal(err)
	}
	if told, evicted := ears.count("p GPUIdle", "p"); told != 1 || evicted != 1 {
		t.Errorf("one who is idle is told of %d times, and evicted %d times", told, evicted)
	}
	c.remove()
	b.Reconcile(t.Context())
	b.PodGone(c.ask.Ref.PodUID)
	b.Reconcile(t.Context())
	tick()
	mu.Lock()
	defer mu.Unlock()
	var used []usage.Record
	for _, e := range log {
		if e.What == audit.Usage {
			if used = append(used, e.Usage...); e.Who == nil || e.Who.Pod != "p" || len(e.Who.Labels) != 1 || e.Who.Labels["team"] != "x" {
				t.Errorf("usage of %+v", e.Who)
			}
		}
	}
	if len(used) != 1 {
		t.Fatalf("records %+v", used)
	}
	r := used[0]
	if r.Share != 0.5 || r.Seconds <= 0 || r.Known <= 0 || r.Known >= r.Seconds || r.Idle <= 0 || r.Idle >= r.Known || r.Busy <= 0 || r.Joules <= 0 || r.Model == "" {
		t.Errorf("record %+v", r)
	}
}
