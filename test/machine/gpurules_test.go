// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package machine_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// Different GPUs of one machine differ by their pool's rules. A change reaches idle GPUs at once, and the others when
// their users have ended. The agent names these users meanwhile, also after a restart.
func TestGPURules(t *testing.T) {
	t.Parallel()
	pool := func(rules ...string) string {
		return head + "spec:\n  pools:\n  - name: default\n    gpuRules:\n    - " + strings.Join(rules, "\n    - ") +
			"\n"
	}
	m := newMachine(t, setup{hardware: "t4x4", noAgent: true})
	m.agentFlags = []string{"--config", m.write(pool("{index: [0], maxSharesPerGPU: 1}", "{index: [1], mode: whole}",
		"{index: [2, 3], excluded: true}"))}
	m.startAgent()
	m.ready()
	m.wantRules([]int{0, 1}, nil)
	r := m.run(flags("--name first --memory 4GiB"), hold())
	if got := r.granted().GPUs; !slices.Equal(got, []string{m.state().GPUs[0].UUID}) {
		t.Errorf("a fraction is on %v", got)
	}
	if said := m.refused(flags("--memory 1GiB")); !strings.Contains(said, "shared by 1 already") ||
		!strings.Contains(said, "gives whole alone") {
		t.Errorf("one sharer too many: %s", said)
	}
	reserved := m.state().GPUs[0].Reserved
	m.write(pool("{index: [0], excluded: true}", "{index: [1], memoryReserve: 2GiB, powerLimitWatts: 50}",
		"{index: [2], powerLimitWatts: 40}"))
	waits := func() error {
		w := m.state().Config.Waiting
		if len(w) != 1 || w[0].Index != 0 || !slices.Equal(w[0].What, []string{"excluded false -> true"}) ||
			len(w[0].For) != 1 {
			return fmt.Errorf("waiting: %+v", w)
		}
		return nil
	}
	eventually(t, "GPU 0 waits", waits)
	m.wantRules([]int{0, 1, 2, 3}, map[int]uint64{0: 70, 1: 50, 2: 40, 3: 70})
	eventually(t, "the reserve", func() error {
		if s := m.state(); s.GPUs[1].Reserved != reserved+2*gib || s.GPUs[0].Reserved != reserved {
			return fmt.Errorf("GPUs %+v", s.GPUs)
		}
		return nil
	})
	m.restartAgent()
	eventually(t, "GPU 0 waits after a restart", waits)
	if said := m.refused(flags("--gpus 4")); !strings.Contains(said, "left to others") {
		t.Errorf("all GPUs: %s", said)
	}
	r.end()
	m.wantRules([]int{1, 2, 3}, nil)
	m.write(pool("{index: [0], powerLimitWatts: 5}"))
	m.wantRules([]int{0, 1, 2, 3}, map[int]uint64{1: 70, 2: 70, 3: 70})
	eventually(t, "the refused power limit is reported", func() error {
		if all := strings.Join(m.state().Warnings, "\n"); !strings.Contains(all, "takes 18 to 70 watts") {
			return errors.New(all)
		}
		return nil
	})
}

// A memory reserve and an overcommit ratio change while a grant runs on another GPU: the agent goes on with the driver
// as it is, and is ready all the time.
func TestReserveChangesInPlace(t *testing.T) {
	t.Parallel()
	pool := func(rules string) string {
		return head + "spec:\n  pools: [{name: default, gpuRules: [" + rules + "]}]\n"
	}
	m := newMachine(t, setup{hardware: "t4x4", noAgent: true})
	m.agentFlags = []string{"--config", m.write(pool(""))}
	m.startAgent()
	m.ready()
	before := m.state()
	r := m.run(flags("--name first --memory 4GiB --gpu-uuid "+before.GPUs[0].UUID), hold())
	granted := r.granted()
	for i, rules := range []string{
		"{index: [0, 1], memoryReserve: 2GiB}", "{index: [1], memoryReserve: 3GiB, overcommit: {compute: 2}}", "",
	} {
		m.write(pool(rules))
		reserve := []uint64{2 * gib, 3 * gib, 0}[i]
		eventually(t, fmt.Sprintf("a reserve of %d bytes", reserve), func() error {
			s := m.state()
			if !s.Ready || len(s.Grants) != 1 || s.Grants[0].Level != granted.Level {
				t.Fatalf("ready %v, grants %+v", s.Ready, s.Grants)
			}
			if s.GPUs[0].Reserved != before.GPUs[0].Reserved || s.GPUs[1].Reserved != before.GPUs[1].Reserved+reserve {
				return fmt.Errorf("GPUs %+v", s.GPUs)
			}
			return nil
		})
		if i == 1 {
			if said := m.refused(flags("--memory 13GiB --gpu-uuid " + before.GPUs[1].UUID)); !strings.Contains(said,
				"no GPU that the request names has 13GiB") {
				t.Errorf("more than the GPU has without the reserve: %s", said)
			}
		}
	}
	if log := m.agent.stderr(); strings.Count(log, `msg="connected to driver"`) != 1 ||
		strings.Contains(log, "started a new inventory of GPUs") {
		t.Errorf("the driver was opened again:\n%s", tail(log))
	}
	r.end()
	checkInvariants(t, m)
}

