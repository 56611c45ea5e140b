// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package present

import (
	"strings"
	"testing"

	"github.com/kerf-gpu/kerf/api/gpunode"
)

// The hash of the applied config, the errors of a newer one and what is pending are shown for each node.
func TestClusterConfig(t *testing.T) {
	t.Parallel()
	node := func(name, short string, c *gpunode.Config) ClusterNode {
		return ClusterNode{Name: name, Status: gpunode.Status{
			Conditions: isReady(), Config: c, Summary: gpunode.Summary{Config: short},
			GPUs: []gpunode.GPU{{UUID: "GPU-a", Index: 3, Health: "healthy"}},
		}}
	}
	same := node("n1", "aaaa", &gpunode.Config{SHA256: "aaaabbbb"})
	waits := node("n2", "aaaa,waits", &gpunode.Config{SHA256: "aaaabbbb", Pending: []gpunode.PendingSettings{
		{GPU: "GPU-a", Settings: []string{"powerLimitWatts as it is -> 300W"}, BlockedBy: []string{"ns/p",
			"grant k-1"}},
		{GPU: "GPU-gone", Settings: []string{"exclude false -> true"}, BlockedBy: []string{"ns/q"}},
	}})
	refused := node("n3", "cccc,rejected",
		&gpunode.Config{SHA256: "ccccdddd", Errors: []string{"line 7: wrong\x1b[31m", "line 9: wrong, too"}})
	for name, tt := range map[string]struct {
		nodes     []ClusterNode
		want, not []string
	}{
		"one document": {[]ClusterNode{same}, []string{"CONFIG", "aaaa"}, []string{"different", "rejected"}},
		"settings wait": {[]ClusterNode{same, waits},
			[]string{"aaaa,waits", "n2/3: waits for ns/p, grant k-1: powerLimitWatts as it is -> 300W\n",
				"n2/GPU-gone: waits for ns/q: exclude"}, []string{"different"}},
		"one is refused": {[]ClusterNode{same, waits, refused}, []string{
			"cccc,rejected", "n3: new config rejected: line 7: wrong?[31m\n",
			"n3: new config rejected: line 9: wrong, too\n",
			"The nodes have applied different configs:\n  aaaabbbb on n1, n2\n  ccccdddd on n3\n",
		}, nil},
		"the built-in one": {[]ClusterNode{same, node("n4", "", nil)},
			[]string{"  the built-in default, or none, on n4\n"},
			nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := ClusterTable(Cluster{Nodes: tt.nodes}, Options{})
			for _, w := range tt.want {
				if !strings.Contains(got, w) {
					t.Errorf("no %q in:\n%s", w, got)
				}
			}
			for _, w := range tt.not {
				if strings.Contains(got, w) {
					t.Errorf("%q in:\n%s", w, got)
				}
			}
		})
	}
}

// isReady are the conditions of a node whose containers can start.
func isReady() []gpunode.Condition {
	return []gpunode.Condition{{Type: gpunode.ConditionReady, Status: gpunode.True}}
}
