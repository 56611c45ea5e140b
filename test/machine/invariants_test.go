// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package machine_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// least is the limit of a grant's cgroup on the GPUs that are not its own.
const least = 2 * mib

// findings are what is wrong in a picture. The parts of a picture are read one after the other, so an attachment
// that begins or ends meanwhile shows in one and not in the other: such things are passing. What no moment
// may show is broken.
type findings struct{ passing, broken []string }

func (f *findings) pass(format string, args ...any) {
	f.passing = append(f.passing, fmt.Sprintf(format, args...))
}

func (f *findings) brk(format string, args ...any) {
	f.broken = append(f.broken, fmt.Sprintf(format, args...))
}

// checkInvariants looks at agent, driver, cgroups and metrics. What is broken fails the test at once; what
// may pass must pass. Driver and agent must be running, and the machine must come to rest.
func checkInvariants(t *testing.T, m *machine) {
	t.Helper()
	eventually(t, "picture without contradictions", func() error {
		f := judge(m.look(), m.driver == "r615" && !m.unlimited)
		if len(f.broken) > 0 {
			t.Fatalf("broken invariants:\n  %s", strings.Join(f.broken, "\n  "))
		}
		if len(f.passing) > 0 {
			return fmt.Errorf("\n  %s", strings.Join(f.passing, "\n  "))
		}
		return nil
	})
}

// judge compares the parts of a picture; limited tells whether the driver can limit memory.
func judge(p picture, limited bool) findings {
	var f findings
	byUUID := map[string]gpu{}
	for _, g := range p.status.GPUs {
		byUUID[g.UUID] = g
	}
	f.ledger(p.status, byUUID)
	f.limits(p, byUUID, limited)
	f.cgroups(p)
	f.use(p, byUUID)
	f.metrics(p)
	return f
}

// ledger: the granted amounts of a GPU never exceed what can be granted, and a whole GPU has one grant. All of it is
// one consistent picture of the agent's, so there is no tolerance.
func (f *findings) ledger(s status, byUUID map[string]gpu) {
	memory, percent, holders, whole := map[string]uint64{}, map[string]uint32{}, map[string]int{}, map[string]bool{}
	lent := map[string]uint64{}
	names, ids := map[string]bool{}, map[string]bool{}
	for _, g := range s.Grants {
		if ids[g.ID] || (g.Name != "" && names[g.Name]) {
			f.brk("two grants with id %q or name %q", g.ID, g.Name)
		}
		ids[g.ID], names[g.Name] = true, true
		var sum uint64
		for _, fr := range g.Shares {
			memory[fr.GPU] += fr.Memory
			lent[fr.GPU] += fr.Burst
			percent[fr.GPU] += fr.Percent
			holders[fr.GPU]++
			whole[fr.GPU] = whole[fr.GPU] || fr.Whole
			sum += fr.Memory
		}
		if sum != g.Memory || len(g.GPUs) != len(g.Shares) {
			f.brk("grant %s: memory %d and GPUs %q do not sum its shares %+v", g.label(), g.Memory, g.GPUs,
				g.Shares)
		}
	}
	for id, got := range memory {
		d, ok := byUUID[id]
		switch {
		case !ok:
			f.brk("a grant is on GPU %s, which is not in the inventory", id)
		case d.Memory == 0 && d.Health != "healthy": // lost when the agent started: only its grants are known
		case got+lent[id] > d.Memory-d.Reserved:
			f.brk("GPU %d: %d bytes granted and %d burst of %d", d.Index, got, lent[id], d.Memory-d.Reserved)
		case d.MIG:
			f.brk("GPU %d is in MIG mode and has grants", d.Index)
		}
		if percent[id] > 100 {
			f.brk("GPU %d: %d%% granted", d.Index, percent[id])
		}
		if whole[id] && holders[id] > 1 {
			f.brk("GPU %d is given whole and has %d holders", d.Index, holders[id])
		}
	}
	for _, d := range s.GPUs {
		if d.Granted != memory[d.UUID] || d.Percent != percent[d.UUID] || d.Burst != lent[d.UUID] {
			f.brk("GPU %d: grantedBytes %d, percent %d and burstBytes %d; its grants sum to %d, %d and %d", d.Index,
				d.Granted, d.Percent, d.Burst, memory[d.UUID], percent[d.UUID], lent[d.UUID])
		}
	}
}

// limits: a grant has exactly its cap in the driver, the least limit everywhere else, and no other process has any.
func (f *findings) limits(p picture, byUUID map[string]gpu, limited bool) {
	got := map[string]map[string]uint64{}
	for _, l := range p.limits {
		if got[l.Cgroup] == nil {
			got[l.Cgroup] = map[string]uint64{}
		}
		if l.Hard == nil || l.Soft != 0 {
			f.brk("driver: %s has a soft limit of %d on GPU %d", l.Cgroup, l.Soft, byUUID[l.GPU].Index)
			continue
		}
		got[l.Cgroup][l.GPU] = *l.Hard
		if l.Used > *l.Hard {
			f.brk("driver: %s uses %d of GPU %d, its limit is %d", l.Cgroup, l.Used, byUUID[l.GPU].Index, *l.Hard)
		}
	}
	for _, g := range p.status.Grants {
		if g.Cgroup == "" {
			continue
		}
		want := map[string]uint64{}
		if limited && (g.Level == "driver" || g.Level == "exclusive") {
			for _, d := range byUUID {
				if !d.MIG && d.Health != "lost" {
					want[d.UUID] = least
				}
			}
			for _, fr := range g.Shares {
				if _, there := want[fr.GPU]; there {
					want[fr.GPU] = fr.Memory + fr.Burst
				}
				if fr.Whole {
					delete(want, fr.GPU)
				}
			}
		}
		if g.Level == "unknown" {
			f.pass("grant %s: level unknown: %s", g.label(), g.LevelReason)
		}
		for id, hard := range want {
			if have, ok := got[g.Cgroup][id]; !ok || have != hard {
				f.pass("grant %s: limit on GPU %d is %d (there: %v), want %d", g.label(), byUUID[id].Index, have, ok,
					hard)
			}
		}
		for id, have := range got[g.Cgroup] {
			// An agent that starts while a GPU is lost does not know it; limits on it stay from before.
			d, known := byUUID[id]
			if _, ok := want[id]; !ok && known && d.Health != "lost" {
				f.pass("grant %s: limit %d on GPU %d, want none", g.label(), have, d.Index)
			}
		}
		delete(got, g.Cgroup)
	}
	for group, on := range got {
		f.pass("driver: %d limits on %s, which is no living grant's", len(on), group)
	}
}

