// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package cluster_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	others "github.com/kerf-gpu/kerf/lab/policy"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/allocator/cluster"
)

var rewrite = flag.Bool("rewrite", false, "write the golden files again; read the difference before you commit it")

// nodesFor are the nodes of a line of the golden file: "12*80GiB:31,20 reactive" and so on.
func nodesFor(t *testing.T, text string) []cluster.Node {
	t.Helper()
	var nodes []cluster.Node
	for part := range strings.SplitSeq(text, ";") {
		words := strings.Fields(part)
		n, count := cluster.Node{CPU: 64_000, Memory: 256 * sharing.GiB, Level: sharing.LevelDriver}, 1
		for _, w := range words {
			key, value, _ := strings.Cut(w, "=")
			var err error
			switch key {
			case "count":
				_, err = fmt.Sscan(value, &count)
			case "model":
				n.Model = value
			case "cores":
				_, err = fmt.Sscan(value, &n.CPU)
				n.CPU *= 1000
			case "memory":
				n.Memory, err = sharing.ParseBytes(key, value)
			case "gpu":
				n.GPUMemory, err = sharing.ParseBytes(key, value)
			case "free":
				for f := range strings.SplitSeq(value, ",") {
					var free cluster.Milli
					if _, err = fmt.Sscan(f, &free); err == nil {
						n.GPUs = append(n.GPUs, free)
					}
				}
			case "level":
				n.Level, err = sharing.ParseLevel(key, value)
			case "cordoned":
				n.Cordoned = true
			default:
				t.Fatalf("%q?", w)
			}
			if err != nil {
				t.Fatalf("%q: %v", w, err)
			}
		}
		for range count {
			nodes = append(nodes, n)
		}
	}
	return nodes
}

func requestFor(t *testing.T, text string) cluster.Request {
	t.Helper()
	r := cluster.Request{Shape: cluster.Shape{GPUs: 1}}
	for w := range strings.FieldsSeq(text) {
		key, value, _ := strings.Cut(w, "=")
		var err error
		switch key {
		case "gpus":
			_, err = fmt.Sscan(value, &r.GPUs)
		case "share":
			_, err = fmt.Sscan(value, &r.Share)
		case "gpu":
			r.GPUMemory, err = sharing.ParseBytes(key, value)
		case "cores":
			_, err = fmt.Sscan(value, &r.CPU)
			r.CPU *= 1000
		case "memory":
			r.Memory, err = sharing.ParseBytes(key, value)
		case "profile":
			r.Profile = value
		case "models":
			r.Models = value
		case "level":
			r.Level, err = sharing.ParseLevel(key, value)
		default:
			t.Fatalf("%q?", w)
		}
		if err != nil {
			t.Fatalf("%q: %v", w, err)
		}
	}
	return r
}

// refused is why the nodes refuse the request, each reason with the number of nodes; "fits" where some do not.
func refused(c *cluster.Cluster, r cluster.Request) string {
	var order []string
	count := map[string]int{}
	all := c.Refusals(r)
	for _, no := range all {
		if count[no.Text] == 0 {
			order = append(order, no.Text)
		}
		count[no.Text]++
	}
	if len(all) < c.Len() {
		order = append(order, "fits")
		count["fits"] = c.Len() - len(all)
	}
	for i, text := range order {
		order[i] = fmt.Sprintf("%d: %s", count[text], text)
	}
	return strings.Join(order, "; ")
}

// Each case of the golden file is three lines: the request, the nodes, and why how many of them refuse it.
func TestRefusals(t *testing.T) {
	path := filepath.Join("testdata", "refusals.txt")
	old, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	for text := range strings.SplitSeq(strings.TrimSpace(string(old)), "\n\n") {
		lines := strings.Split(text, "\n")
		if len(lines) < 2 {
			t.Fatalf("%q: a request and nodes are wanted", text)
		}
		c := cluster.New(nodesFor(t, strings.TrimPrefix(lines[1], "nodes: ")), others.BestFit{})
		r := requestFor(t, strings.TrimPrefix(lines[0], "ask: "))
		fmt.Fprintf(&out, "%s\n%s\n%s\n\n", lines[0], lines[1], refused(c, r))
		if _, ok := c.Choose(r); ok != (len(c.Refusals(r)) < c.Len()) {
			t.Errorf("%s: placed %v, and yet %q", lines[0], ok, refused(c, r))
		}
	}
	got := strings.TrimSuffix(out.String(), "\n")
	if *rewrite {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(string(old), got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestRefusalsOfSickGPUs(t *testing.T) {
	c := cluster.New([]cluster.Node{{CPU: 8000, GPUs: full(1)}}, others.BestFit{})
	if err := c.Withhold(0, 0, true); err != nil {
		t.Fatal(err)
	}
	if got := refused(c, ask(1000, 0, 1, 400, "")); got != "1: its GPUs take nothing new" {
		t.Errorf("%q", got)
	}
}
