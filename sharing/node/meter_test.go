// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kerf-gpu/kerf/sharing/audit"
	"github.com/kerf-gpu/kerf/sharing/config"
	"github.com/kerf-gpu/kerf/sharing/usage"
)

// The usage of a pod is written with its owner. A pod that leaves its GPUs idle gets an event and is evicted as the
// pool requires.
func TestTheMeter(t *testing.T) {
	b := newPodBench(t)
	b.opt.Pool.Idle = config.Idle{After: time.Nanosecond, Do: config.IdleEvict, Except: []string{"other"}}
	var mu sync.Mutex
	var log []audit.Entry
	b.opt.Audit = func(e audit.Entry) { mu.Lock(); defer mu.Unlock(); log = append(log, e) }
	b.Runtime = New(b.opt)
	b.Notify.LabelsOf = func(string) map[string]string {
		return map[string]string{"team": "x", "pod-template-hash": "7f"}
	}
	ears := &heard{}
	ears.listen(b.Runtime)
	if err := b.Restore(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.attach()
	c := b.run(b.app("p", "gpu-percent:50"))
	// By hand, so that the clock does not matter: the loop looks every ten seconds.
	m := newMeter(b.Runtime)
	b.driver.times, b.driver.idle = map[int]int{c.p.PID: 25}, true
	tick := func() { t.Helper(); time.Sleep(5 * time.Millisecond); m.Measure(t.Context()) }
	tick()
	tick()
	if told, evicted := ears.count("", "p"); told != 0 || evicted != 0 {
		t.Errorf("a busy one is reported %d times, and evicted %d times", told, evicted)
	}
	b.driver.times = nil // the driver does not tell
	tick()
	tick()
	if told, evicted := ears.count("", "p"); told != 0 || evicted != 0 {
		t.Errorf("an unknown one is reported %d times, and evicted %d times", told, evicted)
	}
	b.driver.times = map[int]int{c.p.PID: 101} // and what it tells says nothing
	tick()
	tick()
	if told, evicted := ears.count("", "p"); told != 0 || evicted != 0 {
		t.Errorf("an unknown one is reported %d times, and evicted %d times", told, evicted)
	}
	b.driver.times = map[int]int{}
	tick()
	tick()
	tick()
	m.Wait()
	if told, evicted := ears.count("p GPUIdle", "p"); told != 1 || evicted != 1 {
		t.Errorf("an idle one is reported %d times, and evicted %d times", told, evicted)
	}
	c.remove()
	b.Reconcile(t.Context())
	b.PodRemoved(c.ask.Ref.PodUID)
	b.Reconcile(t.Context())
	tick()
	mu.Lock()
	defer mu.Unlock()
	var used []usage.Record
	for _, e := range log {
		if e.Type == audit.Usage {
			if used = append(used, e.Usage...); e.Subject == nil || e.Subject.Pod != "p" ||
				len(e.Subject.Labels) != 1 ||
				e.Subject.Labels["team"] != "x" {
				t.Errorf("usage of %+v", e.Subject)
			}
		}
	}
	if len(used) != 1 {
		t.Fatalf("records %+v", used)
	}
	r := used[0]
	if r.Share != 0.5 || r.Seconds <= 0 || r.Known <= 0 || r.Known >= r.Seconds || r.Idle <= 0 || r.Idle >= r.Known ||
		r.Busy <= 0 || r.Joules <= 0 || r.Model == "" {
		t.Errorf("record %+v", r)
	}
}

// An idle pod is reported, gets an event, or gets one and is evicted, as its pool requires. A pod of an exempt
// namespace is not. Each case is in the audit log and in the warnings.
func TestWhatIsDoneAboutIdlePods(t *testing.T) {
	for name, tt := range map[string]struct {
		idle                   config.Idle
		noted, told, evictions int
	}{
		"nothing is said": {config.Idle{}, 0, 0, 0},
		"report":          {config.Idle{After: time.Nanosecond, Do: config.IdleReport}, 1, 0, 0},
		"notify":          {config.Idle{After: time.Nanosecond, Do: config.IdleWarn}, 1, 1, 0},
		// the eviction is noted, too
		"evict": {config.Idle{After: time.Nanosecond, Do: config.IdleEvict}, 2, 1, 1},
		"its namespace is not": {config.Idle{After: time.Nanosecond, Do: config.IdleEvict, Except: []string{"ns"}}, 0,
			0, 0},
		"not long enough": {config.Idle{After: time.Hour, Do: config.IdleEvict}, 0, 0, 0},
		// and the driver has no row
		"its GPU runs": {config.Idle{After: time.Nanosecond, Do: config.IdleEvict}, 0, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			b := newPodBench(t)
			b.opt.Pool.Idle = tt.idle
			var mu sync.Mutex
			noted := 0
			b.opt.Audit = func(e audit.Entry) {
				mu.Lock()
				defer mu.Unlock()
				if e.Type == audit.Idle && e.Subject != nil && e.Subject.Pod == "p" &&
					strings.Contains(e.Reason, "used no GPU time") {
					noted++
				}
			}
			b.Runtime = New(b.opt)
			ears := &heard{}
			ears.listen(b.Runtime)
			if err := b.Restore(t.Context()); err != nil {
				t.Fatal(err)
			}
			b.attach()
			b.run(b.app("p", "gpu-percent:50"))
			b.driver.times, b.driver.idle = map[int]int{}, name != "its GPU runs" // no process has used any time
			m := newMeter(b.Runtime)
			for range 3 {
				time.Sleep(5 * time.Millisecond)
				m.Measure(t.Context())
			}
			m.Wait()
			mu.Lock()
			defer mu.Unlock()
			told, evicted := ears.count("p GPUIdle", "p")
			warned := slices.ContainsFunc(b.State(t.Context()).Warnings,
				func(w string) bool { return strings.Contains(w, "has used no GPU time") })
			if noted != tt.noted || told != tt.told || evicted != tt.evictions || warned != (tt.noted > 0) {
				t.Errorf("%d entries of the log, reported %d times, %d evictions, a warning: %v", noted, told, evicted,
					warned)
			}
		})
	}
}
