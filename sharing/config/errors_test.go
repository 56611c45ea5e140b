// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kerf-gpu/kerf/sharing"
)

func TestMistakes(t *testing.T) {
	t.Parallel()
	pools := "\n  pools: [{name: a}]"
	tests := map[string]struct {
		in   string
		want []string
	}{
		"empty":          {"", []string{"the config is empty; begin with apiVersion: kerf.dev/v1alpha2"}},
		"only a comment": {"# nothing\n", []string{"the config is empty"}},
		"null":           {"---\n", []string{"is empty"}},
		"a list": {"- a\n", []string{"line 1: the config is not a mapping", "apiVersion is missing",
			"kind is missing"}},
		"a text": {"hello", []string{"is not a mapping", "apiVersion", "kind"}},
		"syntax": {head + "spec: [}\n",
			[]string{"the config is not YAML, here or in the next line: did not find"}},
		"a tab":     {head + "spec:\n\tpools: []\n", []string{"is not YAML"}},
		"not UTF-8": {head + "spec: \xff\n", []string{"is not YAML"}},
		"too large": {head + "#" + strings.Repeat("x", MaxSize), []string{"is larger than 1048576 bytes"}},
		"future version": {"apiVersion: kerf.dev/v1\nkind: SharingConfig\nspec: {whatever: 1}\n",
			[]string{`line 1: apiVersion "kerf.dev/v1" is not a version that is known here; write kerf.dev/v1alpha2`}},
		"version a number": {"apiVersion: 1\nkind: SharingConfig\nspec: {}\n",
			[]string{`line 1: apiVersion "1" is not a text; put it in quotes`}},
		"other kind": {"apiVersion: kerf.dev/v1alpha2\nkind: ConfigMap\n",
			[]string{`line 2: kind "ConfigMap" is not the kind`}},
		"no spec":     {head, []string{"spec is missing"}},
		"no pools":    {head + "spec: {}\n", []string{"line 3: spec.pools names no pool"}},
		"empty pools": {head + "spec:\n  pools: []\n", []string{"line 4: spec.pools names no pool"}},
		"null pools":  {head + "spec:\n  pools:\n", []string{"line 4: spec.pools is empty"}},
		"two documents": {head + "spec:" + pools + "\n---\nfoo: bar\n",
			[]string{"line 5: the config is followed by another one"}},
		"unknown fields": {"metadata: {}\n" + head + "spec:\n  colour: red" + pools + "\n",
			[]string{"line 1: metadata is not a known field; use one of apiVersion, kind, spec",
				"line 5: spec.colour is not a known field"}},
		"a key in another case": {
			head + "spec:\n  Pools: [{name: a}]\n", []string{"line 4: spec.Pools is not a known field",
				"line 4: spec.pools names no pool"},
		},
		"bursts": {
			head + `spec:
  pools: [{name: a}]
  profiles:
  - {name: b, memory: 10GiB, maxBurstMemory: 10GiB}
  - {name: c, memory: 10GiB, maxBurstMemory: 100%}
  - {name: d, gpuCount: 1, maxBurstMemory: 200%}
  - {name: e, memory: 10GiB, maxBurstMemory: 20001%}
  - {name: f, memory: 10GiB, maxBurstMemory: 200}
  - {name: g, memory: 10GiB, maxBurstMemory: lots}
  - {name: h, memory: 10GiB, gpuCount: 2, maxBurstMemory: 20000000001B}
`, []string{
				`line 6: spec.profiles[0].maxBurstMemory "10GiB" is not more than what is guaranteed; write more ` +
					`than memory, or leave it out`,
				`line 7: spec.profiles[1].maxBurstMemory "100%" is not more than what is guaranteed; write a size, ` +
					`such as 40GiB, or a percentage`,
				`line 8: spec.profiles[2].maxBurstMemory "200%" is for a share of a GPU`,
				`line 9: spec.profiles[3].maxBurstMemory "20001%" is more than 10000`,
				`line 10: spec.profiles[4].maxBurstMemory "200" is not a text; put it in quotes`,
				`line 11: spec.profiles[5].maxBurstMemory "lots" is not a size`,
				`line 12: spec.profiles[6].maxBurstMemory "18.6GiB" does not divide evenly by 2 GPUs`,
			},
		},
		"health": {
			head + `spec:
  pools:
  - {name: a, health: {onFault: panic, gracePeriod: soon, nodeSignal: label, terminationTaints: []}}
  - {name: b, nodeSelector: {x: b}, health: {gracePeriod: 30s, terminationTaints: [gone, "no key", gone], colour: red}}
  - {name: c, nodeSelector: {x: c}, health: {onFault: evict, gracePeriod: 25h}}
  - {name: d, nodeSelector: {x: d}, health: evict}
`, []string{
				`line 5: spec.pools[0].health.onFault "panic" is not a policy for faults; write warn or evict`,
				`line 5: spec.pools[0].health.gracePeriod "soon" is not a grace; write a time with a unit up to ` +
					`24h0m0s, such as 30s`,
				`line 5: spec.pools[0].health.nodeSignal "label" is not a mark for nodes; write none, condition or ` +
					`taint`,
				`line 5: spec.pools[0].health.terminationTaints is an empty list`,
				`line 6: spec.pools[1].health.colour is not a known field`,
				`line 6: spec.pools[1].health.gracePeriod "30s" is for onFault: evict`,
				`line 6: spec.pools[1].health.terminationTaints[1] "no key" is no key that a taint has`,
				`line 6: spec.pools[1].health.terminationTaints[2] "gone" is named twice`,
				`line 7: spec.pools[2].health.gracePeriod "25h" is not a grace`,
				`line 8: spec.pools[3].health is not a mapping`,
			},
		},
		"idle": {
			head + `spec:
  pools:
  - {name: a, idle: {timeout: never, action: nothing, exemptNamespaces: []}}
  - {name: b, nodeSelector: {x: b}, idle: {action: evict, exemptNamespaces: [a]}}
  - {name: c, nodeSelector: {x: c}, idle: {timeout: 1h, exemptNamespaces: [A, b, b]}}
  - {name: d, nodeSelector: {x: d}, idle: {timeout: 10s}}
`, []string{
				`line 5: spec.pools[0].idle.timeout "never" is not a time to be idle; write a time with a unit from ` +
					`1m0s to 8760h0m0s, such as 30m`,
				`line 5: spec.pools[0].idle.action "nothing" is not a policy for idle grants; write report, warn or ` +
					`evict`,
				`line 5: spec.pools[0].idle.exemptNamespaces is an empty list`,
				`line 6: spec.pools[1].idle.timeout is missing`,
				`line 7: spec.pools[2].idle.exemptNamespaces[0] "A" does not begin`,
				`line 7: spec.pools[2].idle.exemptNamespaces[2] "b" is named twice`,
				`line 8: spec.pools[3].idle.timeout "10s" is not a time to be idle`,
			},
		},
		"prices": {
			head + `spec:
  pools: [{name: a}]
  prices: {perKWh: "0.3", perGPUHour: [{model: "[", price: 1}, {model: x, price: -1}, {model: x, price: .inf}]}
`, []string{
				`line 5: spec.prices.perKWh "0.3" is not a number`,
				`line 5: spec.prices.perGPUHour[1].price "-1" is not a price`,
				`line 5: spec.prices.perGPUHour[2].price ".inf" is not a price`,
				`line 5: spec.prices.currency is not the name of a currency`,
				`line 5: spec.prices.perGPUHour[0].model "["`,
			},
		},
		"priorities": {
			head + `spec:
  pools: [{name: a}]
  profiles:
  - {name: b, gpuCount: 1, priority: 1000000001}
  - {name: c, gpuCount: 1, priority: high}
  - {name: d, gpuCount: 1, priority: -1000000001}
`, []string{
				`line 6: spec.profiles[0].priority "1000000001" is not a priority; write a whole number from -1000000000 to 1000000000`,
				`line 7: spec.profiles[1].priority "high" is not a whole number`,
				`line 8: spec.profiles[2].priority "-1000000001" is not a priority`,
			},
		},
		"doubled key": {head + "spec:" + pools + pools + "\n",
			[]string{"line 5: spec.pools stands twice, first in line 4"}},
		"alias": {head + "spec:\n  pools:\n  - &a {name: a}\n  - *a\n",
			[]string{`line 5: spec.pools[0] "&a" has an anchor`, `line 6: spec.pools[1] "*a" is an alias`}},
		"merge": {head + "spec:\n  pools:\n  - {name: a}\n  - <<: {name: b}\n",
			[]string{`line 6: spec.pools[1] "<<" has a key that is not a plain text`}},
		"tag": {head + "spec:\n  pools:\n  - name: !!str a\n",
			[]string{`line 5: spec.pools[0].name "!!str" has a tag`}},
		"a key of lists": {head + "spec:\n  pools:\n  - {name: a, [x]: y}\n",
			[]string{"has a key that is not a plain text"}},
		"wrong types": {
			head + `spec:
  pools:
  - name: [a]
    nodeSelector: [x]
    placementPolicy: 1
    onOverCap: {}
    allowedProfiles: small
  - just a text
  - name: b
    nodeSelector: {x: true, y: 1, z: null, w: [1]}
`, []string{
				"line 5: spec.pools[0].name is not a text", "line 6: spec.pools[0].nodeSelector is not a mapping",
				`line 7: spec.pools[0].placementPolicy "1" is not a text`,
				"line 8: spec.pools[0].onOverCap is not a text", "line 9: spec.pools[0].allowedProfiles is not a list",
				"line 10: spec.pools[1] is not a mapping",
				`line 12: spec.pools[2].nodeSelector.x "true" is not a text; put it in quotes`,
				`line 12: spec.pools[2].nodeSelector.y "1"`,
				"line 12: spec.pools[2].nodeSelector.z is empty", "line 12: spec.pools[2].nodeSelector.w is not a text",
			},
		},
		"wrong values in a pool": {
			head + `spec:
  pools:
  - name: Upper
    placementPolicy: tight
    minEnforcement: strong
    onOverCap: shout
    allowedProfiles: []
    nodeSelector: {"a b": c, d: "e f"}
`, []string{
				`line 5: spec.pools[0].name "Upper" does not begin and end`,
				`line 6: spec.pools[0].placementPolicy "tight"`,
				`line 7: spec.pools[0].minEnforcement "strong"`,
				`line 8: spec.pools[0].onOverCap "shout" is not an over-cap policy; write warn, kill or evict`,
				"line 9: spec.pools[0].allowedProfiles is an empty list",
				`line 10: spec.pools[0].nodeSelector "a b" has a key that no label has`,
				`line 10: spec.pools[0].nodeSelector.d "e f" is not a label's value`,
			},
		},
		"wrong backends and policies": {
			head + `spec:
  pools:
  - name: a
    backends: [reactive, driver]
    onOverCap: drain
    onUnmanagedProcess: shoot
    managedMemory: refuse
  - name: b
    nodeSelector: {a: b}
    backends: [driver, driver, mig]
    onUnmanagedProcess: [kill]
  - name: c
    nodeSelector: {a: c}
    backends: []
  - name: d
    nodeSelector: {a: d}
    backends: [driver, libkerf]
  profiles:
  - name: x
    percent: 50
    backends: [libkerf, driver]
    onOverCap: Kill
`, []string{
				`line 6: spec.pools[0].backends "reactive" does not begin with driver`,
				`line 7: spec.pools[0].onOverCap "drain" is not an over-cap policy; write warn, kill or evict`,
				`line 8: spec.pools[0].onUnmanagedProcess "shoot" is not a policy for unmanaged processes; write ` +
					`warn or kill`,
				`line 9: spec.pools[0].managedMemory "refuse" is not a rule for managed memory; write allow or reject`,
				`line 12: spec.pools[1].backends[2] "mig" is not a backend of this version; write one of driver, mps, libkerf, reactive`, `line 12: spec.pools[1].backends[1] "driver" is named twice`,
				"line 13: spec.pools[1].onUnmanagedProcess is not a text",
				"line 16: spec.pools[2].backends does not begin with driver",
				`line 23: spec.profiles[0].backends "libkerf" does not begin with driver`,
				`line 24: spec.profiles[0].onOverCap "Kill" is not an over-cap policy; did you mean kill? write ` +
					`warn, kill or evict`,
			},
		},
		"wrong quotas": {
			head + `spec:
  pools:
  - name: a
    userQuota: {grants: 0, memory: 40}
  - name: b
    nodeSelector: {a: b}
    userQuota: {grants: 2000000, memory: -1GiB, gpus: 1}
  - name: c
    nodeSelector: {a: c}
    userQuota: 4
`, []string{
				`line 6: spec.pools[0].userQuota.grants "0" is not a number of grants; write a number from 1 to 1000000, or leave it out`,
				`line 9: spec.pools[1].userQuota.grants "2000000" is not a number of grants`,
				"line 9: spec.pools[1].userQuota.memory", "line 9: spec.pools[1].userQuota.gpus",
				"line 12: spec.pools[2].userQuota",
			},
		},
		"wrong settings of compute": {
			head + `spec:
  pools:
  - name: a
    computePolicy: greedy
    timeSlice: 2ms
    computeMode: prohibited
  - name: b
    nodeSelector: {a: b}
    mode: shared
    computeMode: exclusiveProcess
  - name: c
    nodeSelector: {a: c}
    mode: whole
    computeMode: exclusiveProcess
    timeSlice: [long]
`, []string{
				`line 6: spec.pools[0].computePolicy "greedy" is not a rule for compute; write strict or fair`,
				`line 7: spec.pools[0].timeSlice "2ms" is not a time slice; write default, short, medium or long`,
				`line 8: spec.pools[0].computeMode "prohibited" is not a compute mode for a pool; write default or exclusiveProcess`,
				`line 12: spec.pools[1].computeMode "exclusiveProcess" lets one process on each GPU, which then cannot be shared; write mode: whole too`,
				"line 17: spec.pools[2].timeSlice is not a text",
			},
		},
		"wrong values in profiles": {
			head + "spec:" + pools + `
  profiles:
  - name: x
    memory: 10Gx
    percent: 1.5
    gpuCount: "2"
    gpuModel: ["[", ""]
  - name: "0"
    memory: 0
  - name: "1"
    percent: 010
  - name: "2"
    percent: 101
  - name: "3"
    memory: 10GiB
    gpuCount: 3
  - name: "4"
  - name: "5"
    memory: 10
  - name: "6"
    gpuCount: 65
  - percent: -5
`, []string{
				`line 7: spec.profiles[0].memory "10Gx" has an unknown unit`,
				`line 8: spec.profiles[0].percent "1.5" is not a whole number`,
				`line 9: spec.profiles[0].gpuCount "2" is not a whole number; write a whole number, without quotes`,
				"line 10: spec.profiles[0].gpuModel[1] is empty", `line 12: spec.profiles[1].memory "0" is zero`,
				`line 14: spec.profiles[2].percent "010"`,
				`line 16: spec.profiles[3].percent "101%" is more than 1 GPU`,
				`line 18: spec.profiles[4].memory "10GiB" does not divide evenly by 3`,
				"line 20: spec.profiles[5] requests nothing; write memory, percent or gpuCount",
				`line 22: spec.profiles[6].memory "10B" is less than 1MiB`,
				`line 24: spec.profiles[7].gpuCount "65" is more than 64`,
				`line 25: spec.profiles[8].percent "-5" is negative`, `line 25: spec.profiles[8].name is empty`,
			},
		},
		"names": {
			head + `spec:
  pools:
  - {name: a}
  - {name: a, nodeSelector: {x: y}}
  - {name: b, nodeSelector: {x: y}, allowedProfiles: [small, gone, small]}
  - {name: c, nodeSelector: {}}
  profiles:
  - {name: small, memory: 1GiB}
  - {name: small, memory: 2GiB}
`, []string{
				`line 6: spec.pools[1].name "a" is the name of spec.pools[0], too`,
				`line 7: spec.pools[2].nodeSelector "x=y" is also that of spec.pools[1]`,
				`line 7: spec.pools[2].allowedProfiles[1] "gone" is not a profile of this config`,
				`line 7: spec.pools[2].allowedProfiles[2] "small" is named twice`,
				"line 8: spec.pools[3].nodeSelector is also that of spec.pools[0]",
				`line 11: spec.profiles[1].name "small" is the name of spec.profiles[0], too`,
			},
		},
		"a bad glob": {head + "spec:" + pools + "\n  profiles: [{name: x, gpuCount: 1, gpuModel: ['[', '*']}]\n",
			[]string{`line 5: spec.profiles[0].gpuModel "[" has a [ without its ]`}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, err := Decode([]byte(tt.in))
			checkLines(t, err, tt.want)
			if diff := cmp.Diff(Spec{}, c.Spec()); diff != "" {
				t.Errorf("something of a bad document is returned:\n%s", diff)
			}
			var mistakes Errors
			if !errors.As(err, &mistakes) || len(mistakes.Lines()) != len(tt.want) {
				t.Errorf("error is %T with %v", err, mistakes)
			}
		})
	}
}

