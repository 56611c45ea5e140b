// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package parted_test

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kerf-gpu/kerf/mig"
	"github.com/kerf-gpu/kerf/mig/parted"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sim/machine"
)

// gpu is the GPU of that index of a simulated machine, and its table.
func gpu(t *testing.T, name string, index int) (parted.GPU, *mig.Table) {
	t.Helper()
	m, err := machine.Load(name)
	if err != nil {
		t.Fatal(err)
	}
	model := m.GPUs[0].Model
	var list []mig.Profile
	for _, p := range model.Profiles {
		list = append(list, mig.Profile{
			ID: int(p.ID), Name: p.Name, Compute: p.Slices, Memory: p.Memory, SMs: int(p.SMs), MaxInstances: p.Max,
			Size: p.Size, Starts: p.Starts,
			Engines: mig.Engines{Decoders: int(p.Decoders), Encoders: int(p.Encoders), JPEGs: int(p.JPEGs),
				OFAs: int(p.OFAs)},
		})
	}
	table, err := mig.NewTable(list)
	if err != nil {
		t.Fatal(err)
	}
	return parted.GPU{Index: index, Device: uint32(model.PCIDevice), Subsystem: uint32(model.PCISubsys)}, table
}

// What each config of the file means for a GPU of each kind, as a text.
func TestWhatADocumentMeans(t *testing.T) {
	data, err := os.ReadFile("testdata/all-fields.yaml")
	if err != nil {
		t.Fatal(err)
	}
	doc, err := parted.Parse(data)
	if err != nil {
		t.Fatal(err)
	}
	machines := []string{"h100x8", "h100x8", "h100x8", "a30x2", "b200x8", "rtxpro6000x4"}
	var gpus []parted.GPU
	var tables []*mig.Table
	for i, index := range []int{0, 2, 7, 1, 0, 3} {
		gpu, table := gpu(t, machines[i], index)
		gpus, tables = append(gpus, gpu), append(tables, table)
	}
	var out strings.Builder
	for _, c := range doc.Configs {
		fmt.Fprintf(&out, "%s\n", c.Name)
		for i, gpu := range gpus {
			fmt.Fprintf(&out, "  %s %d: %s\n", machines[i], gpu.Index, meaning(c, gpu, tables[i]))
		}
	}
	want, err := os.ReadFile("testdata/all-fields.txt")
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), out.String()); d != "" {
		t.Errorf("meaning (-want +got):\n%s", d)
	}
}

func meaning(c parted.Config, gpu parted.GPU, table *mig.Table) string {
	e, ok := c.For(gpu)
	if !ok {
		return "left as it is"
	}
	if !e.Enabled {
		return "no MIG"
	}
	wishes, err := e.Layout(table)
	if err != nil {
		return err.Error()
	}
	text := "MIG:"
	for _, w := range wishes {
		text += " " + table.Name(w.Profile)
	}
	return text
}

func TestErrors(t *testing.T) {
	tests := map[string]struct {
		doc  string
		want []string
	}{
		"nothing":       {"", []string{"the file is empty; begin with version: v1"}},
		"a comment":     {"# nothing", []string{"the file is empty"}},
		"no YAML":       {"a: [", []string{"is not YAML"}},
		"a list":        {"- 1", []string{"line 1: the file is not a mapping of fields"}},
		"two documents": {"version: v1\n---\nversion: v1", []string{"is followed by another one"}},
		"no version": {"mig-configs: {a: [{devices: all, mig-enabled: false}]}",
			[]string{"line 1: version is missing"}},
		"another version": {"version: v2\nmig-configs: {a: [{devices: all, mig-enabled: false}]}",
			[]string{`line 1: version "v2" is not a version`}},
		"no configs":      {"version: v1", []string{"mig-configs is missing"}},
		"empty configs":   {"version: v1\nmig-configs: {}", []string{"line 2: mig-configs is empty"}},
		"an empty config": {"version: v1\nmig-configs:\n  a: []", []string{"line 3: mig-configs.a is empty"}},
		"several": {`version: v1
more: 1
mig-configs:
  a:
  - devices: some
    mig-enabled: perhaps
    mig-devices: {"1c.3g.20gb": 1, big: 1, "1g.10gb": -1, "2g.20gb": x}
    device: 1
  - device-filter: [0x1]
  - devices: [0, x]
    mig-enabled: true
  - {devices: all, mig-enabled: false, mig-devices: {1g.10gb: 1}, mig-enabled: true}
`, []string{
			"line 2: more is not a known field; use one of version, mig-configs",
			`line 5: mig-configs.a[0].devices "some" is neither all nor a list`,
			`line 6: mig-configs.a[0].mig-enabled "perhaps" is not a truth value`,
			`line 7: mig-configs.a[0].mig-devices.1c.3g.20gb "1c.3g.20gb" names a compute instance`,
			`line 7: mig-configs.a[0].mig-devices.big "big" is not the name of a MIG profile`,
			`line 7: mig-configs.a[0].mig-devices.1g.10gb "-1" is not a number of instances`,
			`line 7: mig-configs.a[0].mig-devices.2g.20gb "x" is not a number of instances`,
			"line 8: mig-configs.a[0].device is not a known field",
			`line 9: mig-configs.a[1].device-filter[0] "0x1" is not a PCI id`,
			"line 9: mig-configs.a[1].devices is missing",
			"line 9: mig-configs.a[1].mig-enabled is missing",
			`line 10: mig-configs.a[2].devices[1] "x" is not an index`,
			"line 10: mig-configs.a[2].mig-devices is missing where mig-enabled is true",
			"line 12: mig-configs.a[3].mig-enabled is there twice",
			"line 12: mig-configs.a[3].mig-devices has instances where mig-enabled is false",
		}},
		"no mapping is merged": {"version: v1\nmig-configs:\n  a:\n  - <<: 5\n    devices: all\n    mig-enabled: " +
			"false\n  b:\n  - <<: [{devices: all}, x]\n    mig-enabled: false", []string{
			"line 4: mig-configs.a[0].<< is not a mapping of fields",
			"line 8: mig-configs.b[0].<<[1] is not a mapping of fields"}},
		"errors that are merged": {"version: v1\nmig-configs:\n  a:\n  - &x {devices: all, mig-enabled: false, " +
			"nothing: 1}\n  - <<: *x\n    devices: [0]\n  - {\"<<\": 1, devices: all, mig-enabled: false}", []string{
			"line 4: mig-configs.a[0].nothing is not a known field",
			"line 4: mig-configs.a[1].nothing is not a known field",
			"line 7: mig-configs.a[2].<< is not a known field"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			doc, err := parted.Parse([]byte(tt.doc))
			if !errors.Is(err, sharing.ErrInvalid) || len(doc.Configs) > 0 {
				t.Fatalf("%+v, error %v", doc, err)
			}
			got := strings.Split(err.Error(), "\n")
			if len(got) != len(tt.want) {
				t.Fatalf("%d errors, want %d:\n%s", len(got), len(tt.want), err)
			}
			for i, want := range tt.want {
				if !strings.Contains(got[i], want) {
					t.Errorf("error %d is %q, want %q", i, got[i], want)
				}
			}
		})
	}
}

