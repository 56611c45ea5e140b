// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package whatif_test

import (
	"errors"
	"testing"

	"github.com/kerf-gpu/kerf/internal/console/consoletest"
	"github.com/kerf-gpu/kerf/internal/console/whatif"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/config"
	"github.com/kerf-gpu/kerf/sharing/simulate"
)

// two are two nodes of one GPU; the first has a pod with 60 GiB.
func two() ([]simulate.LiveNode, []simulate.LivePod) {
	held := consoletest.Pod("team", "held", "a", map[string]string{sharing.ResourceMemory: "60"})
	var nodes []simulate.LiveNode
	for _, name := range []string{"a", "b"} {
		var holds []consoletest.Grant
		if name == "a" {
			holds = append(holds, consoletest.Grant{Pod: held, GiB: 60})
		}
		report := consoletest.Node(name, 1, holds...)
		nodes = append(nodes, simulate.LiveNode{Name: name, CPU: 8000, Memory: 64 * sharing.GiB, Report: &report,
			Allocatable: map[string]int64{sharing.ResourceMemory: 79, sharing.ResourceGPU: 1}})
	}
	return nodes, []simulate.LivePod{{Pod: held.Pod}}
}

func TestAsk(t *testing.T) {
	for name, c := range map[string]struct {
		q               whatif.Question
		requested, fits int
	}{
		"nothing":     {whatif.Question{}, 0, 0},
		"a node goes": {whatif.Question{Remove: []string{"a"}}, 1, 1},
		"whole GPUs":  {whatif.Question{Pods: []whatif.Pods{{Count: 2, GPUs: 1}}}, 2, 1},
		"whole GPUs, nodes": {whatif.Question{Pods: []whatif.Pods{{Count: 2, GPUs: 1}},
			Add: []whatif.More{{Like: "b", Count: 1}}}, 2, 2},
		"shares":            {whatif.Question{Pods: []whatif.Pods{{Count: 9, GPUMemory: "10Gi"}}}, 9, 8},
		"pods of a profile": {whatif.Question{Pods: []whatif.Pods{{Count: 2, Profile: "big"}}}, 2, 1},
		"MIG mode on a node": {whatif.Question{MIG: []string{"b"},
			Pods: []whatif.Pods{{Count: 9, MIG: "1g.10gb"}}}, 9, 7},
	} {
		cfg, err := config.Decode([]byte("apiVersion: kerf.dev/v1alpha2\nkind: SharingConfig\nspec:\n  pools:\n  " +
			"- name: default\n  profiles:\n  - name: big\n    memory: 70Gi\n"))
		if err != nil {
			t.Fatal(err)
		}
		nodes, pods := two()
		a, err := whatif.Evaluate(nodes, pods, &cfg, c.q)
		requested, placed := 0, 0
		for _, p := range a.Pods {
			requested, placed = requested+p.Requested, placed+p.Placed
		}
		if err != nil || requested != c.requested || placed != c.fits {
			t.Errorf("%s: %d of %d fit, want %d of %d: %+v %v", name, placed, requested, c.fits, c.requested, a, err)
		}
	}
}

func TestWrongQuestions(t *testing.T) {
	nodes, pods := two()
	for name, q := range map[string]whatif.Question{
		"glob":        {Remove: []string{"["}},
		"count":       {Add: []whatif.More{{Like: "a"}}},
		"much":        {Pods: []whatif.Pods{{Count: 1_000_000}}},
		"no node":     {Add: []whatif.More{{Like: "x", Count: 1}}},
		"no profile":  {Pods: []whatif.Pods{{Profile: "x"}}},
		"wrong bytes": {Pods: []whatif.Pods{{GPUMemory: "ten"}}},
	} {
		if _, err := whatif.Evaluate(nodes, pods, nil, q); !errors.Is(err, sharing.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