// Each GPU of a machine is held as its own rule says, at once: one by MPS, one by the preloaded library, one by the
// watch, and one that nothing here holds as strongly as it must be gives no share. Rules that change wait for who is on
// the GPU, whom status names, also after a restart; who comes meanwhile is held as those are who are there.
func TestBackendsOfGPUs(t *testing.T) {
	t.Parallel()
	const (
		mps     = "backends: [driver, mps, reactive], minEnforcement: userspace"
		library = "backends: [driver, libkerf, reactive], minEnforcement: userspace"
	)
	rules := func(zero, one string) string {
		return ", gpuRules: [{index: [0], " + zero + "}, {index: [1], " + one +
			"}, {index: [2], minEnforcement: driver}]"
	}
	m := newMPSOn(t, "t4x4", "r580", "driver, reactive", rules(mps, library))
	m.offersClient(0)
	on := func(gpu int, name, want string) *run {
		t.Helper()
		r := m.run(flags("--memory 1GiB --name "+name+" --gpu-uuid "+m.uuid(gpu)), hold())
		if got := r.granted(); got.Backend != want {
			t.Errorf("%s, on GPU %d, is held by %q (%s), want %s", name, gpu, got.Backend, got.LevelReason, want)
		}
		return r
	}
	greedy := load("--alloc 6GiB --step 256MiB --hold 1h")
	first := m.run(flags("--memory 4GiB --name first --gpu-uuid "+m.uuid(0)), greedy)
	second := m.run(flags("--memory 4GiB --name second --gpu-uuid "+m.uuid(1)), greedy)
	for r, want := range map[*run]string{first: "mps", second: "libkerf"} {
		if got := r.loads(1)[0]; got.Error == nil || *got.Error != oom || got.Allocated > 4*gib {
			t.Errorf("held by %s it has %+v, want no more than 4 GiB", want, got)
		}
		if got := r.granted(); got.Backend != want || got.Level != "userspace" {
			t.Errorf("held by %q at level %q (%s), want %s", got.Backend, got.Level, got.LevelReason, want)
		}
	}
	if said := m.refused(flags("--memory 1GiB --gpu-uuid " + m.uuid(2))); !strings.Contains(said,
		"its pool's rules demand driver") {
		t.Errorf("a share of GPU 2: %s", said)
	}
	on(3, "watched", "reactive")

	m.write(head + "spec:\n  pools:\n  - {name: default, backends: [driver, reactive]" + rules(library, mps) + "}\n")
	waits := func(gpus ...int) {
		t.Helper()
		eventually(t, fmt.Sprintf("GPUs %v wait", gpus), func() error {
			var got []int
			w := m.state().Config.Waiting
			for _, one := range w {
				if got = append(got, one.Index); len(one.For) == 0 || len(one.What) != 1 ||
					!strings.HasPrefix(one.What[0], "backends [driver, ") {
					return fmt.Errorf("waiting: %+v", w)
				}
			}
			if !slices.Equal(got, gpus) {
				return fmt.Errorf("waiting: %+v", w)
			}
			return nil
		})
	}
	waits(0, 1)
	beside := on(0, "neighbor", "mps")
	m.restartAgent()
	waits(0, 1)
	m.offersClient(0)
	also := on(0, "also-neighbor", "mps")
	for _, r := range []*run{first, beside, also} {
		r.end()
	}
	waits(1)
	on(0, "later", "libkerf")
	checkInvariants(t, m)
}

// wantRules waits until the machine shows these GPUs, and until the driver holds GPUs to so many watts.
func (m *machine) wantRules(shown []int, watts map[int]uint64) {
	m.t.Helper()
	eventually(m.t, fmt.Sprintf("GPUs %v and limits %v", shown, watts), func() error {
		s := m.state()
		var got []int
		for _, g := range s.GPUs {
			got = append(got, g.Index)
		}
		if !slices.Equal(got, shown) || !s.Ready {
			return fmt.Errorf("ready %v, GPUs %v", s.Ready, got)
		}
		return m.watts(watts)
	})
}

// watts is an error where the driver holds a GPU to another limit.
func (m *machine) watts(want map[int]uint64) error {
	m.t.Helper()
	for i, g := range decode[[]struct {
		MW uint64 `json:"power_limit_mw"`
	}](m.t, m.gpusim("gpus", "-o", "json").out) {
		if w, ok := want[i]; ok && g.MW != w*1000 {
			return fmt.Errorf("GPU %d is held to %d mW", i, g.MW)
		}
	}
	return nil
}
