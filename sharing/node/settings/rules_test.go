// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package settings

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/config"
)

// A change of what GPUs there are asks for stock to be taken anew, and what is known of them outlives a restart.
func TestStepRules(t *testing.T) {
	a, set := rulesOf(t)
	gpus := []sharing.GPU{{UUID: "a", Index: 0, Memory: 8 * sharing.GiB, Reserved: sharing.GiB}, {UUID: "b", Index: 1, Memory: 8 * sharing.GiB}}
	use := func(rules ...config.GPURule) { set(config.Pool{GPUs: rules}) }
	use()
	if err := a.step(gpus); err != nil {
		t.Fatal(err)
	}
	use(config.GPURule{Indexes: []int{0}, Settings: config.GPUSettings{PowerLimitWatts: 300}})
	if err := a.step(gpus); err != nil || a.modes("a").PowerLimit != 300_000 || a.modes("b").PowerLimit != 0 {
		t.Errorf("a power limit: %v, %+v", err, a.modes("a"))
	}
	held := config.GPUSettings{Backends: config.BackendListOf(sharing.BackendDriver, sharing.BackendMPS), MinLevel: sharing.LevelClient}
	use(config.GPURule{Indexes: []int{0}, Settings: held})
	if err := a.step(gpus); err != nil || a.setting("a") != held || a.setting("b") != (config.GPUSettings{}) {
		t.Errorf("what holds fractions: %v, %+v and %+v", err, a.setting("a"), a.setting("b"))
	}
	use(config.GPURule{Indexes: []int{0}, Settings: config.GPUSettings{Overcommit: sharing.Overcommit{Compute: 200}}})
	if err := a.step(gpus); !errors.Is(err, ErrRescan) {
		t.Errorf("a GPU that is overcommitted: %v", err)
	}
	if got := a.Admit(gpus); len(got) != 2 || got[0].BookablePercent() != 200 || got[1].BookablePercent() != 100 {
		t.Errorf("admitted: %+v", got)
	}
	use(config.GPURule{Indexes: []int{0}, Settings: config.GPUSettings{MemoryReserve: 2 * sharing.GiB, Backends: held.Backends, MinLevel: held.MinLevel}}, config.GPURule{Settings: config.GPUSettings{Exclude: true}})
	if err := a.step(gpus); !errors.Is(err, ErrRescan) {
		t.Errorf("a GPU that is left out: %v", err)
	}
	if got := a.Admit(gpus); len(got) != 1 || got[0].UUID != "a" || got[0].Reserved != 3*sharing.GiB || !a.Excluded()["b"] {
		t.Errorf("admitted: %+v, excluded %v", got, a.Excluded())
	}
	if s := a.setting("a"); s.Backends != held.Backends || s.MinLevel != held.MinLevel {
		t.Errorf("kept: %+v", s)
	}
	b, _ := rulesOf(t)
	b.Options.Dirs.Dir, b.State = a.Options.Dirs.Dir, a.State
	b.load(a.Boot)
	if diff := cmp.Diff(a.now, b.now); diff != "" || !b.setting("b").Exclude {
		t.Errorf("after a restart (-before +after):\n%s", diff)
	}
	b.load("another boot")
	if len(b.now) > 0 {
		t.Errorf("after a reboot: %+v", b.now)
	}
}
