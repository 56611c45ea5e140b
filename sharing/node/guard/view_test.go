// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"testing"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/config"
)

func TestOverCapRule(t *testing.T) {
	c, err := config.New(config.Spec{Pools: config.Default().Pools(), Profiles: []config.Profile{
		{Name: "strict", Memory: sharing.GiB, OverCap: config.OverCapEvict}, {Name: "plain", Memory: sharing.GiB},
	}})
	if err != nil {
		t.Fatal(err)
	}
	warn, none := config.Pool{Name: "a", OverCap: config.OverCapWarn}, config.Pool{Name: "b"}
	for _, x := range []struct {
		pool          config.Pool
		profile, want string
	}{
		{warn, "", "onOverCap: warn of pool a"},
		{warn, "plain", "onOverCap: warn of pool a"},
		{warn, "gone", "onOverCap: warn of pool a"},
		{warn, "strict", "onOverCap: evict of profile strict"},
		{none, "strict", "onOverCap: evict of profile strict"},
		{none, "plain", "onOverCap: " + c.OverCapOf(none, "").String() + ", the default"},
	} {
		if got := (View{Config: c, Pool: x.pool}).rule(x.profile); got != x.want {
			t.Errorf("pool %s, profile %q: %q, want %q", x.pool.Name, x.profile, got, x.want)
		}
	}
}
