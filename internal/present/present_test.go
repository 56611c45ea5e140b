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

	nodev1 "github.com/kerf-gpu/kerf/api/node/v1"
	"github.com/kerf-gpu/kerf/internal/present"
)

var update = flag.Bool("update", false, "rewrite the golden files; commit only a difference that you understand")

const gib = 1 << 30

// node is a sample with every case: GPUs that are shared, whole, empty, lost and in MIG mode, unknown usage, a reserved
// grant, a burst, a pod, a name with control characters, a share on a GPU that is gone.
func node() *nodev1.GetNodeResponse {
	gpu := func(i int32, change func(*nodev1.GPU)) *nodev1.GPU {
		g := &nodev1.GPU{
			Uuid: "GPU-0000000" + string('0'+i) + "-aaaa-bbbb-cccc-dddddddddddd", Index: i,
			Model: "NVIDIA H100 80GB HBM3",
			Pci:   "0000:1" + string('0'+i) + ":00.0", MemoryBytes: 80 * gib, ReservedBytes: gib / 2,
			UsedBytes: 512 << 20, UsedKnown: true,
			Utilization: 0, Health: "healthy", Levels: []string{"exclusive", "driver"},
		}
		change(g)
		return g
	}
	uuid := func(i int32) string { return gpu(i, func(*nodev1.GPU) {}).Uuid }
	shared := func(id, name string, gpu int32, size, used uint64, pct uint32) *nodev1.Grant {
		return &nodev1.Grant{
			Id: id, Name: name, State: "leased", MemoryBytes: size, Percent: pct, UsedBytes: used, UsedKnown: true,
			Level: "driver", Backend: "driver",
			Cgroup: "/sys/fs/cgroup/kerf/" + id, Pids: []int32{4100}, Uid: 1000, Health: "healthy",
			Fragments: []*nodev1.Share{{Gpu: uuid(gpu), MemoryBytes: size, Percent: pct, UsedBytes: used,
				UsedKnown: true}},
		}
	}
	whole := shared("g-0004", "whole", 1, 79*gib+gib/2, 60*gib, 100)
	whole.Whole, whole.Level, whole.Backend, whole.Fragments[0].Whole = true, "exclusive", "none", true
	blind := shared("g-0003", "", 0, 20*gib, 0, 0)
	blind.UsedKnown, blind.Fragments[0].UsedKnown, blind.Level, blind.Backend, blind.LevelReason = false, false, "none",
		"none", "driver 580 has no memory limits"
	claimed := shared("g-0005", "soon", 0, gib, 0, 5)
	claimed.Level, claimed.Backend = "userspace", "libkerf"
	claimed.Compute = &nodev1.Compute{By: "libkerf", Why: "fair", Priority: 1000}
	claimed.Fragments[0].Time = &nodev1.Time{UsedPercent: 7, ChargedSeconds: 12.5, Launches: 900, LaunchesPastBudget: 3,
		WaitedSeconds: 1.25}
	claimed.State, claimed.Cgroup, claimed.Pids = "claimed", "", nil
	pod := shared("g-0006", "pod\x1b[31mred\n", 0, 10*gib, 10*gib, 25)
	pod.PodUid, pod.Container, pod.Pids = "3b9f", "main", []int32{1, 2, 3}
	pod.With, pod.Joint = "g-0009", []*nodev1.Share{{Gpu: uuid(0), MemoryBytes: 30 * gib, Percent: 45}}
	burst := shared("g-0008", "burst", 2, 10*gib, 25*gib, 0)
	burst.Compute = &nodev1.Compute{By: "none", Why: "it has no percent of a GPU"}
	burst.Fragments[0].LentBytes, burst.Fragments[0].BurstBytes = 20*gib, 40*gib
	stray := shared("g-0007", "stray", 0, 4*gib, gib, 0)
	stray.Fragments[0].Gpu, stray.Health = "GPU-99999999-aaaa-bbbb-cccc-dddddddddddd", "lost"
	return &nodev1.GetNodeResponse{
		Ready: true, DriverVersion: "615.71.09", AgentVersion: "0.1.0",
		Config: &nodev1.ConfigStatus{Source: "/etc/kerf.yaml", Sha256: "ab12", Pool: "default",
			Errors: []string{"profiles[2].memory \"-1\" is negative"}},
		Warnings: []string{"cgroup \"/kerf/old\" is still busy"},
		Gpus: []*nodev1.GPU{
			gpu(1, func(g *nodev1.GPU) {
				g.GrantedBytes, g.GrantedPercent, g.UsedBytes, g.Utilization = 79*gib+gib/2, 100, 60*gib, 97
			}),
			gpu(0, func(g *nodev1.GPU) {
				g.GrantedBytes, g.GrantedPercent, g.UsedBytes, g.Utilization = 41*gib, 55, 20*gib, 42
				g.Backends = []*nodev1.Backend{
					{Name: "driver", Level: "driver", Listed: true, Answer: "not supported", Reason: "it is too old",
						Remedy: "install r615"},
					{Name: "libkerf", Level: "userspace", Listed: true, Answer: "supported"},
					{Name: "reactive", Level: "reactive", Answer: "supported"},
				}
			}),
			gpu(2, func(g *nodev1.GPU) { g.Utilization, g.GrantedBytes, g.LentBytes = -1, 10*gib, 20*gib }),
			gpu(3, func(g *nodev1.GPU) {
				g.Health, g.HealthReason, g.UsedKnown, g.Utilization, g.Levels = "lost", "XID 79: fell off the bus",
					false, -1, nil
			}),
			gpu(4, func(g *nodev1.GPU) { g.Mig, g.Levels = true, nil }),
		},
		Grants: []*nodev1.Grant{whole, shared("g-0001", "train", 0, 10*gib, 9*gib+gib/2, 25), blind, claimed, pod,
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
	away := present.FromNode(&nodev1.GetNodeResponse{NotReady: []string{"no driver: libnvidia-ml.so.1 was not found"}})
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
	for name, p := range map[string]*nodev1.GetNodeResponse{
		"nothing":    {},
		"bare items": {Gpus: []*nodev1.GPU{{MemoryBytes: 1<<64 - 1, Utilization: -1}}, Grants: []*nodev1.Grant{{}}},
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
			null := map[string]bool{"used_bytes": true, "utilization": true, "mig_state": true}
			walk(t, "", tree, null)
			if strings.Count(string(text), "\n") != 1 {
				t.Errorf("a stream needs one line per document: %q", text)
			}
		})
	}
	text, err := present.JSON(present.FromNode(&nodev1.GetNodeResponse{Gpus: []*nodev1.GPU{{MemoryBytes: 1<<64 - 1}}}),
		false)
	if err != nil || !strings.Contains(string(text), `"memory_bytes":18446744073709551615`) {
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
			if !regexp.MustCompile(`^[a-z0-9_]+$`).MatchString(k) {
				t.Errorf("%s.%s is not snake case", path, k)
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
