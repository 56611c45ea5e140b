// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/config"
)

// maxPerPod is a config whose profile p lets a pod have so much.
func maxPerPod(t *testing.T, most sharing.Bytes) config.Config {
	t.Helper()
	p := config.Profile{Name: "p", Memory: 10 * sharing.GiB, MaxPerPod: most}
	c, err := config.New(config.Spec{Pools: config.Default().Pools(), Profiles: []config.Profile{p}})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// Pods arrive while the limit of their profile changes between 15 and 25 GiB. One of the two limits applies to each. So
// 10 GiB always pass, 30 GiB never do, and 20 GiB pass or are rejected by the lower limit.
func TestPodsArriveWhileALimitChanges(t *testing.T) {
	b := newPodBench(t)
	b.still()
	configs := []config.Config{maxPerPod(t, 15*sharing.GiB), maxPerPod(t, 25*sharing.GiB)}
	b.apply(configs[0], configs[0].Pools()[0])
	stop := make(chan struct{})
	var changes sync.WaitGroup
	changes.Go(func() {
		for i := 1; ; i++ {
			select {
			case <-stop:
				return
			default:
				b.apply(configs[i%2], configs[i%2].Pools()[0])
			}
		}
	})
	defer changes.Wait()
	defer close(stop)
	seen := map[string]int{}
	for i := range 600 {
		name := fmt.Sprintf("p%d", i)
		var asks []sharing.ContainerRequest
		for k := range i%3 + 1 {
			ask := b.ask(name, fmt.Sprintf("c%d", k), sharing.ContainerApp, "gpu-memory-gib:10")
			ask.Request.Profile = "p"
			asks = append(asks, ask)
		}
		err := b.ReservePod(t.Context(), asks)
		verdict := "granted"
		switch {
		case err != nil && strings.Contains(err.Error(), "at most 15GiB"):
			verdict = "15GiB"
		case err != nil && strings.Contains(err.Error(), "at most 25GiB"):
			verdict = "25GiB"
		case err != nil:
			t.Fatalf("%d containers: %v", len(asks), err)
		}
		seen[fmt.Sprintf("%d %s", len(asks), verdict)]++
		if grants := len(b.PodGrants()); (err == nil) != (grants > 0) {
			t.Fatalf("%d containers: %v, and %d pods with grants", len(asks), err, grants)
		}
		b.gone(name)
	}
	for verdict := range seen {
		switch verdict {
		case "1 granted", "2 granted", "2 15GiB", "3 15GiB", "3 25GiB":
		default:
			t.Errorf("%s", verdict)
		}
	}
	t.Log(seen)
}
