// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package defrag

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/kerf-gpu/kerf/internal/cli/command"
	"github.com/kerf-gpu/kerf/internal/kube/defrag"
	"github.com/kerf-gpu/kerf/sharing/defrag/control"
	"github.com/kerf-gpu/kerf/test/clitest"
)

func start(t *testing.T) *clitest.Cluster {
	t.Helper()
	f := clitest.StartCluster(t, Commands)
	f.Lists["/apis/policy/v1/poddisruptionbudgets"] = nil
	f.Lists["/api/v1/namespaces"] = nil
	return f
}

// A plan is printed in each form, and writes nothing.
func TestPlan(t *testing.T) {
	f := start(t)
	out, errOut, code := f.Call("defrag", "plan", "-o", "json")
	var p plan
	if err := json.Unmarshal([]byte(out), &p); code != command.ExitOK || err != nil || len(p.Moves) > 0 {
		t.Errorf("status %d: %s%s: %v", code, out, errOut, err)
	}
	if out, errOut, code = f.Call("defrag", "plan", "--any-pod"); code != command.ExitOK || !strings.Contains(out,
		"No moves") {
		t.Errorf("status %d: %s%s", code, out, errOut)
	}
	if writes := f.Writes(); len(writes) > 0 {
		t.Errorf("writes %q", writes)
	}
}

// Wrong flags are a misuse.
func TestFlags(t *testing.T) {
	for _, line := range []string{"plan --moves 0", "plan -o csv", "plan --cost-per-gpu -1", "apply --wait -1s",
		"apply --wait 0",
		"apply --max-evictions-per-pool-per-hour -1", "apply --max-evictions-per-pool-per-hour 0", "plan x"} {
		f := start(t)
		if out, errOut, code := f.Call(strings.Split("defrag "+line, " ")...); code != command.ExitUsage {
			t.Errorf("%s: status %d: %s%s", line, code, out, errOut)
		}
	}
}

// Apply ends at once where no moves help.
func TestApplyWithoutMoves(t *testing.T) {
	f := start(t)
	out, errOut, code := f.Call("defrag", "apply")
	if code != command.ExitOK || !strings.Contains(out, "no moves would let a pending pod fit") || len(f.Writes()) > 0 {
		t.Errorf("status %d: %s%s", code, out, errOut)
	}
}

// The text has each move, what pending pods get, and what stays.
func TestText(t *testing.T) {
	p := plan{Moves: []move{{Pod: "a/x", From: "n0/1", To: "n1/0", Cost: 3660, LostSecs: 3600, Budgets: 1, Priority: 5,
		StepIndex: 1}}, Fits: []fitting{{"ml/big", "n0/0,1", 1}, {"ml/small", "n1/1", 0}}, FreedGPUs: []string{"n0/1"},
		GPUs: 2, Cost: 3660, CostPerGPU: 1830, Left: []string{"ml/huge"}, Staying: map[string]int{"it runs not yet": 3}}
	const want = `1 moves give pending pods 2 GPUs at a cost of 3660 s (1830 s for each GPU).

STEP  POD  FROM  TO    COST    LOST TIME  BUDGETS  PRIORITY
1     a/x  n0/1  n1/0  3660 s  3600 s     1        5

Freed GPUs: n0/1
Pods that fit:
  ml/big on n0/0,1, after step 1
  ml/small on n1/1, without a move
Pods that still do not fit: ml/huge
Pods that stay (it runs not yet): 3
`
	if got := p.text(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if got := (plan{Left: []string{"a"}, Partial: true}).text(); !strings.HasPrefix(got,
		"No moves let a pending pod fit.") || !strings.Contains(got, "ended at its limit") {
		t.Error(got)
	}
}

// Each act is printed in one line.
func TestSaid(t *testing.T) {
	record := control.Record{Node: "n0", GPUs: []string{"g"}, For: control.Ref{Namespace: "ml", Name: "big"},
		Moves: make([]control.Move, 2)}
	for want, s := range map[string]defrag.Status{
		"moving 2 pods from node n0 so that pod ml/big fits": {Begun: true},
		"cordoned 1 GPUs of node n0":                         {Decision: control.Decision{Act: control.Cordon}},
		"uncordoned the GPUs of node n0":                     {Decision: control.Decision{Act: control.Uncordon}},
		"evicted pod a/x from node n0": {Decision: control.Decision{Act: control.Evict,
			Move: control.Move{Pod: control.Ref{Namespace: "a", Name: "x"}, Node: "n0"}}},
		"it waits": {Decision: control.Decision{Reason: "it waits"}},
	} {
		s.Record = record
		if got := said(s, nil); got != want {
			t.Errorf("said %q, want %q", got, want)
		}
	}
}
