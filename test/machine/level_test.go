// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package machine_test

import (
	"debug/elf"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// The library of an older driver really lacks the symbols of memory limits.
func TestOldDriverHasNoLimitSymbols(t *testing.T) {
	t.Parallel()
	for driver, want := range map[string]bool{"r580": false, "r615": true} {
		t.Run(driver, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t, setup{hardware: "t4x4", driver: driver, noAgent: true})
			f, err := elf.Open(m.sim + "/lib/libnvidia-ml.so.1")
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			symbols, err := f.DynamicSymbols()
			if err != nil {
				t.Fatal(err)
			}
			for _, name := range []string{"nvmlDeviceSetMemoryLimits_v1", "nvmlDeviceGetMemoryLimits_v1"} {
				has := slices.ContainsFunc(symbols, func(s elf.Symbol) bool {
					return s.Name == name &&
						s.Section != elf.SHN_UNDEF
				})
				if has != want {
					t.Errorf("%s: there is %v, want %v", name, has, want)
				}
			}
		})
	}
}

// Without configuration and without limits in the driver, libkerf rejects what is above the cap. Kerf says so, and a
// demand for more is refused with what there is and what helps.
func TestOldDriverIsEnforcedByDefault(t *testing.T) {
	t.Parallel()
	m := newMachine(t, setup{driver: "r580"})
	for _, g := range m.state().GPUs {
		if !slices.Equal(g.Levels, []string{"exclusive", "userspace"}) {
			t.Errorf("GPU %d offers levels %q", g.Index, g.Levels)
		}
	}
	r := m.run(flags("--memory 4GiB --name capped"), load("--alloc 8GiB --step 256MiB --hold 1h"))
	got := r.loads(1)[0]
	wantLoad(t, got, oom, 4*gib-contextH100-256*mib, 4*gib)
	if got.Total == nil || *got.Total != 4*gib {
		t.Errorf("a capped program sees %v, want its cap as the GPU's size", got)
	}
	if s := r.granted(); s.Level != "userspace" || s.Backend != "libkerf" ||
		!strings.Contains(s.LevelReason, "install NVIDIA driver r615") {
		t.Errorf("status file: level %q by %q, reason %q", s.Level, s.Backend, s.LevelReason)
	}
	if g := m.grant("capped"); g.Level != "userspace" || g.Used == nil || *g.Used > g.Memory {
		t.Errorf("status: %+v", g)
	}
	if limits := m.limits(); len(limits) != 0 {
		t.Errorf("limits on a driver that has none: %+v", limits)
	}
	for _, demand := range []string{"--memory 4GiB --min-enforcement driver", "--percent 50 --min-enforcement driver",
		"--memory 8GiB --gpus 2 --min-enforcement driver"} {
		if said := m.refused(flags(demand)); !strings.Contains(said, "level userspace at most, driver required") ||
			!strings.Contains(said, "install NVIDIA driver r615") {
			t.Errorf("%q: refused without levels or remedy: %s", demand, said)
		}
	}
	whole := m.run(flags("--gpus 1 --min-enforcement exclusive"), load("--alloc 70GiB --hold 1h"))
	wantLoad(t, whole.loads(1)[0], "", 70*gib, 70*gib)
	if s := whole.granted(); s.Level != "exclusive" {
		t.Errorf("a whole GPU has level %q", s.Level)
	}
	checkInvariants(t, m)
}

