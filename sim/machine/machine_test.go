// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kerf-gpu/kerf/sharing"
)

func TestBuiltInMachines(t *testing.T) {
	if d := cmp.Diff([]string{"a100x8", "a30x2", "b200x8", "gb10", "h100x8", "h200x8", "l40sx4", "mixed",
		"rtxpro6000x4", "t4x4"}, Names()); d != "" {
		t.Fatalf("names (-want +got):\n%s", d)
	}
	type gist struct {
		GPUs, NVLinks, MIG int
		NVSwitch           bool
		Memacct            Memacct
		Memory             sharing.Bytes
	}
	want := map[string]gist{
		"h100x8":       {GPUs: 8, NVLinks: 18, NVSwitch: true, Memacct: Dmem, Memory: 81559 * sharing.MiB},
		"a100x8":       {GPUs: 8, NVLinks: 12, NVSwitch: true, Memacct: Dmem, Memory: 81920 * sharing.MiB},
		"h200x8":       {GPUs: 8, NVLinks: 18, NVSwitch: true, Memacct: Dmem, Memory: 143771 * sharing.MiB},
		"b200x8":       {GPUs: 8, NVLinks: 18, NVSwitch: true, Memacct: Dmem, Memory: 183359 * sharing.MiB},
		"rtxpro6000x4": {GPUs: 4, Memacct: Dmem, Memory: 97887 * sharing.MiB},
		"l40sx4":       {GPUs: 4, Memacct: Dmem, Memory: 46068 * sharing.MiB},
		"a30x2":        {GPUs: 2, NVLinks: 4, Memacct: Dmem, Memory: 24576 * sharing.MiB},
		"gb10":         {GPUs: 1, Memacct: Dmem, Memory: 124610 * sharing.MiB},
		"t4x4":         {GPUs: 4, Memacct: Dmem, Memory: 15360 * sharing.MiB},
		"mixed":        {GPUs: 4, NVLinks: 18, MIG: 1, Memacct: Dmem, Memory: 81559 * sharing.MiB},
	}
	for name, w := range want {
		m, err := Load(name)
		if err != nil {
			t.Fatal(err)
		}
		got := gist{GPUs: len(m.GPUs), NVLinks: m.GPUs[0].Model.NVLinks, NVSwitch: m.NVSwitch, Memacct: m.Memacct,
			Memory: m.GPUs[0].Model.Memory}
		for _, g := range m.GPUs {
			if g.MIG {
				got.MIG++
			}
		}
		if d := cmp.Diff(w, got); d != "" || m.Name != name {
			t.Errorf("%s is called %q (-want +got):\n%s", name, m.Name, d)
		}
	}
}

