// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package machine_test

import (
	"fmt"
	"strings"
	"testing"
)

// A driver needs memory for itself per context, which is in no process list. It does not count as unattributed memory,
// however many programs there are, and anything above it does.
func TestMemoryOfTheDriverPerContext(t *testing.T) {
	t.Parallel()
	m := newPreloading(t, "")
	m.set("gpu=all", "cost.unlisted=8MiB")
	script := `for i in $(seq 30); do "$0" --json --hold 1h & done; wait`
	r := m.run(flags("--memory 8GiB --gpu-uuid "+m.uuid(0)), []string{"sh", "-c", script, program("gpuload")})
	r.lines(30)
	m.looks(20)
	for _, w := range m.state().Warnings {
		if strings.Contains(w, "unattributed memory") {
			t.Errorf("the driver's own memory is reported: %s", w)
		}
	}
	m.set("gpu=all", "cost.unlisted=1GiB")
	late := m.run(flags("--memory 1GiB --gpu-uuid "+m.uuid(0)), load("--alloc 512MiB --hold 1h"))
	late.loads(1)
	m.wantWarning("GPU 0 has", "of unattributed memory")
}

// Programs that fill all of a GPU's memory meet the driver's own: the last one is refused memory below its cap. A
// memory reserve for the contexts leaves each its whole cap.
func TestMemoryReserveForContexts(t *testing.T) {
	t.Parallel()
	for reserve, refused := range map[string]bool{"": true, ", memoryReserve: 16MiB": false} {
		t.Run("reserve"+strings.TrimPrefix(reserve, ", memoryReserve: "), func(t *testing.T) {
			t.Parallel()
			m := newPreloading(t, reserve)
			m.set("gpu=all", "cost.unlisted=8MiB")
			first, pin := 7*gib, " --gpu-uuid "+m.uuid(0)
			second := m.gpu(0).Memory - m.gpu(0).Reserved - first
			for i, size := range []uint64{first, second} {
				most := size/mib - contextT4/mib
				r := m.run(flags(fmt.Sprintf("--memory %dMiB", size/mib)+pin),
					load(fmt.Sprintf("--alloc %dMiB --step 2MiB --hold 1h", most-most%2)))
				if got := r.loads(1)[0]; (got.err() != "") != (refused && i == 1) {
					t.Errorf("a program with a cap of %d MiB has %d MiB: %q", size/mib, got.Allocated/mib, got.err())
				}
			}
		})
	}
}