// An agent that has no libkerf.so watches shares instead and kills what is above its cap. It says why.
func TestAgentWithoutTheLibrary(t *testing.T) {
	t.Parallel()
	m := newMachine(t, setup{hardware: "t4x4", driver: "r580", noAgent: true})
	m.agentProgram = filepath.Join(m.work, "kerf-agent")
	if err := copyProgram(program("kerf-agent"), m.agentProgram); err != nil {
		t.Fatal(err)
	}
	m.startAgent()
	m.ready()
	m.wantWarning("GPU 0, 1, 2, 3: shares have level reactive only", "libkerf.so does not exist",
		"put libkerf.so next to kerf-agent")
	r := m.run(flags("--memory 2GiB"), load("--alloc 3GiB --hold 1h"))
	wantKilled(t, r)
	if s := r.granted(); s.Level != "reactive" || s.Backend != "reactive" ||
		!strings.Contains(s.LevelReason, "libkerf.so does not exist") {
		t.Errorf("status file: level %q by %q, reason %q", s.Level, s.Backend, s.LevelReason)
	}
	m.noGrants()
	checkInvariants(t, m)
}

// Where no backend works, nothing is granted unless the config allows level none and the process asks for it. Then
// nothing is called enforced: the level is none, and it is said why. A grant outlives the config that allowed it, and
// the agent.
func TestUnenforcedGrantsAreAskedFor(t *testing.T) {
	t.Parallel()
	m := newMachine(t, setup{driver: "r580", noAgent: true})
	bare := func(more string) string {
		return head + "spec:\n  pools:\n  - {name: default, backends: [driver]" + more + "}\n"
	}
	m.agentFlags = []string{"--config", m.write(bare(""))}
	m.startAgent()
	m.ready()
	for _, level := range []string{"", " --min-enforcement none"} {
		said := m.refused(flags("--memory 4GiB" + level))
		for _, part := range []string{"no backend enforces shares", "driver: ", "libkerf: not listed in backends",
			"reactive: not listed in backends", "set minEnforcement: none on the pool"} {
			if !strings.Contains(said, part) {
				t.Errorf("%q is missing in: %s", part, said)
			}
		}
	}
	m.wantWarning("shares are rejected", "set minEnforcement: none on the pool")
	m.rewrite(bare(", minEnforcement: none"))
	if said := m.refused(flags("--memory 4GiB")); !strings.Contains(said, "level none") ||
		!strings.Contains(said, "add --min-enforcement none") {
		t.Errorf("refused without the remedy: %s", said)
	}
	r := m.run(flags("--memory 4GiB --name open --min-enforcement none"), load("--alloc 8GiB --hold 1h"))
	got := r.loads(1)[0]
	wantLoad(t, got, "", 8*gib, 8*gib)
	if got.Total == nil || *got.Total < 79*gib {
		t.Errorf("an uncapped program sees %v, want the GPU's size", got)
	}
	if s := r.granted(); s.Level != "none" || s.LevelReason == "" {
		t.Errorf("status file: level %q, reason %q", s.Level, s.LevelReason)
	}
	if !strings.Contains(r.stderr(), "not enforced") {
		t.Errorf("no warning on stderr: %q", r.stderr())
	}
	for _, demand := range []string{"--memory 4GiB --min-enforcement driver", "--percent 50 --min-enforcement driver",
		"--memory 8GiB --gpus 2 --min-enforcement driver"} {
		if said := m.refused(flags(demand)); !strings.Contains(said, "level none at most, driver required") ||
			!strings.Contains(said, "install NVIDIA driver r615") {
			t.Errorf("%q: refused without levels or remedy: %s", demand, said)
		}
	}
	m.rewrite(head + "spec:\n  pools:\n  - {name: default}\n") // libkerf enforces new grants
	for _, restart := range []bool{false, true} {
		if restart {
			m.restartAgent()
		}
		if g := m.grant("open"); g.Level != "none" || g.LevelReason == "" || g.Memory != 4*gib || g.Used == nil ||
			*g.Used <= g.Memory || !r.running() {
			t.Errorf("restarted: %t: status does not show an uncapped grant over its size: %+v", restart, g)
		}
	}
	if s := m.run(flags("--memory 4GiB --min-enforcement none"), hold()).granted(); s.Level != "userspace" {
		t.Errorf("where libkerf works, level none was requested and %q given", s.Level)
	}
	checkInvariants(t, m)
}

