// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package machine_test

import (
	"path/filepath"
	"strings"
	"testing"
)

// attackContextSizes has a program write false counters, by which a context looks much larger or smaller than it is.
// Programs of another grant make as many contexts as fit, and no more.
func attackContextSizes(t *testing.T) {
	for _, lie := range []string{"large", "small"} {
		t.Run(lie, func(t *testing.T) {
			m := newPooled(t, "h100x8", "r580", "driver, libkerf, reactive", ", onOverCap: warn")
			pin := " --gpu-uuid " + m.uuid(0)
			liar := m.run(flags("--memory 4GiB --name liar"+pin),
				[]string{"sh", "-c", `exec "$0" contexts "$1/$KERF_GRANT" "$2"`, m.attacker(),
					filepath.Join(m.dir, "client"), lie})
			liar.lines(1)
			m.looks(20)
			m.anotherContextFits(pin)
			m.contextsStayWithin(pin)
			if !liar.running() {
				t.Errorf("the attacker ended: %v", liar.wait())
			}
		})
	}
}

// anotherContextFits makes a second context in a grant of 2 GiB whose first process has 700 MiB and a context.
func (m *machine) anotherContextFits(pin string) {
	m.t.Helper()
	gate := filepath.Join(m.t.TempDir(), "gate")
	script :=
		`"$0" --json --alloc 700MiB --hold 1h & until [ -e "$1" ]; do sleep 0.05; done; exec "$0" --json --hold 1h`
	r := m.run(flags("--memory 2GiB --name other"+pin), []string{"sh", "-c", script, program("gpuload"), gate})
	wantLoad(m.t, r.loads(1)[0], "", 700*mib, 700*mib)
	m.looks(10) // the first context is counted
	touch(m.t, gate)
	if second := decode[loaded](m.t, r.lines(2)[1]); second.err() != "" {
		m.t.Errorf("the second context: %s", second.err())
	}
	cgroup := r.granted().Cgroup
	r.end()
	m.endsWith(cgroup)
}

// contextsStayWithin starts eight programs at once under a cap for five contexts and a bit.
func (m *machine) contextsStayWithin(pin string) {
	m.t.Helper()
	m.set("gpu=all", "peak=now")
	before := m.memory().used
	r := m.run(flags("--memory 2600MiB --name many"+pin),
		[]string{"sh", "-c", `for i in 1 2 3 4 5 6 7 8; do "$0" --json --hold 1h & done; wait`, program("gpuload")})
	refused := strings.Count(strings.Join(r.lines(8), "\n"), oom)
	if most := m.memory().peak - before; most != 5*contextH100 || refused != 3 {
		m.t.Errorf("at most %d MiB were held and %d programs refused, want %d and 3", most/mib, refused,
			5*contextH100/mib)
	}
	cgroup := r.granted().Cgroup
	r.end()
	m.endsWith(cgroup)
}
