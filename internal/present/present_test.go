// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package present_test

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"

	nodeapi "github.com/kerf-gpu/kerf/api/node/v1alpha1"
	"github.com/kerf-gpu/kerf/internal/present"
)

var update = flag.Bool("update", false, "rewrite the golden files; commit only a difference that you understand")

const gib = 1 << 30

// node is a sample with every case: GPUs that are shared, whole, empty, lost and in MIG mode, unknown usage, a reserved
// grant, a burst, a pod, a name with control characters, a share on a GPU that is gone.
func node() *nodeapi.GetNodeResponse {
	gpu := func(i int32, change func(*nodeapi.GPU)) *nodeapi.GPU {
		g := &nodeapi.GPU{
			Uuid: "GPU-0000000" + string('0'+i) + "-aaaa-bbbb-cccc-dddddddddddd", Index: i,
			Model: "NVIDIA H100 80GB HBM3",
			Pci:   "0000:1" + string('0'+i) + ":00.0", CapacityBytes: new(uint64(80 * gib)), ReservedBytes: gib / 2,
			UsedBytes: new(uint64(512 << 20)), Utilization: new(uint32), Health: "healthy",
			Levels: []string{"exclusive", "driver"},
		}
		change(g)
		return g
	}
	uuid := func(i int32) string { return gpu(i, func(*nodeapi.GPU) {}).Uuid }
	shared := func(id, name string, gpu int32, size, used uint64, pct uint32) *nodeapi.Grant {
		return &nodeapi.Grant{
			Id: id, Name: name, State: "Active", MemoryBytes: size, Percent: pct, UsedBytes: &used,
			Level: "driver", Backend: "driver",
			Cgroup: "/sys/fs/cgroup/kerf/" + id, Pids: []int32{4100}, UserId: 1000, Health: "healthy",
			Shares: []*nodeapi.Share{{Gpu: uuid(gpu), MemoryBytes: size, Percent: pct, UsedBytes: &used}},
		}
	}
	whole := shared("g-0004", "whole", 1, 79*gib+gib/2, 60*gib, 100)
	whole.Whole, whole.Level, whole.Backend, whole.Shares[0].Whole = true, "exclusive", "none", true
	blind := shared("g-0003", "", 0, 20*gib, 0, 0)
	blind.UsedBytes, blind.Shares[0].UsedBytes, blind.Level, blind.Backend, blind.LevelReason = nil, nil, "none",
		"none", "driver 580 has no memory limits"
	reserved := shared("g-0005", "soon", 0, gib, 0, 5)
	reserved.Level, reserved.Backend = "userspace", "libkerf"
	reserved.Compute = &nodeapi.Compute{By: "libkerf", Reason: "fair", Priority: 1000}
	reserved.Shares[0].Time = &nodeapi.Time{UsedPercent: new(uint32(7)), ChargedSeconds: 12.5, Launches: 900,
		LaunchesOverBudget: 3, ThrottledSeconds: 1.25}
	reserved.State, reserved.Cgroup, reserved.Pids = "Reserved", "", nil
	pod := shared("g-0006", "pod\x1b[31mred\n", 0, 10*gib, 10*gib, 25)
	pod.PodUid, pod.Container, pod.Pids = "3b9f", "main", []int32{1, 2, 3}
	pod.CapSharedWith, pod.SharedCap = "g-0009", []*nodeapi.Share{{Gpu: uuid(0), MemoryBytes: 30 * gib, Percent: 45}}
	pod.Claims = []string{"train-gpu-x7k2p/gpu", "train-net/gpu"}
	burst := shared("g-0008", "burst", 2, 10*gib, 25*gib, 0)
	burst.Compute = &nodeapi.Compute{By: "none", Reason: "it has no percent of a GPU"}
	burst.Shares[0].BurstBytes, burst.Shares[0].MaxBurstBytes = 20*gib, 40*gib
	stray := shared("g-0007", "stray", 0, 4*gib, gib, 0)
	stray.Shares[0].Gpu, stray.Health, stray.Recovered = "GPU-99999999-aaaa-bbbb-cccc-dddddddddddd", "lost",
		true
	return &nodeapi.GetNodeResponse{
		Ready: true, DriverVersion: "615.71.09", AgentVersion: "0.1.0",
		Config: &nodeapi.ConfigStatus{Source: "/etc/kerf.yaml", Sha256: "ab12", Pool: "default",
			Errors: []string{"profiles[2].memory \"-1\" is negative"}},
		Warnings: []string{"cgroup \"/kerf/old\" is still busy"},
		Gpus: []*nodeapi.GPU{
			gpu(1, func(g *nodeapi.GPU) {
				g.GrantedBytes, g.GrantedPercent, g.UsedBytes, g.Utilization = 79*gib+gib/2, 100, new(uint64(60*gib)),
					new(uint32(97))
			}),
			gpu(0, func(g *nodeapi.GPU) {
				g.GrantedBytes, g.GrantedPercent, g.UsedBytes, g.Utilization = 41*gib, 55, new(uint64(20*gib)),
					new(uint32(42))
				g.Backends = []*nodeapi.Backend{
					{Name: "driver", Level: "driver", Listed: true, Answer: "not supported", Reason: "it is too old",
						Remedy: "install r615"},
					{Name: "libkerf", Level: "userspace", Listed: true, Answer: "supported"},
					{Name: "reactive", Level: "reactive", Answer: "supported"},
				}
			}),
			gpu(2, func(g *nodeapi.GPU) { g.Utilization, g.GrantedBytes, g.BurstBytes = nil, 10*gib, 20*gib }),
			gpu(3, func(g *nodeapi.GPU) {
				g.Health, g.HealthReason, g.UsedBytes, g.Utilization, g.Levels = "lost", "XID 79: fell off the bus",
					nil, nil, nil
			}),
			gpu(4, func(g *nodeapi.GPU) { g.Mig, g.Levels = true, nil }),
		},
		Grants: []*nodeapi.Grant{whole, shared("g-0001", "train", 0, 10*gib, 9*gib+gib/2, 25), blind, reserved, pod,
			stray, burst},
	}
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", name, diff)
	}
}