func TestRemaining(t *testing.T) {
	m, err := Load("mixed")
	if err != nil {
		t.Fatal(err)
	}
	profiles := m.GPUs[1].Model.Profiles
	tests := map[string]struct {
		instances []string // profile@start
		want      map[string]int
	}{
		"empty": {nil, map[string]int{"1g.10gb": 7, "1g.10gb+me": 1, "1g.20gb": 4, "2g.20gb": 3, "3g.40gb": 2,
			"4g.40gb": 1, "7g.80gb": 1}},
		"two 3g waste a compute slice": {[]string{"3g.40gb@0", "3g.40gb@4"},
			map[string]int{"1g.10gb": 0, "1g.10gb+me": 0, "1g.20gb": 0, "2g.20gb": 0, "3g.40gb": 0, "4g.40gb": 0,
				"7g.80gb": 0}},
		"a 1g at 0 blocks 4g and 7g": {[]string{"1g.10gb@0"},
			map[string]int{"1g.10gb": 6, "1g.10gb+me": 1, "1g.20gb": 3, "2g.20gb": 2, "3g.40gb": 1, "4g.40gb": 0,
				"7g.80gb": 0}},
		"the mixed machine is full": {[]string{"2g.20gb@0", "1g.10gb@2", "1g.10gb@3", "3g.40gb@4"},
			map[string]int{"1g.10gb": 0, "1g.10gb+me": 0, "1g.20gb": 0, "2g.20gb": 0, "3g.40gb": 0, "4g.40gb": 0,
				"7g.80gb": 0}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			g := GPU{Model: m.GPUs[1].Model, MIG: true}
			for _, in := range tt.instances {
				profile, start, _ := strings.Cut(in, "@")
				for _, p := range profiles {
					if p.Name == profile {
						g.Instances = append(g.Instances, Instance{Profile: p, Start: int(start[0] - '0')})
					}
				}
			}
			got := map[string]int{}
			for _, p := range profiles {
				got[p.Name] = g.Remaining(p)
			}
			if d := cmp.Diff(tt.want, got); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}

func TestAllErrorsAreListed(t *testing.T) {
	tests := map[string]struct {
		file string
		want []string
	}{
		"empty": {"", []string{"is empty"}},
		"unknown field": {"name: a\ncolour: red\ngpus: [{model: t4, size: 1}]",
			[]string{"field colour not found", "field size not found"}},
		"duplicate field": {"name: a\nname: b\ngpus: [{model: t4}]", []string{`"name" already defined`}},
		"wrong types":     {"name: a\nnvswitch: maybe\ngpus: [{model: t4, numa: x}]", []string{"`maybe`", "`x`"}},
		"two documents":   {"name: a\ngpus: [{model: t4}]\n---\nname: b\n", []string{"more than one document"}},
		"not yaml":        {"{", []string{"yaml"}},
		"nothing in it":   {"name: a\n", []string{`gpus "0"`}},
		"several": {"name: A B\nmemacct: none\ngpus:\n- {model: v100, pci: x, numa: -1}\n- {model: t4, mig: {}}\n",
			[]string{
				`name "A B"`, `memacct "none"`, `gpus[0].model "v100"`,
				"write one of a100-80gb, a30, b200, gb10, h100-80gb, h200-141gb, l40s, rtx-pro-6000, t4", `gpus[0].numa "-1"`,
				`gpus[0].pci "x"`, "gpus[1].mig"}},
		"same address": {"name: a\ngpus: [{model: t4, pci: '1B:00.0'}, {model: t4, pci: '0000:1b:00.0'}]",
			[]string{"gpus[1].pci"}},
		"overlap": {"name: a\ngpus: [{model: h100-80gb, mig: {instances: [{profile: 3g.40gb, start: 0}, {profile: " +
			"1g.10gb, start: 3}]}}]",
			[]string{"gpus[0].mig.instances[1].start", "overlaps instance 3g.40gb at 0"}},
		"illegal place": {"name: a\ngpus: [{model: h100-80gb, mig: {instances: [{profile: 3g.40gb, start: 2}, " +
			"{profile: 9g, start: 0}]}}]",
			[]string{"gpus[0].mig.instances[0].start", "[0 4]", "gpus[0].mig.instances[1].profile"}},
		"too many of one": {"name: a\ngpus: [{model: h100-80gb, mig: {instances: [{profile: 1g.10gb+me, start: 0}, " +
			"{profile: 1g.10gb+me, start: 1}]}}]",
			[]string{"more than 1 times"}},
		"bad model": {"name: a\nmodels: {m: {memory_mib: 0, reserved_mib: -1, compute_capability: 9, " +
			"costs: {exit_ms: 60001, stream_kib: -1}, mig: {profiles: " +
			"[{size: -4, starts: [-1, -1]}]}}}\ngpus: [{model: m, mig: {instances: [{profile: x, start: -3}]}}]",
			[]string{"models.m.name", "models.m.memory_mib", "models.m.reserved_mib", "models.m.sms",
				"models.m.architecture",
				"models.m.brand", "models.m.compute_capability", "models.m.costs.exit_ms", "models.m.costs.stream_kib",
				"models.m.mig.profiles[0].size",
				"models.m.mig.profiles[0].starts[0]"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := parse("file.yaml", []byte(tt.file))
			if !errors.Is(err, sharing.ErrInvalid) {
				t.Fatalf("got %v, want an error that is invalid", err)
			}
			for _, w := range tt.want {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("%q is missing in:\n%v", w, err)
				}
			}
		})
	}
}

func TestLoadRefuses(t *testing.T) {
	dir := t.TempDir()
	big := filepath.Join(dir, "big.yaml")
	if err := os.WriteFile(big, make([]byte, maxFile+1), 0o600); err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct {
		ref  string
		want error
	}{
		"unknown name":    {"dgx", sharing.ErrInvalid},
		"models is none":  {"models", sharing.ErrInvalid},
		"no such file":    {filepath.Join(dir, "none.yaml"), sharing.ErrNotFound},
		"a directory":     {dir, sharing.ErrUnavailable},
		"a file too long": {big, sharing.ErrInvalid},
		"empty":           {"", sharing.ErrInvalid},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if _, err := Load(tt.ref); !errors.Is(err, tt.want) {
				t.Errorf("got %v, want %v", err, tt.want)
			}
		})
	}
}

