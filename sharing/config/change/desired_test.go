// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package change_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/config"
	"github.com/kerf-gpu/kerf/sharing/config/change"
)

func TestDesired(t *testing.T) {
	t.Parallel()
	old := config.GPUSettings{Backends: config.BackendListOf(sharing.BackendDriver, sharing.BackendMPS), MinLevel: sharing.LevelClient, MemoryReserve: sharing.GiB}
	wanted := config.GPUSettings{Backends: config.BackendListOf(sharing.BackendDriver), MemoryReserve: 2 * sharing.GiB}
	half := wanted
	half.Backends, half.MinLevel = old.Backends, old.MinLevel
	out := config.GPUSettings{Exclude: true}
	steps := []string{"backends [driver, mps] -> [driver]", "minEnforcement client -> of the pool", "memoryReserve 1GiB -> 2GiB"}
	for name, tt := range map[string]struct {
		has     *config.GPUSettings
		users   []string
		unknown bool // there may be other users
		gone    bool // the driver does not show the GPU
		pool    config.GPUSettings
		want    *config.GPUSettings
		waits   []string
	}{
		"an idle GPU gets all at once":                  {has: &old, pool: wanted, want: &wanted},
		"a GPU in use keeps all":                        {has: &old, users: []string{"ns/a", "ns/b"}, pool: wanted, want: &old, waits: steps},
		"a new GPU gets all":                            {pool: wanted, want: &wanted},
		"a new GPU in use is not left to others":        {users: []string{"ns/a"}, pool: out, want: &config.GPUSettings{}, waits: []string{"exclude false -> true"}},
		"an idle GPU is left to others":                 {has: &old, pool: out, want: &out},
		"a GPU that may be in use keeps its backends":   {has: &old, unknown: true, pool: wanted, want: &half},
		"a GPU that is gone, and idle, is forgotten":    {has: &old, gone: true, pool: wanted},
		"a GPU that is gone, and in use, keeps all":     {has: &old, users: []string{"ns/a"}, gone: true, pool: wanted, want: &old},
		"a GPU that is gone may be in use, and does so": {has: &old, unknown: true, gone: true, pool: wanted, want: &old},
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
			pool := config.Pool{GPUs: []config.GPURule{{Indexes: []int{3}, Settings: tt.pool}}}
			users := change.Users{Of: map[sharing.GPUID][]string{g.UUID: tt.users}, Known: !tt.unknown}
			got := change.Desired(pool, gpus, has, users)
			next, there := got.Next[g.UUID]
			if there != (tt.want != nil) || there && next != *tt.want {
				t.Errorf("it gets %+v (%t), want %+v", next, there, tt.want)
			}
			if len(tt.waits) == 0 && len(got.Waits) > 0 {
				t.Fatalf("waits: %+v", got.Waits)
			}
			if len(tt.waits) > 0 && (len(got.Waits) != 1 || cmp.Diff(tt.waits, got.Waits[0].What) != "" || cmp.Diff(tt.users, got.Waits[0].For) != "") {
				t.Errorf("waits: %+v, want %q for %q", got.Waits, tt.waits, tt.users)
			}
			if len(has) > 0 && has[g.UUID] != *tt.has {
				t.Errorf("the argument has changed: %+v", has)
			}
		})
	}
}
