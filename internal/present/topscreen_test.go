// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package present

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	telemetryapi "github.com/kerf-gpu/kerf/api/telemetry/v1alpha1"
)

// topCluster is a cluster of 12 nodes with 4 GPUs each, and 3 grants on each GPU.
func topCluster() []TopNode {
	var nodes []TopNode
	for n := range 12 {
		node := TopNode{Name: fmt.Sprintf("gpu-%02d", n),
			Sample: &telemetryapi.Sample{AgentUp: true, DriverVersion: "615.71"}}
		for i := range 4 {
			used, all := uint64(6+4*n+i)<<30, uint64(79)<<30
			sm, watts := float64((7*n+11*i)%100)/100, float64(100+n)
			g := &telemetryapi.GPU{Uuid: fmt.Sprintf("GPU-%02d-%d", n, i), Index: int32(i),
				Model: "NVIDIA H100 80GB HBM3", MemoryUsedBytes: &used, MemoryAllocatableBytes: &all, SmRatio: &sm,
				PowerWatts: &watts}
			for _, pod := range []string{"chat", "embed", "train-with-a-rather-long-name"} {
				id := fmt.Sprintf("%s-%02d-%d", pod, n, i/2) // each pod has two GPUs
				g.Usages = append(g.Usages, &telemetryapi.Usage{Owner: "grant", Grant: "team/" + id + "/main",
					GrantId: id, Namespace: "team", Pod: id, Container: "main", Level: "driver", Processes: 1,
					MemoryGuaranteedBytes: 10 << 30, ComputeGrantedRatio: 0.25,
					MemoryBytes: &telemetryapi.Amount{Value: float64((2 + i + n%9) << 30)}})
			}
			node.Sample.Gpus = append(node.Sample.Gpus, g)
		}
		nodes = append(nodes, node)
	}
	return nodes
}

// press is the screen after keys.
func press(s TopScreen, keys ...string) TopScreen {
	for _, k := range keys {
		s, _ = s.Key(k)
	}
	return s
}

// walk is what a user does, and the frames that follow.
var walk = []struct {
	name string
	next func(TopScreen) TopScreen
}{
	{"no data yet", func(s TopScreen) TopScreen { return s }},
	{"nodes", func(s TopScreen) TopScreen { return s.See(topCluster(), nil) }},
	{"the last node", func(s TopScreen) TopScreen { return press(s, "G") }},
	{"GPUs of gpu-10", func(s TopScreen) TopScreen { return press(s, "up", "enter") }},
	{"grants of GPU 2", func(s TopScreen) TopScreen { return press(s, "j", "down", "enter") }},
	{"back at the GPUs", func(s TopScreen) TopScreen { return press(s, "esc") }},
	{"all grants by memory", func(s TopScreen) TopScreen { return press(s, "esc", "v", "v", ">") }},
	{"a page further", func(s TopScreen) TopScreen { return press(s, "pgdown") }},
	{"a filter is written", func(s TopScreen) TopScreen { return press(s, "/", "E", "m", "x", "backspace") }},
	{"pods with the filter, the smallest first",
		func(s TopScreen) TopScreen { return press(s, "enter", "v", "r") }},
	{"IDs, and notes", func(s TopScreen) TopScreen {
		return press(s, "esc", "w").See(topCluster(), []string{"gpu-03: no answer", "gpu-04: no answer"})
	}},
	{"keys", func(s TopScreen) TopScreen { return press(s.WithNotes("the cluster does not answer"), "?") }},
}