// cgroups: each of ours is a grant's, and each attachment has one.
func (f *findings) cgroups(p picture) {
	ours := slices.Clone(p.cgroups)
	for _, g := range p.status.Grants {
		if g.Cgroup == "" {
			f.pass("grant %s is not activated", g.label())
			continue
		}
		i := slices.Index(ours, g.Cgroup)
		if i < 0 {
			f.pass("grant %s: cgroup %s is not there", g.label(), g.Cgroup)
			continue
		}
		ours = slices.Delete(ours, i, i+1)
		if len(g.PIDs) == 0 {
			f.pass("grant %s has no process", g.label())
		}
	}
	for _, group := range ours {
		f.pass("cgroup %s is no grant's", group)
	}
}

// use: no grant uses more than its cap, or memory of another grant, and the agent's report agrees.
func (f *findings) use(p picture, byUUID map[string]gpu) {
	total := map[string]uint64{}
	within := map[string]map[string]uint64{} // by grant's cgroup and GPU
	for _, pr := range p.processes {
		id := pr.GPU
		if _, known := byUUID[id]; !known && pr.Bytes > 0 {
			f.pass("process %d holds %d bytes of GPU %s, which the agent does not know", pr.PID, pr.Bytes, id)
			continue
		}
		total[id] += pr.Bytes
		for _, g := range p.status.Grants {
			if pr.Cgroup != g.Cgroup && !strings.HasPrefix(pr.Cgroup, g.Cgroup+"/") || g.Cgroup == "" {
				continue
			}
			if within[g.Cgroup] == nil {
				within[g.Cgroup] = map[string]uint64{}
			}
			within[g.Cgroup][id] += pr.Bytes
			if !slices.Contains(g.PIDs, pr.PID) {
				f.pass("grant %s: process %d of it on GPU %d is not among its pids %v", g.label(), pr.PID,
					byUUID[id].Index, g.PIDs)
			}
		}
	}
	for _, d := range p.status.GPUs {
		if d.Used == nil && d.Memory > 0 && d.Health == "healthy" {
			f.pass("GPU %d: use not known", d.Index)
		} else if d.Used != nil && !d.MIG && *d.Used != total[d.UUID] {
			f.pass("GPU %d: used_bytes %d, the driver's processes have %d", d.Index, *d.Used, total[d.UUID])
		}
	}
	for _, g := range p.status.Grants {
		f.useOf(g, p.status.Warnings, within[g.Cgroup], byUUID)
	}
}

func (f *findings) useOf(g grant, warnings []string, within map[string]uint64, byUUID map[string]gpu) {
	own := map[string]bool{}
	for _, fr := range g.Shares {
		own[fr.GPU] = true
		d := byUUID[fr.GPU]
		got := within[fr.GPU]
		switch {
		case got <= fr.Memory+fr.Burst || g.Level == "none":
		case g.Whole && d.Memory == 0:
			// The memory is unknown, and the grant has the GPU alone.
		case g.Level == "reactive":
			// The level is reactive: Kerf reports what exceeds the cap, and then follows the pool's policy.
			if !slices.ContainsFunc(warnings,
				func(w string) bool { return strings.Contains(w, "grant "+g.ID+" holds more") }) {
				f.pass("grant %s uses %d of GPU %d, its cap is %d, and no warning tells it", g.label(), got, d.Index,
					fr.Memory)
			}
		default:
			f.brk("grant %s uses %d of GPU %d, its cap is %d", g.label(), got, d.Index, fr.Memory)
		}
		switch {
		case fr.Used == nil && d.Health == "healthy":
			f.pass("grant %s: use of GPU %d not known", g.label(), d.Index)
		case fr.Used != nil && *fr.Used != got:
			f.pass("grant %s: used_bytes %d on GPU %d, the driver has %d", g.label(), *fr.Used, d.Index, got)
		}
	}
	for id, got := range within {
		if !own[id] && got > 0 {
			f.brk("grant %s uses %d of GPU %d, which is not its own", g.label(), got, byUUID[id].Index)
		}
	}
}

// metrics: the exposition has the caps that status implies.
func (f *findings) metrics(p picture) {
	left := map[[2]string]bool{}
	for k := range p.caps {
		left[k] = true
	}
	for _, g := range p.status.Grants {
		for _, fr := range g.Shares {
			k := [2]string{g.label(), fr.GPU}
			got, ok := p.caps[k]
			capped := g.Backend != "none" && g.Cgroup != "" && !fr.Whole && fr.MIG == ""
			if ok != capped || ok && got != fr.Memory+fr.Burst {
				f.pass("metrics: the cap of grant %s on GPU %s is %d (exposed: %v), status says otherwise", g.label(),
					fr.GPU, got, ok)
			}
			delete(left, k)
		}
	}
	for k := range left {
		f.pass("metrics: cap of %q on %q, which is no living grant's", k[0], k[1])
	}
}
