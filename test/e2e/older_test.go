// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// useDriver puts another version of the driver in place of the one that runs, and another agent that uses it: the
// device files of its container are those of the former one.
func (e *testCase) useDriver(version string) {
	e.Helper()
	e.node.do(e.T, "kill", "gpusim", "KILL")
	if r := command("env", "KERF_E2E_DRIVER="+version, e.node.script, "up"); r.err != nil {
		e.Fatalf("node.sh up: %v", r)
	}
	e.replaceAgent()
}

// A driver that cannot limit memory, with the rules as they are shipped: a library that is preloaded into containers
// holds fractions, at level userspace. Past its cap a program is refused and its neighbour is not; each sees its cap as
// the GPU's size; and the agent and the container runtime may come and go meanwhile.
func TestOlderDriver(t *testing.T) {
	e := beginWithAgent(t)
	t.Cleanup(func() { e.useDriver("r615") })
	e.useDriver("r580")
	client := func(memory uint64) want { return want{1, memory, 0, "userspace"} }

	// Both containers are on one GPU, so that one of them can be in the other's way. The greedy one is refused its
	// second step, whether its context is counted by then or not, and has room left for that of a program that looks
	// around in it.
	p := e.create(podSpec{name: "pair", containers: []container{
		{name: "greedy", run: "exec gpuload --json --alloc 5GiB --step 2560MiB --hold 1h", limits: gibs(4)},
		{name: "neighbour", run: "exec gpuload --json --alloc 8GiB --hold 1h", limits: gibs(10)},
	}})
	p.running()
	l := p.loads("greedy", 1)[0]
	if l.Error == nil || l.Total == nil || *l.Total != 4*gib || l.Allocated != 2560*mib {
		t.Errorf("5 GiB in a container of 4: %v", l)
	}
	if l := p.loads("neighbour", 1)[0]; l.Error != nil || l.Total == nil || *l.Total != 10*gib {
		t.Errorf("its neighbour, 8 GiB of 10: %v", l)
	}
	g := e.wantHeld(p, "greedy", client(4*gib))
	n := e.wantHeld(p, "neighbour", client(10*gib))
	if g.Backend != "libkerf" || n.Backend != "libkerf" {
		t.Errorf("they are held by %q and %q", g.Backend, n.Backend)
	}
	for _, limit := range e.node.limits(t) {
		t.Errorf("a driver that has no limits has %+v", limit)
	}

	e.wantOnlyCountersWritable(p, "greedy")

	before := e.heldBy(p)
	e.replaceAgent()
	e.node.restart(t, "containerd")
	e.wantSame(before, p)
	eventually(e, "the container runtime", func() error {
		_, errOut, err := p.exec("greedy", "/bin/true")
		if err != nil {
			return fmt.Errorf("exec: %w, %s", err, errOut)
		}
		return nil
	})
	e.wantHeld(p, "greedy", client(4*gib))
	out, errOut, err := p.exec("greedy", "/bin/sh", "-c", "gpuload --json --alloc 2GiB")
	if more := decode[loaded](t, strings.TrimSpace(out)); err != nil && errOut != "" || more.Error == nil {
		t.Errorf("2 GiB more in the full container: %q, %v, %s", out, err, errOut)
	}

	// What was held is another's once its container is gone, and nothing of it stays on the node.
	p.delete()
	p.released()
	again := e.create(one("again", gibs(10), "gpuload --json --alloc 9GiB"))
	again.phase("Succeeded")
	again.delete()
	again.released()
	eventually(e, "no region left", func() error {
		if left := e.node.in("ls", "/run/kerf/client"); strings.TrimSpace(left.out) != "" {
			return fmt.Errorf("there is %q", left.out)
		}
		return nil
	})
	// The agent's helper makes its context from within the agent's container.
	eventually(e, "a measured context", func() error {
		if sizes := e.node.in("cat", "/run/kerf/contexts.json"); !strings.Contains(sizes.out, `"driver": "580.`) {
			return fmt.Errorf("%v; the agent says: %s", sizes, e.agentLog(false))
		}
		return nil
	})
}

// writable prints each file below Kerf's mounts in a container that root there can write, create or mount again.
const writable = `grep -E 'kerf|ld[.]so[.]preload' /proc/mounts | cut -d ' ' -f 2 | while read -r m; do
echo "mount $m"
mount -o remount,bind,rw "$m" 2>/dev/null && echo "writable $m, mounted again"
for f in "$m" "$m"/* "$m"/new; do [ -d "$f" ] || [ ! -e "$f" -a ! -d "$m" ] || { (: >>"$f") 2>/dev/null && echo "writable ${f##*/}"; }; done
done | sort -u; echo end`

// wantOnlyCountersWritable checks that of all that Kerf mounts into a container nothing can be written there but the
// counters, which its programs count in and which no enforcement reads.
func (e *testCase) wantOnlyCountersWritable(p *pod, container string) {
	e.Helper()
	out, errOut, err := p.exec(container, "/bin/sh", "-c", writable)
	var got []string
	mounts := 0
	for line := range strings.Lines(out) {
		if file, ok := strings.CutPrefix(strings.TrimSpace(line), "writable "); ok {
			got = append(got, file)
		}
		if strings.HasPrefix(line, "mount ") {
			mounts++
		}
	}
	if err != nil || mounts < 2 || !strings.HasSuffix(out, "end\n") || !slices.Equal(got, []string{"usage"}) {
		e.Errorf("root in the container can write %q of %d mounts, want the counters alone: %v, %s\n%s", got, mounts,
			err, errOut, out)
	}
}