// An anchor bomb is refused for its anchors, at once, and never expanded.
func TestAnchorBomb(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	b.WriteString(head + "spec:\n  a0: &a0 [x, x]\n")
	for i := range 60 {
		fmt.Fprintf(&b, "  a%d: &a%d [*a%d, *a%d]\n", i+1, i+1, i, i)
	}
	b.WriteString("  pools: *a60\n")
	_, err := Decode([]byte(b.String()))
	if !errors.Is(err, sharing.ErrInvalid) || !strings.Contains(err.Error(), `spec.pools "*a60" is an alias`) {
		t.Errorf("anchor bomb: %v", err)
	}
}

// A config that is made by hand is checked like one that is read.
func TestNewRefuses(t *testing.T) {
	t.Parallel()
	_, err := New(Spec{
		Pools: []Pool{{Name: "a", Mode: 9, Place: 9, MinLevel: 99, OverCap: 9, OnUnmanagedProcess: 9, ManagedMemory: 9,
			MPSComputeMode: 9, UserQuota: sharing.UserQuota{Grants: -1}, Health: Health{OnFault: 9, Node: 9, Grace: -1},
			Idle: Idle{After: 1, Do: 9}, Backends: []sharing.Backend{sharing.BackendDriver, 9}, Profiles: []string{}}},
		Profiles: []Profile{{Name: "x", Memory: sharing.GiB, GPUs: -1, MinLevel: 99, OverCap: 9, Place: 9}},
	})
	checkLines(t, err, []string{
		"spec.profiles[0].onOverCap", "spec.profiles[0].gpuCount", "spec.profiles[0].minEnforcement",
		"spec.profiles[0].placementPolicy",
		"spec.pools[0].mode", "spec.pools[0].placementPolicy", "spec.pools[0].minEnforcement",
		"spec.pools[0].backends[1]",
		"spec.pools[0].onOverCap", "spec.pools[0].onUnmanagedProcess", "spec.pools[0].managedMemory",
		"spec.pools[0].userQuota.grants", "spec.pools[0].health.onFault", "spec.pools[0].health.nodeSignal",
		"spec.pools[0].health.gracePeriod", "spec.pools[0].idle.action", "spec.pools[0].idle.timeout",
		"spec.pools[0].mpsComputeMode", "spec.pools[0].allowedProfiles",
	})
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(full))
	f.Add([]byte(head + "spec:\n  pools:\n  - &a {name: a}\n  - *a\n"))
	f.Add([]byte(head + "spec: {pools: [{name: a, nodeSelector: {x: 'true'}}], profiles: [{name: '1', memory: " +
		"1048577, gpuCount: 1}]}"))
	f.Add([]byte(`{"apiVersion":"kerf.dev/v1alpha2","kind":"SharingConfig","spec":{"pools":[{"name":"a"}]}}`))
	f.Add([]byte("---\n---\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := Decode(data)
		if err != nil {
			if !errors.Is(err, sharing.ErrInvalid) {
				t.Fatalf("error %v is not ErrInvalid", err)
			}
			return
		}
		text, err := c.Encode()
		if err != nil {
			t.Fatal(err)
		}
		again, err := Decode(text)
		if diff := cmp.Diff(c.Spec(), again.Spec()); err != nil || diff != "" {
			t.Fatalf("%v\n%s\n%s", err, diff, text)
		}
	})
}
