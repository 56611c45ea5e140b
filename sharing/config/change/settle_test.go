// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package change_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/config"
	"github.com/kerf-gpu/kerf/sharing/config/change"
)

func TestSettle(t *testing.T) {
	t.Parallel()
	pool := config.Pool{
		PowerLimitWatts: 300, MaxSharesPerGPU: 4,
		GPURules: []config.GPURule{{Indexes: []int{1}, Settings: config.GPUSettings{Excluded: true}},
			{Indexes: []int{2}, Settings: config.GPUSettings{Mode: config.ModeWhole, MemoryReserve: sharing.GiB,
				Overcommit: sharing.Overcommit{Memory: 125, Compute: 200}}}},
	}
	use := func(index int, now *config.GPUSettings, users ...string) change.Use {
		return change.Use{GPU: sharing.GPU{UUID: sharing.GPUID(fmt.Sprint("GPU-", index)), Index: index}, Now: now,
			Users: users}
	}
	plain := config.GPUSettings{}
	got := change.Settle(pool, []change.Use{use(2, &plain, "ns/a"), use(0, &plain), use(1, nil, "ns/b", "ns/c"),
		use(3, nil)})
	want := change.Plan{
		Next: map[sharing.GPUID]config.GPUSettings{"GPU-0": {PowerLimitWatts: 300}, "GPU-1": {PowerLimitWatts: 300},
			"GPU-2": {}, "GPU-3": {PowerLimitWatts: 300}},
		Now: []change.Step{{GPU: "GPU-0", Index: 0, What: []string{"powerLimitWatts as it is -> 300W"}}},
		Pending: []change.Step{
			{GPU: "GPU-1", Index: 1, What: []string{"excluded false -> true"}, For: []string{"ns/b", "ns/c"}},
			{GPU: "GPU-2", Index: 2, What: []string{"memoryReserve 0B -> 1GiB", "overcommit.memory 1 -> 1.25",
				"overcommit.compute 1 -> 2", "powerLimitWatts as it is -> 300W"}, For: []string{"ns/a"}},
		},
	}
	if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(change.Step{}, "Has")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	// A GPU with pending settings reports them, and reports what is before when it is asked again.
	has := map[string]string{"memoryReserve": "0B", "overcommit.memory": "1", "overcommit.compute": "1",
		"powerLimitWatts": "as it is"}
	if diff := cmp.Diff(has, got.Pending[1].Has); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	is := pool.Of(sharing.GPU{Index: 2})
	again := change.Settle(pool, []change.Use{{GPU: sharing.GPU{UUID: "GPU-2", Index: 2}, Now: &is,
		Has: map[string]string{"powerLimitWatts": "200W", "memoryReserve": "1GiB"}, Users: []string{"ns/a"}}})
	if diff := cmp.Diff([]string{"powerLimitWatts 200W -> 300W"}, again.Pending[0].What); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// The backend of a GPU's shares does not change while the GPU is in use, and both ways are reported in the config's
// words.
func TestSettleBackends(t *testing.T) {
	t.Parallel()
	own := config.GPUSettings{Backends: config.BackendListOf(sharing.BackendDriver, sharing.BackendMPS,
		sharing.BackendReactive), MinLevel: sharing.LevelUserspace}
	pool := config.Pool{
		Backends: []sharing.Backend{sharing.BackendDriver, sharing.BackendReactive}, MinLevel: sharing.LevelReactive,
		GPURules: []config.GPURule{{Indexes: []int{0, 1}, Settings: own}},
	}
	use := func(index int, now config.GPUSettings, users ...string) change.Use {
		return change.Use{GPU: sharing.GPU{UUID: sharing.GPUID(fmt.Sprint("GPU-", index)), Index: index}, Now: &now,
			Users: users}
	}
	got := change.Settle(pool, []change.Use{use(0, config.GPUSettings{}), use(1, config.GPUSettings{}, "ns/a"),
		use(2, own, "ns/b"), use(3, config.GPUSettings{}, "ns/c")})
	there := []string{"backends of profile and pool -> [driver, mps, reactive]",
		"minEnforcement of the pool -> userspace"}
	want := change.Plan{
		Next: map[sharing.GPUID]config.GPUSettings{"GPU-0": own, "GPU-1": {}, "GPU-2": own, "GPU-3": {}},
		Now:  []change.Step{{GPU: "GPU-0", Index: 0, What: there}},
		Pending: []change.Step{
			{GPU: "GPU-1", Index: 1, What: there, For: []string{"ns/a"}},
			{GPU: "GPU-2", Index: 2, What: []string{"backends [driver, mps, reactive] -> of profile and pool",
				"minEnforcement userspace -> of the pool"}, For: []string{"ns/b"}},
		},
	}
	if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(change.Step{}, "Has")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Configs follow each other in any order, and grants come and go. A GPU in use keeps what it has. Once all is idle
// everything is as the newest config says, as if it had been the only one.
func TestSettleRandom(t *testing.T) {
	t.Parallel()
	rnd := rand.New(rand.NewPCG(7, 8))
	pool := func() config.Pool {
		// #nosec G115 -- small
		p := config.Pool{PowerLimitWatts: 100 * rnd.IntN(3), TimeSlice: sharing.TimeSlice(rnd.IntN(3))}
		for i := range 3 {
			s := config.GPUSettings{
				Excluded: rnd.IntN(3) == 0, MemoryReserve: sharing.Bytes(rnd.IntN(2)) * sharing.GiB,
				// #nosec G115 -- small
				Backends: []config.BackendList{"", "driver,mps", "driver,libkerf"}[rnd.IntN(3)],
				MinLevel: sharing.Level(rnd.IntN(3)),
			}
			if rnd.IntN(2) == 0 {
				p.GPURules = append(p.GPURules, config.GPURule{Indexes: []int{i}, Settings: s})
			}
		}
		return p
	}
	for range 300 {
		now := map[sharing.GPUID]config.GPUSettings{}
		last := pool()
		for step := range 20 {
			var uses []change.Use
			for i := range 3 {
				u := change.Use{GPU: sharing.GPU{UUID: sharing.GPUID(fmt.Sprint("GPU-", i)), Index: i}}
				if s, ok := now[u.GPU.UUID]; ok {
					u.Now = &s
				}
				if step < 19 && rnd.IntN(2) == 0 && (u.Now == nil || !u.Now.Excluded) {
					u.Users = []string{"ns/a"}
				}
				uses = append(uses, u)
			}
			if rnd.IntN(2) == 0 {
				last = pool()
			}
			p := change.Settle(last, uses)
			for _, u := range uses {
				next := p.Next[u.GPU.UUID]
				if u.Now != nil && len(u.Users) > 0 && next != *u.Now {
					t.Fatalf("a GPU in use changes from %+v to %+v", *u.Now, next)
				}
				if want := last.Of(u.GPU); len(u.Users) == 0 && next != want {
					t.Fatalf("an idle GPU has %+v, want %+v", next, want)
				}
			}
			if again := change.Settle(last, uses); cmp.Diff(p, again) != "" {
				t.Fatal("the same input gives another plan")
			}
			now = p.Next
			if step == 19 && len(p.Pending) > 0 {
				t.Fatalf("the GPU is idle, and %v waits", p.Pending)
			}
		}
	}
}

func TestDesired(t *testing.T) {
	t.Parallel()
	old := config.GPUSettings{Backends: config.BackendListOf(sharing.BackendDriver, sharing.BackendMPS),
		MinLevel: sharing.LevelUserspace, MemoryReserve: sharing.GiB}
	wanted := config.GPUSettings{Backends: config.BackendListOf(sharing.BackendDriver), MemoryReserve: 2 * sharing.GiB}
	half := wanted
	half.Backends, half.MinLevel = old.Backends, old.MinLevel
	out := config.GPUSettings{Excluded: true}
	steps := []string{"backends [driver, mps] -> [driver]", "minEnforcement userspace -> of the pool",
		"memoryReserve 1GiB -> 2GiB"}
	for name, tt := range map[string]struct {
		has     *config.GPUSettings
		users   []string
		unknown bool // there may be other users
		gone    bool // the driver does not show the GPU
		pool    config.GPUSettings
		want    *config.GPUSettings
		waits   []string
	}{
		"an idle GPU gets all at once": {has: &old, pool: wanted, want: &wanted},
		"a GPU in use keeps all": {has: &old, users: []string{"ns/a", "ns/b"}, pool: wanted,
			want: &old, waits: steps},
		"a new GPU gets all": {pool: wanted, want: &wanted},
		"a new GPU in use is not left to others": {users: []string{"ns/a"}, pool: out,
			want: &config.GPUSettings{}, waits: []string{"excluded false -> true"}},
		"an idle GPU is left to others":               {has: &old, pool: out, want: &out},
		"a GPU that may be in use keeps its backends": {has: &old, unknown: true, pool: wanted, want: &half},
		"a GPU that is gone, and idle, is forgotten":  {has: &old, gone: true, pool: wanted},
		"a GPU that is gone, and in use, keeps all": {has: &old, users: []string{"ns/a"}, gone: true, pool: wanted,
			want: &old},
		"a GPU that is gone may be in use, and does so": {has: &old, unknown: true, gone: true, pool: wanted,
			want: &old},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := sharing.GPU{UUID: "GPU-3", Index: 3}
			var gpus []sharing.GPU
			if !tt.gone {
				gpus = append(gpus, g)
			}
			has := map[sharing.GPUID]config.GPUSettings{}
			if tt.has != nil {
				has[g.UUID] = *tt.has
			}
			pool := config.Pool{GPURules: []config.GPURule{{Indexes: []int{3}, Settings: tt.pool}}}
			users := change.Users{Of: map[sharing.GPUID][]string{g.UUID: tt.users}, Known: !tt.unknown}
			got := change.Desired(pool, gpus, has, users)
			next, there := got.Next[g.UUID]
			if there != (tt.want != nil) || there && next != *tt.want {
				t.Errorf("it gets %+v (%t), want %+v", next, there, tt.want)
			}
			if len(tt.waits) == 0 && len(got.Pending) > 0 {
				t.Fatalf("waits: %+v", got.Pending)
			}
			if len(tt.waits) > 0 && (len(got.Pending) != 1 || cmp.Diff(tt.waits, got.Pending[0].What) != "" ||
				cmp.Diff(tt.users, got.Pending[0].For) != "") {
				t.Errorf("waits: %+v, want %q for %q", got.Pending, tt.waits, tt.users)
			}
			if len(has) > 0 && has[g.UUID] != *tt.has {
				t.Errorf("the argument has changed: %+v", has)
			}
		})
	}
}
