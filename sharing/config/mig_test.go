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
    mig:
    - enabled: false
    - pci: ["0x233010DE", "0x233010DE:0x16c110de"]
      gpus: [0, 10]
      enabled: true
      instances: {3g.40gb: 1, "1g.10gb+me": 1, ">= 16GiB": 0}
      shared: true
`)
	want := []MIGLayout{{}, {
		PCI: []string{"0x233010DE", "0x233010DE:0x16c110de"}, GPUs: []int{0, 10}, Enabled: true,
		Instances: []MIGCount{{"3g.40gb", 1}, {"1g.10gb+me", 1}, {">= 16GiB", 0}}, Shared: true,
	}}
	if !c.Pools()[0].SharesMIG() || (Pool{MIG: want[:1]}).SharesMIG() {
		t.Error("whether a pool shares instances")
	}
	if d := cmp.Diff(want, c.Pools()[0].MIG); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	text, err := c.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, decode(t, string(text)).Pools()[0].MIG); d != "" {
		t.Errorf("written and read again (-want +got):\n%s\n%s", d, text)
	}
	c.Pools()[0].MIG[1].GPUs[0] = 7
	if p, err := c.PoolFor(nil); err != nil || p.MIG[1].GPUs[0] != 0 {
		t.Errorf("a Config was changed: %+v, %v", p, err)
	} else if p.MIG[1].GPUs[0] = 7; c.Pools()[0].MIG[1].GPUs[0] != 0 {
		t.Error("a Config was changed through PoolFor")
	}
}

func TestMIGLayoutMistakes(t *testing.T) {
	t.Parallel()
	_, err := Decode([]byte(head + `spec:
  pools:
  - name: a
    mig:
    - gpus: []
      enabled: true
    - pci: [H100]
      gpus: [1, 1, 2000, -1]
      enabled: "true"
    - instances: {1g.10gb: 1}
    - enabled: false
      instances: {1g.10gb: 1}
    - enabled: true
      instances: {1c.3g.40gb: 1, big: 1, 7g: 33, 1g: x}
    - enabled: true
      size: 3
`))
	if err == nil {
		t.Fatal("no mistake")
	}
	for _, want := range []string{
		"line 7: spec.pools[0].mig[0].gpus is an empty list", `line 10: spec.pools[0].mig[1].gpus[2] "2000" is out of range`,
		`spec.pools[0].mig[1].gpus[3] "-1"`, `line 11: spec.pools[0].mig[1].enabled "true" is not true or false`,
		"line 12: spec.pools[0].mig[2].enabled is missing", `spec.pools[0].mig[4].instances.1g "x" is not a whole number`,
		"spec.pools[0].mig[5].size is not a known field",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is missing in:\n%v", want, err)
		}
	}
	_, err = New(Document{Pools: []Pool{{Name: "a", MIG: []MIGLayout{
		{PCI: []string{"H100"}, GPUs: []int{1, 1}},
		{Instances: []MIGCount{{"1g.10gb", 1}}},
		{Enabled: true, Instances: []MIGCount{{"1c.3g.40gb", 1}, {"big", 1}, {"7g", 33}, {"1g", 1}, {"1g", 1}}},
		{Enabled: true, Instances: []MIGCount{{"1g.10gb", 0}}, Shared: true},
	}}}})
	if err == nil {
		t.Fatal("no mistake")
	}
	for _, want := range []string{
		`spec.pools[0].mig[0].pci[0] "H100" is not a PCI id`, `spec.pools[0].mig[0].gpus[1] "1"`, "spec.pools[0].mig[1].instances has instances where",
		`spec.pools[0].mig[2].instances "1c.3g.40gb" names a compute instance`, `"big" is not the name of a MIG profile`, `"7g: 33"`, `"1g" is named twice`,
		`spec.pools[0].mig[3].shared "true" is true of a layout without instances`,
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is missing in:\n%v", want, err)
		}
	}
}

func TestMIGPool(t *testing.T) {
	c := decode(t, head+"spec:\n  pools:\n  - {name: a, mode: mig, migKeepWarm: 90s, migReset: true}\n  - {name: b, nodeSelector: {x: y}}\n")
	a, b := c.Pools()[0], c.Pools()[1]
	if a.Mode != ModeMIG || a.KeepWarm() != 90*time.Second || !a.MIGReset || b.KeepWarm() != DefaultMIGKeepWarm || b.MIGReset {
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
		_, err := Decode([]byte(head + "spec:\n  pools:\n  - {name: a, migKeepWarm: " + bad + "}\n"))
		if err == nil || !strings.Contains(err.Error(), "migKeepWarm") {
			t.Errorf("%s: %v", bad, err)
		}
	}
	if _, err := New(Document{Pools: []Pool{{Name: "a", MIGKeepWarm: time.Millisecond}}}); err == nil {
		t.Error("a millisecond is taken")
	}
}

// Whose mode is fixed changes with nobody's demand.
func TestMIGOnDemand(t *testing.T) {
	for mode, ok := range map[Mode]bool{ModeAuto: true, ModeShared: false, ModeWhole: false, ModeMIG: false} {
		if p := (Pool{Name: "p", Mode: mode}); p.FollowsDemand() != ok {
			t.Errorf("mode %s, and nothing else said: %t", mode, p.FollowsDemand())
		}
		for said, d := range map[string]OnDemand{"true": OnDemandYes, "false": OnDemandNo} {
			p := Pool{Name: "p", Mode: mode, MIGOnDemand: d}
			_, err := New(Document{Pools: []Pool{p}})
			if (err == nil) != ok || !ok && !strings.Contains(err.Error(), "migOnDemand") || !ok && !strings.Contains(err.Error(), said) {
				t.Errorf("mode %s, %s: %v", mode, said, err)
			}
			read, err := Decode([]byte(head + "spec:\n  pools:\n  - {name: p, mode: " + mode.String() + ", migOnDemand: " + said + "}\n"))
			if (err == nil) != ok || ok && (read.Pools()[0].FollowsDemand() != (d == OnDemandYes) || read.Pools()[0].MIGOnDemand != d) {
				t.Errorf("mode %s, read %s: %v", mode, said, err)
			}
		}
	}
	if _, err := Decode([]byte(head + "spec:\n  pools:\n  - {name: p, migOnDemand: yes}\n")); err == nil || !strings.Contains(err.Error(), "migOnDemand") {
		t.Errorf("neither true nor false: %v", err)
	}
	if _, err := New(Document{Pools: []Pool{{Name: "p", MIGOnDemand: 9}}}); err == nil {
		t.Error("a choice that there is not is taken")
	}
}