// A whole GPU has one holder.
func TestWholeGPUsAreExclusive(t *testing.T) {
	t.Parallel()
	for _, driver := range []string{"r580", "r615"} {
		t.Run(driver, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t, setup{hardware: "t4x4", driver: driver})
			two := m.run(flags("--gpus 2 --name two"), load("--alloc 14GiB --gpu 1 --hold 1h"))
			wantLoad(t, two.loads(1)[0], "", 14*gib, 14*gib)
			held := two.granted().GPUs
			if len(held) != 2 || held[0] == held[1] {
				t.Fatalf("two GPUs asked, got %q", held)
			}
			for _, demand := range []string{"--memory 1GiB --gpu-uuid " + held[0], "--gpus 1 --gpu-uuid " + held[1],
				"--gpus 3"} {
				if said := m.refused(flags(demand)); !strings.Contains(said, "in use") &&
					!strings.Contains(said, "free of") {
					t.Errorf("%q: refused without the numbers: %s", demand, said)
				}
			}
			share := m.run(flags("--memory 1GiB --placement-policy spread"), hold()).granted().GPUs[0]
			if slices.Contains(held, share) {
				t.Errorf("a share of GPU %s, which is held whole", share)
			}
			m.refused(flags("--gpus 2")) // one of the other two is shared now
			m.run(flags("--gpus 1"), hold()).granted()
			checkInvariants(t, m)
		})
	}
}

// On a mixed machine a request gets what it names, and a GPU in MIG mode is never chosen.
func TestMixedMachine(t *testing.T) {
	t.Parallel()
	m := newMachine(t, setup{hardware: "mixed"})
	index := map[string]int{}
	mig := -1
	for _, g := range m.state().GPUs {
		index[g.UUID] = g.Index
		if g.MIG {
			mig = g.Index
		}
	}
	if len(index) != 4 || mig != 1 {
		t.Fatalf("GPUs %v, MIG mode on %d", index, mig)
	}
	tests := map[string]struct {
		flags string
		args  []string
		want  []int // allowed indexes
		err   string
	}{
		"model":              {flags: "--memory 4GiB --gpu-model *T4*", want: []int{2, 3}},
		"not model":          {flags: "--memory 4GiB --gpu-model !*T4*", want: []int{0}},
		"two globs":          {flags: "--memory 4GiB --gpu-model *H100* --gpu-model !*T4*", want: []int{0}},
		"uuid":               {flags: "--memory 4GiB --gpu-uuid " + m.uuid(3), want: []int{3}},
		"only the H100 fits": {flags: "--memory 40GiB", want: []int{0}},
		"whole T4s":          {flags: "--gpus 2 --gpu-model *T4*", want: []int{2, 3}},
		"whole H100s":        {flags: "--gpus 2 --gpu-model *H100*", err: "MIG mode"},
		"MIG by uuid":        {flags: "--memory 1GiB --gpu-uuid " + m.uuid(mig), err: "MIG mode"},
		"no such model":      {flags: "--memory 1GiB --gpu-model *A100*", err: "model"},
		"no such uuid":       {flags: "--memory 1GiB --gpu-uuid GPU-00000000-0000-0000-0000-000000000000", err: "UUID"},
		"more than there is": {flags: "--memory 90GiB", err: "90GiB"},
		"four GPUs":          {flags: "--gpus 4", err: "3"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			m := m.in(t)
			if tt.err != "" {
				if said := m.refused(flags(tt.flags)); !strings.Contains(said, tt.err) {
					t.Errorf("refused with %q, want %q in it", said, tt.err)
				}
				return
			}
			r := m.run(flags(tt.flags), hold())
			for _, id := range r.granted().GPUs {
				if !slices.Contains(tt.want, index[id]) {
					t.Errorf("got GPU %d, want one of %v", index[id], tt.want)
				}
			}
			checkInvariants(t, m)
			r.end()
			m.noGrants()
		})
	}
	// Everything that can be had, until nothing is left: the GPU in MIG mode is not part of it.
	for range 3 {
		m.run(flags("--gpus 1"), hold()).granted()
	}
	m.refused(flags("--gpus 1"))
	m.refused(flags("--memory 64MiB"))
	checkInvariants(t, m)
}