// A file that repeats itself by anchors costs no more than a large one.
func TestAnchorsAreBounded(t *testing.T) {
	var doc strings.Builder
	doc.WriteString("version: v1\nmig-configs:\n  a: &a\n")
	for range 400 {
		doc.WriteString("  - {devices: all, mig-enabled: false}\n")
	}
	for i := range 400 {
		fmt.Fprintf(&doc, "  b%d: *a\n", i)
	}
	if _, err := parted.Parse([]byte(doc.String())); err == nil ||
		!strings.Contains(err.Error(), "is past the 131072 values that are read") {
		t.Errorf("error %.200v", err)
	}
	if _, err := parted.Parse(make([]byte, parted.MaxSize+1)); !errors.Is(err, sharing.ErrInvalid) {
		t.Errorf("too large: %v", err)
	}
}

// A merge that repeats itself is bounded too, and one that names itself ends.
func TestMergesAreBounded(t *testing.T) {
	var doc strings.Builder
	doc.WriteString("version: v1\nmig-configs:\n  a:\n  - &m0 {devices: all, mig-enabled: false}\n")
	for i := range 30 {
		fmt.Fprintf(&doc, "  - &m%d {<<: [*m%d, *m%d]}\n", i+1, i, i)
	}
	if _, err := parted.Parse([]byte(doc.String())); err == nil ||
		!strings.Contains(err.Error(), "is past the 131072 values that are read") {
		t.Errorf("error %.200v", err)
	}
	if _, err := parted.Parse(
		[]byte("version: v1\nmig-configs:\n  a:\n  - &m {<<: *m, devices: all, mig-enabled: false}")); !errors.Is(err,
		sharing.ErrInvalid) {
		t.Errorf("a merge of itself: %v", err)
	}
}

func TestUnknownConfig(t *testing.T) {
	doc,
		err := parted.Parse([]byte("version: v1\nmig-configs: {a: [{devices: all, mig-enabled: false}], b: " +
		"[{devices: all, mig-enabled: false}]}"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := doc.Config("--config", "c"); err == nil ||
		!strings.Contains(err.Error(), `--config "c" is no config of the file; write one of a, b`) {
		t.Errorf("error %v", err)
	}
	if c, err := doc.Config("--config", "b"); err != nil || c.Name != "b" {
		t.Errorf("%+v, error %v", c, err)
	}
}

func FuzzParse(f *testing.F) {
	data, err := os.ReadFile("testdata/all-fields.yaml")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Add(
		[]byte("version: v1\nmig-configs:\n  a: [&x {devices: all, mig-enabled: false}, {<<: [*x, *x], devices: [1]}]"))
	f.Add([]byte("version: v1\nmig-configs: {a: [{devices: [0], mig-enabled: true, mig-devices: {1g: 99999}}]}"))
	f.Fuzz(func(t *testing.T, data []byte) {
		doc, err := parted.Parse(data)
		if (err == nil) == (len(doc.Configs) == 0) || err != nil && !errors.Is(err, sharing.ErrInvalid) {
			t.Fatalf("%+v, error %v", doc, err)
		}
		for _, c := range doc.Configs {
			if len(c.Entries) == 0 {
				t.Fatalf("config %q has no entry", c.Name)
			}
			for _, e := range c.Entries {
				if !e.Enabled && len(e.Instances) > 0 || e.All && len(e.Devices) > 0 {
					t.Fatalf("%+v", e)
				}
			}
		}
	})
}