// TestTopFrames compares the frames of a walk through a cluster with those of testdata, at three sizes of terminals.
func TestTopFrames(t *testing.T) {
	for _, size := range [][2]int{{80, 24}, {120, 40}, {40, 12}} {
		t.Run(fmt.Sprintf("%dx%d", size[0], size[1]), func(t *testing.T) {
			s := NewTopScreen(TopView{Order: "gpu", By: "node"}, size[0], size[1], false)
			var b strings.Builder
			for _, step := range walk {
				s = step.next(s)
				frame := s.Frame()
				lines := strings.Split(frame, "\n")
				if len(lines) != size[1] {
					t.Errorf("%s: %d lines", step.name, len(lines))
				}
				for _, l := range lines {
					if utf8.RuneCountInString(l) > size[0] {
						t.Errorf("%s: a line of %d cells: %s", step.name, utf8.RuneCountInString(l), l)
					}
				}
				fmt.Fprintf(&b, "=== %s\n%s\n", step.name, frame)
			}
			path := filepath.Join("testdata", "top", fmt.Sprintf("%dx%d.txt", size[0], size[1]))
			if flag.Lookup("update").Value.String() == "true" { // The other tests of this package have the flag.
				if err := os.WriteFile(path, []byte(b.String()), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(string(want), b.String()); d != "" {
				t.Error(d)
			}
		})
	}
}

// TestTopSelectionStays checks that newer samples leave the selection on its grant, and where its grant is gone, on a
// line of the list.
func TestTopSelectionStays(t *testing.T) {
	nodes := topCluster()[:1]
	s := press(NewTopScreen(TopView{Order: "memory", By: "owner"}, 80, 24, false).See(nodes, nil), "end", "up")
	selected := s.selected()
	if !strings.Contains(selected, "embed") {
		t.Fatalf("selected %q", selected)
	}
	nodes = topCluster()[:1]
	for _, u := range nodes[0].Sample.GetGpus()[0].GetUsages()[1:2] {
		u.MemoryBytes.Value = 70 << 30
	}
	if s = s.See(nodes, nil); s.selected() != selected || s.cursor != 0 {
		t.Errorf("the grant is at line %d, selected %q", s.cursor, s.selected())
	}
	s = press(s, "end")
	nodes[0].Sample.Gpus = nodes[0].Sample.GetGpus()[:1]
	if s = s.See(nodes, nil); s.cursor != 2 || !strings.Contains(s.Frame(), "> 0") {
		t.Errorf("line %d of %d:\n%s", s.cursor, len(s.list), s.Frame())
	}
	s = s.See(nil, nil)
	if s.selected() != "" || !strings.Contains(press(s, "enter", "down", "end").Frame(), "no lines") {
		t.Errorf("without data:\n%s", s.Frame())
	}
}

// TestTopKeys checks which keys end the command, and that writing a filter takes letters literally.
func TestTopKeys(t *testing.T) {
	s := NewTopScreen(TopView{Order: "gpu", By: "owner"}, 80, 24, false).See(topCluster(), nil)
	for _, step := range []struct {
		keys string
		quit bool
	}{
		{"q", true}, {"ctrl+c", true}, {"? q", true}, {"? x", false}, {"/ q", false}, {"/ ctrl+c", true},
		{"/ q enter q", true}, {"/ q esc q", true}, {"x", false}, {"esc", false}, {"f5", false},
	} {
		at, quit := s, false
		for key := range strings.FieldsSeq(step.keys) {
			at, quit = at.Key(key)
		}
		if quit != step.quit {
			t.Errorf("after %q: quit %t", step.keys, quit)
		}
	}
	if got := press(s, "/", "E", "left", "space", "0", "2", "enter"); got.filter != "E 02" || len(got.list) != 12 {
		t.Errorf("filter %q with %d lines", got.filter, len(got.list))
	}
}

// TestTopOfOneMachine checks that one machine has no list of nodes, and that its frames contain no control characters
// of names.
func TestTopOfOneMachine(t *testing.T) {
	s := NewTopScreen(TopView{Order: "gpu", By: "owner"}, 100, 30, false).See([]TopNode{{Sample: topSample()}}, nil)
	frame := s.Frame()
	for _, want := range []string{"all: grants by gpu", "no answer: lost", "b?[2J", "2/1g.10gb@2", "2GiB*", "12s"} {
		if !strings.Contains(frame, want) {
			t.Errorf("no %q in\n%s", want, frame)
		}
	}
	var views []string
	for range 3 {
		s = press(s, "v")
		views = append(views, s.view.By)
	}
	if d := cmp.Diff([]string{"pod", "gpu", "owner"}, views); d != "" {
		t.Error(d)
	}
	if s = press(s, "v", "v", "down", "down", "enter"); s.at.gpu != "2" || len(s.list) != 1 {
		t.Errorf("GPU %q with %d lines", s.at.gpu, len(s.list))
	}
	if s = press(s, "left"); s.at != (topScope{}) || s.cursor != 2 {
		t.Errorf("back at %+v, line %d", s.at, s.cursor)
	}
	s.color = true
	if colored := s.Frame(); !strings.Contains(colored, "\x1b[7m> ") {
		t.Errorf("no selected line in %q", colored)
	}
}
