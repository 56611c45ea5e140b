// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package plot_test

import (
	"bytes"
	"encoding/xml"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kerf-gpu/kerf/lab/plot"
	others "github.com/kerf-gpu/kerf/lab/policy"
	"github.com/kerf-gpu/kerf/sharing/simulate"
)

var update = flag.Bool("update", false,
	"rewrite testdata; commit the difference only if you have looked at the drawing")

// runs are two seeds of two policies on a few nodes.
func runs(t *testing.T, load float64, policies ...string) []simulate.Result {
	t.Helper()
	s := simulate.Scenario{
		Machines: []simulate.Machine{{Name: "h", Count: 4, Cores: 64, GPUs: 4, Model: "H"},
			{Name: "t", Count: 2, Cores: 32, GPUs: 2, Model: "T"}, {Name: "cpu", Count: 1, Cores: 8}},
		Pods: []simulate.PodType{
			{Name: "share", Count: 12, Cores: 4, Percent: 45, Vary: 0.4}, {Name: "cpu", Cores: 6},
			{Name: "one", Count: 3, GPUs: 1},
			{Name: "pair", Count: 1, GPUs: 2, Models: []string{"H"}},
		},
		Draw: simulate.Draw{Pods: 80, Seed: 2},
	}
	nodes, err := s.Nodes()
	if err != nil {
		t.Fatal(err)
	}
	pods, err := s.List()
	if err != nil {
		t.Fatal(err)
	}
	var results []simulate.Result
	for _, name := range policies {
		for seed := range int64(2) {
			p, err := others.New(name, nodes, pods, seed)
			if err != nil {
				t.Fatal(err)
			}
			e := simulate.Experiment{Nodes: nodes, Typical: pods, Policy: p, Now: time.Now, Detail: true}
			var r simulate.Result
			if load > 0 {
				r, err = e.Churn(pods, load, seed)
			} else {
				r, err = e.Fill(simulate.Inflate(pods, 20000, 1.2, seed))
			}
			if err != nil {
				t.Fatal(err)
			}
			r.Policy, r.Trace, r.Seed = name, "some <pods> & nodes", seed
			results = append(results, r)
		}
	}
	return results
}

func TestDrawIsGolden(t *testing.T) {
	for name, load := range map[string]float64{"fill": 0, "churn": 0.9} {
		got, err := plot.Draw(runs(t, load, "kerf", "spread"))
		if err != nil {
			t.Fatal(err)
		}
		wellFormed(t, got)
		file := filepath.Join("testdata", name+".svg")
		if *update {
			if err := os.WriteFile(file, got, 0o600); err != nil {
				t.Fatal(err)
			}
			continue
		}
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), string(got)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", file, diff)
		}
	}
}

func wellFormed(t *testing.T, svg []byte) {
	t.Helper()
	d := xml.NewDecoder(bytes.NewReader(svg))
	for {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Fatalf("%v in:\n%s", err, svg)
		}
	}
}

// Every policy has its line and its nodes, even where lines must be dashed, and all of it lies on the paper.
func TestDrawShowsAllPolicies(t *testing.T) {
	svg, err := plot.Draw(runs(t, 0, others.Policies()...))
	if err != nil {
		t.Fatal(err)
	}
	wellFormed(t, svg)
	text := string(svg)
	for _, name := range others.Policies() {
		if !strings.Contains(text, ">"+name+"</text>") || !strings.Contains(text, "end, "+name+", seed 0</text>") {
			t.Errorf("%s is not shown", name)
		}
	}
	if !strings.Contains(text, "stroke-dasharray") || strings.Contains(text, "NaN") || strings.Contains(text, "Inf") {
		t.Error("no dashed line, or a number that is none")
	}
	d := xml.NewDecoder(bytes.NewReader(svg))
	paper := map[string]float64{}
	for {
		token, err := d.Token()
		if err != nil {
			break
		}
		e, ok := token.(xml.StartElement)
		if !ok {
			continue
		}
		of := map[string]float64{}
		for _, a := range e.Attr {
			of[a.Name.Local], _ = strconv.ParseFloat(a.Value, 64)
		}
		switch {
		case e.Name.Local == "svg":
			paper = of
		case e.Name.Local == "text" && (of["x"] <= 0 || of["x"] > paper["width"] || of["y"] <= 0 ||
			of["y"] > paper["height"]):
			t.Errorf("text at %g %g is not on the paper", of["x"], of["y"])
		}
	}
}

func TestDrawLeavesNodesOutOfThousands(t *testing.T) {
	r := simulate.Result{Policy: "kerf", CapacityMilli: 4_000_000,
		Kept: simulate.Kept{Samples: []simulate.Sample{{Allocated: 5, Refused: map[string]float64{"share": 1}}}}}
	for i := range 4000 {
		r.Nodes = append(r.Nodes, simulate.Sketch{Name: fmt.Sprint(i), GPUs: []simulate.Hole{{Free: 500, Lost: 200}}})
	}
	svg, err := plot.Draw([]simulate.Result{r})
	if err != nil {
		t.Fatal(err)
	}
	wellFormed(t, svg)
	for _, want := range []string{"one node of 10,", "GPUs: 4000 nodes, 4000 GPUs, 50.0 % booked, 20.0 % fragmented",
		"no such pod arrived"} {
		if !strings.Contains(string(svg), want) {
			t.Errorf("no %q", want)
		}
	}
	if len(svg) > 100_000 {
		t.Errorf("%d bytes", len(svg))
	}
}

func TestDrawRefuses(t *testing.T) {
	mixed := append(runs(t, 0, "spread"), runs(t, 0.5, "spread")...)
	for name, wrong := range map[string][]simulate.Result{"nothing": nil, "no samples": {{}}, "both kinds": mixed} {
		if _, err := plot.Draw(wrong); err == nil {
			t.Errorf("%s was drawn", name)
		}
	}
}
