// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package machine_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/backend/libkerf/contextsize"
)

// contextSizes are the sizes that the agent has measured.
func (m *machine) contextSizes() (map[contextsize.Kind]sharing.Bytes, error) {
	data, err := os.ReadFile(filepath.Join(m.dir, "contexts.json"))
	if err != nil {
		return nil, err
	}
	return contextsize.Decode(data)
}

// measured waits until the agent has measured a context.
func (m *machine) measured() map[contextsize.Kind]sharing.Bytes {
	m.t.Helper()
	var sizes map[contextsize.Kind]sharing.Bytes
	eventually(m.t, "a measured context", func() (err error) {
		sizes, err = m.contextSizes()
		return err
	})
	return sizes
}

// contextHelpers are the processes of the agent that make a context.
func (m *machine) contextHelpers() (pids []string) {
	m.t.Helper()
	found, _ := filepath.Glob("/proc/[0-9]*/cmdline") // the pattern is well formed
	for _, file := range found {
		line, err := os.ReadFile(file)
		if err == nil && strings.Contains(string(line), "\x00hold-context\x00") &&
			strings.Contains(string(line), m.sim) {
			pids = append(pids, filepath.Base(filepath.Dir(file)))
		}
	}
	return pids
}

// The agent measures a context of each model on an idle GPU, and takes its own helper for no unmanaged process.
func TestContextsAreMeasured(t *testing.T) {
	t.Parallel()
	for _, driver := range []string{"r580", "r615"} {
		t.Run(driver, func(t *testing.T) {
			t.Parallel()
			m := newPooled(t, "mixed", driver, "driver, libkerf, reactive", ", onUnmanagedProcess: kill")
			sizes := m.measured()
			eventually(t, "all models", func() error {
				kinds := map[string]bool{}
				for _, g := range m.state().GPUs {
					if !g.MIG {
						kinds[g.Model] = true
					}
				}
				if sizes = m.measured(); len(sizes) != len(kinds) {
					return fmt.Errorf("%v of %v", sizes, kinds)
				}
				return nil
			})
			for kind, size := range sizes {
				if size > contextsize.Bound(kind.Model) || size < 100*sharing.MiB {
					t.Errorf("%s: %s", kind, size)
				}
			}
			if n := m.watched().kills["unmanaged"]; n != 0 || len(m.contextHelpers()) != 0 {
				t.Errorf("%d helpers were killed as unmanaged, %v run", n, m.contextHelpers())
			}
			checkInvariants(t, m)
		})
	}
}

// A grant ends the helper on its GPU at once, and gets the whole GPU.
func TestAGrantEndsTheContextHelper(t *testing.T) {
	t.Parallel()
	m := newPreloading(t, "")
	m.set("gpu=all", "latency.ctx-create=1h")
	eventually(t, "a helper", func() error {
		if len(m.contextHelpers()) == 0 {
			return fmt.Errorf("none runs")
		}
		return nil
	})
	for i := range 4 { // the helper is on one of them
		r := m.run(flags("--gpus 1 --gpu-uuid "+m.uuid(i)), load("--alloc 14GiB --hold 1h"))
		r.granted()
		m.set(fmt.Sprintf("gpu=%d", i), "latency.ctx-create=0") // only now, or the helper would get its context first
		wantLoad(t, r.loads(1)[0], "", 14*gib, 15*gib)
	}
	if all := m.contextHelpers(); len(all) != 0 {
		t.Errorf("helpers %v run with grants", all)
	}
	if sizes, err := m.contextSizes(); err == nil {
		t.Errorf("measured all the same: %v", sizes)
	}
	checkInvariants(t, m)
}

// If no context can be made, the agent says so once, and the bound counts. It measures when one can be made.
func TestContextsThatCannotBeMade(t *testing.T) {
	t.Parallel()
	m := newPreloading(t, "")
	m.set("gpu=all", "error.ctx-create=out-of-memory")
	eventually(t, "the reason", func() error {
		if n := strings.Count(m.agent.stderr(), "failed to measure a context"); n != 1 ||
			!strings.Contains(m.agent.stderr(), "cuDevicePrimaryCtxRetain: CUDA error 2") {
			return fmt.Errorf("said %d times", n)
		}
		return nil
	})
	m.set("gpu=all", "error.ctx-create=none")
	r := m.run(flags("--memory 1GiB"), load("--alloc 512MiB --hold 1h"))
	wantLoad(t, r.loads(1)[0], "", 512*mib, gib)
	r.end()
	m.noGrants()
	m.restartAgent()
	for _, size := range m.measured() {
		if uint64(size) != contextT4 {
			t.Errorf("measured %s", size)
		}
	}
}