// A request over n GPUs is divided evenly, and each part is capped.
func TestFragmentsOverSeveralGPUs(t *testing.T) {
	t.Parallel()
	m := newMachine(t, setup{hardware: "t4x4"})
	for _, device := range []string{"0", "1"} {
		r := m.run(flags("--memory 8GiB --gpus 2"), load("--alloc 6GiB --step 128MiB --hold 1h --gpu "+device))
		wantLoad(t, r.loads(1)[0], oom, 4*gib-contextT4-128*mib, 4*gib-contextT4)
		g := m.grant(r.granted().ID)
		if len(g.Shares) != 2 || g.Shares[0].Memory != 4*gib || g.Shares[1].Memory != 4*gib ||
			g.GPUs[0] == g.GPUs[1] {
			t.Errorf("8 GiB over two GPUs: %+v", g.Shares)
		}
	}
	r := m.run(flags("--memory 2GiB --gpus 2"), load("--alloc 512MiB --gpu 2"))
	if got := r.wait(); got.code != 9 {
		t.Errorf("a third GPU of two: %v", got)
	}
	if said := m.refused(flags("--memory 9GiB --gpus 4 --percent 50")); !strings.Contains(said, "--percent") ||
		!strings.Contains(said, "evenly") {
		t.Errorf("a percentage that does not divide: %s", said)
	}
	checkInvariants(t, m)
}

// Percent alone is that share of memory and compute.
func TestPercentAlone(t *testing.T) {
	t.Parallel()
	m := newMachine(t, setup{hardware: "t4x4"})
	d := m.gpu(2)
	pin := " --gpu-uuid " + d.UUID
	half := m.run(flags("--percent 50"+pin), hold())
	s := half.granted()
	if usable := d.Memory - d.Reserved; s.Percent != 50 || s.MemoryBytes > usable/2 || s.MemoryBytes < usable/2-mib {
		t.Errorf("half of %d bytes is %d bytes and %d%%", usable, s.MemoryBytes, s.Percent)
	}
	m.run(flags("--percent 50"+pin), hold()).granted()
	if said := m.refused(flags("--percent 1" + pin)); !strings.Contains(said, "free") {
		t.Errorf("a third share is refused without the numbers: %s", said)
	}
	checkInvariants(t, m)
	half.end()
	eventually(t, "end of the first half", func() error {
		if len(m.state().Grants) != 1 {
			return errors.New("two grants")
		}
		return nil
	})
	if s := m.run(flags("--memory 1GiB --percent 30"+pin), hold()).granted(); s.Percent != 30 || s.MemoryBytes != gib {
		t.Errorf("memory and percent: %+v", s)
	}
	checkInvariants(t, m)
}

// Pack fills a GPU up before it opens another; spread prefers empty ones.
func TestPackAndSpread(t *testing.T) {
	t.Parallel()
	m := newMachine(t, setup{hardware: "t4x4"})
	used := func(place string) map[string]int {
		got := map[string]int{}
		for range 4 {
			r := m.run(flags("--memory 3GiB --placement-policy "+place), hold())
			got[r.granted().GPUs[0]]++
			t.Cleanup(r.end)
			defer r.end()
		}
		checkInvariants(t, m)
		return got
	}
	if got := used("pack"); len(got) != 1 {
		t.Errorf("pack: four times 3 GiB are on %d GPUs of 15 GiB: %v", len(got), got)
	}
	m.noGrants()
	if got := used("spread"); len(got) != 4 {
		t.Errorf("spread: four grants are on %d GPUs: %v", len(got), got)
	}
}
