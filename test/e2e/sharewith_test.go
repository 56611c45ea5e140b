// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"strings"
	"testing"
)

// inSide takes so much in the container side, while the pod's other container runs.
func (p *pod) inSide(size string) loaded {
	p.e.Helper()
	out, errOut, err := p.exec("side", "/bin/sh", "-c", "gpuload --json --alloc "+size)
	if err != nil && strings.TrimSpace(out) == "" {
		p.e.Fatalf("gpuload in side: %v, %s", err, errOut)
	}
	return decode[loaded](p.e.T, strings.TrimSpace(out))
}

// Two containers of one pod share one cap, the sum of what they asked for: each sees it as the GPU's size and may have
// what the other leaves, over a restart of the agent, and a pod that cannot have that is refused by name.
func TestShareWith(t *testing.T) {
	e := beginWithAgent(t)
	spec := func(name, with string) podSpec {
		return podSpec{
			name: name, annotations: map[string]string{"share-cap-with.kerf.dev/side": with},
			containers: []container{
				{run: "exec gpuload --json --alloc 4GiB --hold 1h", limits: gibs(6)},
				{name: "side", run: hold, limits: gibs(4)},
			},
		}
	}
	p := e.create(spec("pair", "main"))
	p.running()
	if l := p.loads("main", 1)[0]; l.Error != nil || l.Total == nil || *l.Total != 10*gib {
		t.Errorf("4 GiB in the one: %v", l)
	}
	fits := func(when string) {
		t.Helper()
		if l := p.inSide("5GiB"); l.Error != nil || l.Total == nil || *l.Total != 10*gib {
			t.Errorf("%s: 5 GiB in the other, which requested 4: %v", when, l)
		}
		if l := p.inSide("7GiB"); l.Error == nil {
			t.Errorf("%s: 7 GiB and 4 in a cap of 10: %v", when, l)
		}
		m, s := e.grantOf(p, "main"), e.grantOf(p, "side")
		if m.Memory != 6*gib || s.Memory != 4*gib || m.Backend != "libkerf" || s.Backend != "libkerf" ||
			m.Level != "userspace" || s.Level != "userspace" ||
			len(m.Shares) != 1 || len(s.Shares) != 1 || m.Shares[0].GPU != s.Shares[0].GPU ||
			m.ContainerID == s.ContainerID {
			t.Errorf("%s: grants %+v and %+v", when, m, s)
		}
		if !strings.Contains(m.LevelReason, "one cap of 10GiB for the containers main, side") {
			t.Errorf("%s: %q", when, m.LevelReason)
		}
	}
	fits("at first")
	before := e.heldBy(p)
	e.replaceAgent()
	e.wantSame(before, p)
	fits("with another agent")

	misnamed := e.create(spec("no-one", "mian"))
	misnamed.event("share-cap-with.kerf.dev/side", "mian", "is no container of this pod")
	p.delete()
	p.released()
}
