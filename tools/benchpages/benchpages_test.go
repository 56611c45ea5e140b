// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const output = `goos: linux
BenchmarkAllocate-2   	   1000	      9876 ns/op	        11.00 p50-µs	        43.00 p99-µs
    bench_test.go:76: measured:
  RESULT start.p50 3.5 ms
    x_test.go:1: RESULT start.p50 4.5 ms
    x_test.go:1: RESULT start.p50 90 ms
    x_test.go:2: RESULT share.strict 8.73 ratio
BenchmarkInstanceMixes/uniform/kerf-2 1 5 ns/op 99.8 %@100
ok  	example	1.0s
`

func TestParse(t *testing.T) {
	got, err := parse(strings.NewReader(output))
	if err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]value{
		"BenchmarkAllocate.ns/op":                   {Value: 9876, Unit: "ns"},
		"BenchmarkAllocate.p50-µs":                  {Value: 11, Unit: "µs"},
		"BenchmarkAllocate.p99-µs":                  {Value: 43, Unit: "µs"},
		"start.p50":                                 {Value: 4.5, Unit: "ms"}, // the median of three
		"BenchmarkInstanceMixes/uniform/kerf.ns/op": {Value: 5, Unit: "ns"},
		"BenchmarkInstanceMixes/uniform/kerf.%@100": {Value: 99.8, Unit: "%"},
		"share.strict":                              {Value: 8.73, Unit: "ratio"},
	} {
		if got[key] != want {
			t.Errorf("%s: %v, want %v", key, got[key], want)
		}
	}
	if len(got) != 7 {
		t.Errorf("%d values: %v", len(got), got)
	}
	if _, err := parse(strings.NewReader("RESULT a b ms")); err == nil {
		t.Error("a value that is no number is accepted")
	}
}

func TestValuesForPeople(t *testing.T) {
	for want, v := range map[string]value{
		"11 µs": {Value: 11, Unit: "µs"}, "4.5 ms": {Value: 4.5, Unit: "ms"}, "182 ms": {Value: .182, Unit: "s"},
		"2.2 s": {Value: 2200, Unit: "ms"}, "77 ns": {Value: 77, Unit: "ns"}, "1 s": {Value: 999.6, Unit: "ms"},
		"52 MiB": {Value: 52, Unit: "MiB"}, "1.5 GiB": {Value: 1536, Unit: "MiB"}, "0.4%": {Value: .4, Unit: "%"},
		"10,701":    {Value: 10701, Unit: "pods"},
		"1 to 8.73": {Value: 8.73, Unit: "ratio"}, "0.90": {Value: .9, Unit: "times"},
		"365 pods/s":   {Value: 365, Unit: "pods/s"},
		"1,986 writes": {Value: 1986, Unit: "writes"}, "-20 µs": {Value: -.02, Unit: "ms"}, "0 ns": {Unit: "ms"},
	} {
		if got := v.String(); got != want {
			t.Errorf("%v: %q, want %q", v.Value, got, want)
		}
	}
}

func TestPage(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("pages.json", `{"start": {
		"rows": [
			{"metric": "start", "median": "start.p50", "target": "below 5 ms", "of": "start.p50", "most": 5},
			{"metric": "strict", "median": "share.strict", "target": "1 to 9", "of": "share.strict", "least": 8.8},
			{"metric": "Allocate", "median": "BenchmarkAllocate.p50-µs", "p99": "BenchmarkAllocate.p99-µs"}],
		"chart": {"title": "Start", "unit": "ms", "to": 10, "bars": [{"label": "Allocate", "key": "BenchmarkAllocate.p50-µs"}]}}}`)
	write("start.md", "# Start\n\n<!-- results -->\nold\n<!-- end of results -->\n\nA note.\n")
	now := time.Date(2026, 11, 24, 0, 0, 0, 0, time.UTC)
	if err := collect(filepath.Join(dir, "results.json"), strings.NewReader(output), now); err != nil {
		t.Fatal(err)
	}
	if err := run([]string{"--check", dir}, nil); err == nil || !strings.Contains(err.Error(), "make generate") {
		t.Errorf("--check of an old page: %v", err)
	}
	if err := run([]string{dir}, nil); err != nil {
		t.Fatal(err)
	}
	if err := run([]string{"--check", dir}, nil); err != nil {
		t.Errorf("--check of a current page: %v", err)
	}
	got, err := os.ReadFile(filepath.Join(dir, "start.md"))
	if err != nil {
		t.Fatal(err)
	}
	const want = "# Start\n\n<!-- results -->\n| metric | median | p99 | target | met |\n|---|---|---|---|---|\n" +
		"| start | 4.5 ms | – | below 5 ms | yes |\n| strict | 1 to 8.73 | – | 1 to 9 | no |\n" +
		"| Allocate | 11 µs | 43 µs | – | – |\n\n" +
		"```mermaid\nxychart-beta\n    title \"Start\"\n    x-axis [\"Allocate\"]\n    y-axis \"ms\" 0 --> 10\n" +
		"    bar [0.01]\n```\n<!-- end of results -->\n\nA note.\n"
	if string(got) != want {
		t.Errorf("the page is\n%s\nwant\n%s", got, want)
	}
	// A value that was not measured again stays.
	if err := collect(filepath.Join(dir, "results.json"), strings.NewReader("RESULT other 1 ms"), now); err != nil {
		t.Fatal(err)
	}
	if err := run([]string{"--check", dir}, nil); err != nil {
		t.Error(err)
	}
	if err := collect(filepath.Join(dir, "results.json"), strings.NewReader("nothing"), now); err == nil {
		t.Error("an output without values is accepted")
	}
}

func TestWrongPages(t *testing.T) {
	values := results{"a": {Value: 1, Unit: "ms"}}
	bound := 1.
	for name, p := range map[string]page{
		"no value":            {Rows: []row{{Metric: "m", Median: "b"}}},
		"target, no bound":    {Rows: []row{{Metric: "m", Median: "a", Target: "1 ms"}}},
		"bound of nothing":    {Rows: []row{{Metric: "m", Median: "a", Target: "1 ms", Of: "b", Max: &bound}}},
		"number of columns":   {Columns: []string{"x", "y"}, Rows: []row{{Metric: "m", Cells: []string{"a", "a"}}}},
		"bar without value":   {Chart: chart{Unit: "ms", Bars: []bar{{Key: "b"}}}},
		"bar of another kind": {Chart: chart{Unit: "MiB", Bars: []bar{{Key: "a"}}}},
	} {
		if _, err := p.put(begin+end, values); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	if _, err := (page{}).put("no place", values); err == nil {
		t.Error("a page without a place for its results is accepted")
	}
}
