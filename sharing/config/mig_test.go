// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestMIGLayouts(t *testing.T) {
	t.Parallel()
	c := decode(t, head+`spec:
  pools:
  - name: a
    migLayouts:
    - migEnabled: false
    - deviceFilter: ["0x233010DE", "0x233010DE:0x16c110de"]
      index: [0, 10]
      migEnabled: true
      instances: {3g.40gb: 1, "1g.10gb+me": 1, ">= 16GiB": 0}
      shared: true
`)
	want := []MIGLayout{{}, {
		PCI: []string{"0x233010DE", "0x233010DE:0x16c110de"}, GPUs: []int{0, 10}, Enabled: true,
		Instances: []MIGCount{{"3g.40gb", 1}, {"1g.10gb+me", 1}, {">= 16GiB", 0}}, Shared: true,
	}}
	if !c.Pools()[0].SharesMIG() || (Pool{MIGLayouts: want[:1]}).SharesMIG() {
		t.Error("whether a pool shares instances")
	}
	if d := cmp.Diff(want, c.Pools()[0].MIGLayouts); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	text, err := c.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, decode(t, string(text)).Pools()[0].MIGLayouts); d != "" {
		t.Errorf("written and read again (-want +got):\n%s\n%s", d, text)
	}
	c.Pools()[0].MIGLayouts[1].GPUs[0] = 7
	if p, err := c.PoolFor(nil); err != nil || p.MIGLayouts[1].GPUs[0] != 0 {
		t.Errorf("a Config was changed: %+v, %v", p, err)
	} else if p.MIGLayouts[1].GPUs[0] = 7; c.Pools()[0].MIGLayouts[1].GPUs[0] != 0 {
		t.Error("a Config was changed through PoolFor")
	}
}

func TestMIGLayoutMistakes(t *testing.T) {
	t.Parallel()
	_, err := Decode([]byte(head + `spec:
  pools:
  - name: a
    migLayouts:
    - index: []
      migEnabled: true
    - deviceFilter: [H100]
      index: [1, 1, 2000, -1]
      migEnabled: "true"
    - instances: {1g.10gb: 1}
    - migEnabled: false
      instances: {1g.10gb: 1}
    - migEnabled: true
      instances: {1c.3g.40gb: 1, big: 1, 7g: 33, 1g: x}
    - migEnabled: true
      size: 3
`))
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{
		"line 7: spec.pools[0].migLayouts[0].index is an empty list",
		`line 10: spec.pools[0].migLayouts[1].index[2] "2000" is out of range`,
		`spec.pools[0].migLayouts[1].index[3] "-1"`,
		`line 11: spec.pools[0].migLayouts[1].migEnabled "true" is not true or false`,
		"line 12: spec.pools[0].migLayouts[2].migEnabled is missing",
		`spec.pools[0].migLayouts[4].instances.1g "x" is not a whole number`,
		"spec.pools[0].migLayouts[5].size is not a known field",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is missing in:\n%v", want, err)
		}
	}
	_, err = New(Spec{Pools: []Pool{{Name: "a", MIGLayouts: []MIGLayout{
		{PCI: []string{"H100"}, GPUs: []int{1, 1}},
		{Instances: []MIGCount{{"1g.10gb", 1}}},
		{Enabled: true, Instances: []MIGCount{{"1c.3g.40gb", 1}, {"big", 1}, {"7g", 33}, {"1g", 1}, {"1g", 1}}},
		{Enabled: true, Instances: []MIGCount{{"1g.10gb", 0}}, Shared: true},
	}}}})
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{
		`spec.pools[0].migLayouts[0].deviceFilter[0] "H100" is not a PCI id`,
		`spec.pools[0].migLayouts[0].index[1] "1"`,
		"spec.pools[0].migLayouts[1].instances has instances where",
		`spec.pools[0].migLayouts[2].instances "1c.3g.40gb" names a compute instance`,
		`"big" is not the name of a MIG profile`, `"7g: 33"`, `"1g" is named twice`,
		`spec.pools[0].migLayouts[3].shared "true" is true of a layout without instances`,
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is missing in:\n%v", want, err)
		}
	}
}

func TestMIGPool(t *testing.T) {
	c := decode(t, head+"spec:\n  pools:\n  - {name: a, mode: mig, migIdleTTL: 90s, allowGPUReset: true}\n  - {name: "+
		"b, "+
		"nodeSelector: {x: y}}\n")
	a, b := c.Pools()[0], c.Pools()[1]
	if a.Mode != ModeMIG || a.IdleTTL() != 90*time.Second || !a.AllowGPUReset || b.IdleTTL() != DefaultMIGIdleTTL ||
		b.AllowGPUReset {
		t.Errorf("%+v, %+v", a, b)
	}
	if !a.Mode.MIG() || a.Mode.Shared() || a.Mode.Whole() || !b.Mode.MIG() || ModeWhole.MIG() || ModeShared.MIG() {
		t.Error("what a mode advertises is wrong")
	}
	text, err := c.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(c.Pools(), decode(t, string(text)).Pools()); d != "" {
		t.Errorf("after writing and reading (-before +after):\n%s", d)
	}
	for _, bad := range []string{"5", "0s", "25h", "-1m", "soon"} {
		_, err := Decode([]byte(head + "spec:\n  pools:\n  - {name: a, migIdleTTL: " + bad + "}\n"))
		if err == nil || !strings.Contains(err.Error(), "migIdleTTL") {
			t.Errorf("%s: %v", bad, err)
		}
	}
	if _, err := New(Spec{Pools: []Pool{{Name: "a", MIGIdleTTL: time.Millisecond}}}); err == nil {
		t.Error("a millisecond is taken")
	}
}

// A fixed mode changes with no demand.
func TestAutoMIGMode(t *testing.T) {
	for mode, ok := range map[Mode]bool{ModeAuto: true, ModeShared: false, ModeWhole: false, ModeMIG: false} {
		if p := (Pool{Name: "p", Mode: mode}); p.FollowsDemand() != ok {
			t.Errorf("mode %s, and nothing else said: %t", mode, p.FollowsDemand())
		}
		for said, d := range map[string]AutoMIGMode{"true": AutoMIGModeOn, "false": AutoMIGModeOff} {
			p := Pool{Name: "p", Mode: mode, AutoMIGMode: d}
			_, err := New(Spec{Pools: []Pool{p}})
			if (err == nil) != ok || !ok && !strings.Contains(err.Error(), "autoMIGMode") || !ok &&
				!strings.Contains(err.Error(), said) {
				t.Errorf("mode %s, %s: %v", mode, said, err)
			}
			read, err := Decode([]byte(head + "spec:\n  pools:\n  - {name: p, mode: " + mode.String() +
				", autoMIGMode: " + said + "}\n"))
			if (err == nil) != ok || ok && (read.Pools()[0].FollowsDemand() != (d == AutoMIGModeOn) ||
				read.Pools()[0].AutoMIGMode != d) {
				t.Errorf("mode %s, read %s: %v", mode, said, err)
			}
		}
	}
	if _, err := Decode([]byte(head + "spec:\n  pools:\n  - {name: p, autoMIGMode: yes}\n")); err == nil ||
		!strings.Contains(err.Error(), "autoMIGMode") {
		t.Errorf("neither true nor false: %v", err)
	}
	if _, err := New(Spec{Pools: []Pool{{Name: "p", AutoMIGMode: 9}}}); err == nil {
		t.Error("a choice that there is not is taken")
	}
}
