// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"testing"

	"github.com/kerf-gpu/kerf/sharing"
)

func TestOvercommit(t *testing.T) {
	t.Parallel()
	p := decode(t, head+`spec:
  pools:
  - name: a
    minEnforcement: userspace
    overcommit: {memory: 1.25, compute: 2}
    gpuRules:
    - {index: [0], overcommit: {memory: 1}}
    - {index: [1], overcommit: {compute: 1.5}}
    - {index: [2], maxSharesPerGPU: 2}
`).Pools()[0]
	for index, want := range map[int]sharing.Overcommit{
		0: {Compute: 200}, 1: {Memory: 125, Compute: 150}, 2: {Memory: 125, Compute: 200},
		3: {Memory: 125, Compute: 200},
	} {
		if got := p.Of(sharing.GPU{Index: index}).Overcommit; got != want {
			t.Errorf("GPU %d: %+v, want %+v", index, got, want)
		}
	}
}

func TestOvercommitMistakes(t *testing.T) {
	t.Parallel()
	_, err := Decode([]byte(head + `spec:
  pools:
  - name: a
    overcommit: {memory: 0.5, compute: 6}
  - name: b
    nodeSelector: {x: b}
    overcommit: {memory: "1.25", computer: 2}
  - name: c
    nodeSelector: {x: c}
    minEnforcement: driver
    overcommit: {memory: 1.5, compute: 2}
    gpuRules:
    - {index: [0], overcommit: {memory: 1.001}}
  - name: d
    nodeSelector: {x: d}
    mode: whole
    overcommit: {compute: 2}
`))
	checkLines(t, err, []string{
		`line 6: spec.pools[0].overcommit.memory "0.5" is zero; write a number from 1 to 2, such as 1.25`,
		`line 6: spec.pools[0].overcommit.compute "6" is more than 5; write a number from 1 to 5, such as 1.25`,
		`line 9: spec.pools[1].overcommit.memory "1.25" is not a number; write a number such as 1.25, without quotes or unit`,
		"line 9: spec.pools[1].overcommit.computer is not a known field; did you mean compute?",
		`line 13: spec.pools[2].overcommit.memory "1.5" contradicts minEnforcement driver`,
		`line 15: spec.pools[2].gpuRules[0].overcommit.memory "1.001" is not a number with at most two digits behind ` +
			`the point`,
		"line 19: spec.pools[3].overcommit is for fractions, and mode whole gives none; leave it out",
	})
	_, err = Decode([]byte(head + `spec:
  pools:
  - name: c
    minEnforcement: driver
    overcommit: {compute: 2}
    gpuRules:
    - {index: [0], overcommit: {memory: 1.01}}
  - name: e
    nodeSelector: {x: e}
    mode: whole
    overcommit: {compute: 2}
    gpuRules: [{index: [0], mode: shared}]
`))
	checkLines(t, err,
		[]string{`line 9: spec.pools[0].gpuRules[0].overcommit.memory "1.01" contradicts minEnforcement driver`})
}