func TestGolden(t *testing.T) {
	s := present.FromNode(node())
	away := present.FromNode(&nodeapi.GetNodeResponse{NotReady: []string{"no driver: libnvidia-ml.so.1 was not found"}})
	user := func(uid uint32) string { return map[uint32]string{1000: "ada"}[uid] }
	asJSON := func(s present.Status) string {
		b, err := present.JSON(s, true)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	y, err := present.YAML(s)
	if err != nil {
		t.Fatal(err)
	}
	for name, got := range map[string]string{
		"status.json":      asJSON(s),
		"empty.json":       asJSON(away),
		"status.yaml":      string(y),
		"table.txt":        present.Table(s, present.Options{User: user}),
		"table-wide.txt":   present.Table(s, present.Options{Wide: true}),
		"table-empty.txt":  present.Table(away, present.Options{}),
		"bars-100.txt":     present.Bars(s, present.Options{User: user}),
		"bars-60.txt":      present.Bars(s, present.Options{Width: 60}),
		"bars-wide.txt":    present.Bars(s, present.Options{Width: 160, Wide: true, User: user}),
		"bars-color.txt":   present.Bars(s, present.Options{Width: 100, Color: true, User: user}),
		"bars-nothing.txt": present.Bars(away, present.Options{}),
	} {
		t.Run(name, func(t *testing.T) { golden(t, name, got) })
	}
}

// Scripts rely on the names and on arrays that are never null; 64-bit sizes must stay integers.
func TestJSONIsTheInterface(t *testing.T) {
	for name, p := range map[string]*nodeapi.GetNodeResponse{
		"nothing":    {},
		"bare items": {Gpus: []*nodeapi.GPU{{CapacityBytes: new(uint64(1<<64 - 1))}}, Grants: []*nodeapi.Grant{{}}},
	} {
		t.Run(name, func(t *testing.T) {
			text, err := present.JSON(present.FromNode(p), false)
			if err != nil {
				t.Fatal(err)
			}
			var tree map[string]any
			d := json.NewDecoder(strings.NewReader(string(text)))
			d.UseNumber()
			if err := d.Decode(&tree); err != nil {
				t.Fatal(err)
			}
			null := map[string]bool{"usedBytes": true, "utilization": true, "migState": true}
			walk(t, "", tree, null)
			if strings.Count(string(text), "\n") != 1 {
				t.Errorf("a stream needs one line per document: %q", text)
			}
		})
	}
	largest := &nodeapi.GetNodeResponse{Gpus: []*nodeapi.GPU{{CapacityBytes: new(uint64(1<<64 - 1))}}}
	text, err := present.JSON(present.FromNode(largest), false)
	if err != nil || !strings.Contains(string(text), `"capacityBytes":18446744073709551615`) {
		t.Errorf("got %s, %v", text, err)
	}
}

func walk(t *testing.T, path string, v any, null map[string]bool) {
	switch v := v.(type) {
	case map[string]any:
		for k, e := range v {
			if e == nil && !null[k] {
				t.Errorf("%s.%s is null", path, k)
			}
			if !regexp.MustCompile(`^[a-z][A-Za-z0-9]*$`).MatchString(k) {
				t.Errorf("%s.%s is not camel case", path, k)
			}
			walk(t, path+"."+k, e, null)
		}
	case []any:
		for _, e := range v {
			walk(t, path+"[]", e, null)
		}
	}
}

// YAML must say exactly what JSON says, whatever a name looks like.
func TestYAMLEqualsJSON(t *testing.T) {
	p := node()
	for i, name := range []string{"on", "1e3", "~", "2026-11-21", "a: b", "- x"} {
		p.Grants[i%len(p.Grants)].Name = name
	}
	s := present.FromNode(p)
	j, err := present.JSON(s, true)
	if err != nil {
		t.Fatal(err)
	}
	y, err := present.YAML(s)
	if err != nil {
		t.Fatal(err)
	}
	var fromJSON, fromYAML any
	if err := yaml.Unmarshal(j, &fromJSON); err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(y, &fromYAML); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(fromJSON, fromYAML); diff != "" {
		t.Errorf("(-json +yaml):\n%s", diff)
	}
}

// No terminal is too narrow or too wide, and no name can move the cursor.
func TestBarsStayInTheirWidth(t *testing.T) {
	s := present.FromNode(node())
	for _, width := range []int{1, 40, 41, 60, 79, 80, 133, 250} {
		for _, wide := range []bool{false, true} {
			out := present.Bars(s, present.Options{Width: width, Wide: wide})
			for l := range strings.Lines(out) {
				if n := utf8.RuneCountInString(strings.TrimSuffix(l, "\n")); n > max(width, 40) {
					t.Errorf("width %d: a line of %d cells: %q", width, n, l)
				}
				if strings.ContainsRune(l, '\x1b') {
					t.Errorf("width %d: an escape without colour: %q", width, l)
				}
			}
		}
	}
}

func TestColorEndsWithEveryLine(t *testing.T) {
	out := present.Bars(present.FromNode(node()), present.Options{Width: 70, Color: true})
	for l := range strings.Lines(out) {
		opened := strings.Count(l, "\x1b[") - strings.Count(l, "\x1b[0m")
		if closed := strings.Count(l, "\x1b[0m"); opened != closed {
			t.Errorf("%d styles opened, %d closed in %q", opened, closed, l)
		}
	}
}