func TestLoadOwnFile(t *testing.T) {
	p := filepath.Join(t.TempDir(), "own.yaml")
	if err := os.WriteFile(p, []byte("name: own\nmemacct: misc\ngpus: [{model: t4}, {model: t4, numa: 1}]\n"),
		0o600); err != nil {
		t.Fatal(err)
	}
	m, err := Load(p)
	if err != nil {
		t.Fatal(err)
	}
	if m.Memacct != Misc || len(m.GPUs) != 2 || m.GPUs[0].NUMA != -1 || m.GPUs[1].NUMA != 1 ||
		m.GPUs[0].PCI == m.GPUs[1].PCI {
		t.Errorf("got %+v", m)
	}
}

func TestIdentities(t *testing.T) {
	seen := map[string]bool{}
	form := regexp.MustCompile(`^(GPU|MIG)-[0-9a-f]{8}-[0-9a-f]{4}-5[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)
	for _, dir := range []string{"/a", "/b"} {
		for _, name := range []string{"x", "y"} {
			for minor := range 12 {
				u := UUID(dir, name, minor)
				if u != UUID(dir, name, minor) {
					t.Error("the UUID changes")
				}
				for _, id := range []string{u, MIGUUID(u, 1, 0), MIGUUID(u, 2, 0)} {
					if seen[id] || !form.MatchString(id) {
						t.Errorf("%q is seen twice or has another form", id)
					}
					seen[id] = true
				}
				if s := Serial(u); len(s) != 13 {
					t.Errorf("serial %q", s)
				}
			}
		}
	}
}

func TestFindDriver(t *testing.T) {
	d, err := FindDriver("r615")
	if err != nil || !d.MemoryLimits || d.CUDA != 13040 || d.Version != "615.71.09" {
		t.Errorf("r615: %+v, %v", d, err)
	}
	if d, err = FindDriver("r580"); err != nil || d.MemoryLimits {
		t.Errorf("r580: %+v, %v", d, err)
	}
	if d, err = FindDriver("r550"); err != nil || d.MemoryLimits || d.CUDA != 12040 {
		t.Errorf("r550: %+v, %v", d, err)
	}
	if _, err = FindDriver("r1"); !errors.Is(err, sharing.ErrInvalid) ||
		!strings.Contains(err.Error(), "r550, r580, r615") {
		t.Errorf("r1: %v", err)
	}
}

func FuzzParse(f *testing.F) {
	for _, name := range append(Names(), "models") {
		data, err := files.ReadFile("machines/" + name + ".yaml")
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Add([]byte("name: a\nmodels: {m: {mig: {profiles: [{size: -4, starts: [-1]}]}}}\ngpus: [{model: m, mig: " +
		"{instances: [{start: -3}]}}]"))
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := parse("f", data)
		if err != nil {
			if !errors.Is(err, sharing.ErrInvalid) {
				t.Fatalf("error outside the vocabulary: %v", err)
			}
			return
		}
		for _, g := range m.GPUs {
			if g.Model.Memory == 0 || g.Model.Reserved >= g.Model.Memory {
				t.Fatalf("accepted %+v", g)
			}
		}
	})
}

func TestShared(t *testing.T) {
	for how, want := range map[Sharing]time.Duration{SharingSlices: 2 * time.Millisecond, SharingFIFO: 0} {
		for _, name := range []string{"h200x8", "h100x8"} {
			m, err := Load(name)
			if err != nil {
				t.Fatal(err)
			}
			for _, of := range []Machine{m, m.WithoutCosts()} {
				got, ok := of.Shared(how)
				if !ok || got.GPUs[7].Model.Costs.Slice != want {
					t.Errorf("%s of %s: %+v, %v", how, name, got.GPUs[7].Model.Costs, ok)
				}
			}
		}
	}
	h200, err1 := Load("h200x8")
	h100, err2 := Load("h100x8")
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	measured, assumed := h200.GPUs[0].Model.Costs, h100.GPUs[0].Model.Costs
	if want := (Costs{Slice: measured.Slice, Switch: measured.Switch, Preempt: measured.Preempt}); assumed != want {
		t.Errorf("a model that was not measured has %+v, want %+v of the H200", assumed, want)
	}
	if _, ok := (Machine{}).Shared("turns"); ok {
		t.Error("an unknown way is known")
	}
}
