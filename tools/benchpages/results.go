// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// value is a measured value. Values of one unit of time or memory can be compared after base.
type value struct {
	Value float64 `json:"value"`
	Unit  string  `json:"unit"`
	Date  string  `json:"date,omitempty"`
}

type results map[string]value

func readResults(path string) (results, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read results: %w", err)
	}
	var r results
	if err := json.Unmarshal(data, &r); err != nil {
		return nil, fmt.Errorf("read results %s: %w", path, err)
	}
	return r, nil
}

func writeResults(path string, r results) error {
	var lines []string // one for each value, so that a change is one line
	for _, key := range slices.Sorted(maps.Keys(r)) {
		data, err := json.Marshal(r[key])
		if err != nil {
			return fmt.Errorf("write results: %w", err)
		}
		lines = append(lines, fmt.Sprintf("  %q: %s", key, data))
	}
	text := "{\n" + strings.Join(lines, ",\n") + "\n}\n"
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		return fmt.Errorf("write results: %w", err)
	}
	return nil
}

var (
	resultLine = regexp.MustCompile(`RESULT (\S+) (\S+) (\S+)`)
	// benchLine is a line of Go's benchmarks. It has the name with the number of CPUs, how often it ran, and pairs of a
	// value and its unit.
	benchLine = regexp.MustCompile(`^(Benchmark\S*?)(?:-\d+)?\s+\d+\s+(.*)$`)
	// knownUnits are what a unit of a benchmark can be read as; the rest of its name is part of the key.
	knownUnits = regexp.MustCompile(`(?:^|[^a-zµ])(ns|µs|us|ms|MiB)(?:[^a-zµ]|$)`)
)

// parse reads measured values. Where a key comes several times, the median counts.
func parse(in io.Reader) (results, error) {
	seen := map[string][]value{}
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := lines.Text()
		for _, m := range resultLine.FindAllStringSubmatch(line, -1) {
			v, err := strconv.ParseFloat(m[2], 64)
			if err != nil {
				return nil, fmt.Errorf("line %q: %w", line, err)
			}
			seen[m[1]] = append(seen[m[1]], value{Value: v, Unit: m[3]})
		}
		if m := benchLine.FindStringSubmatch(line); m != nil {
			addBenchmark(seen, m[1], strings.Fields(m[2]))
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("read output: %w", err)
	}
	out := results{}
	for key, all := range seen {
		slices.SortFunc(all, compare)
		out[key] = all[len(all)/2]
	}
	return out, nil
}

func addBenchmark(seen map[string][]value, name string, pairs []string) {
	for i := 0; i+1 < len(pairs); i += 2 {
		v, err := strconv.ParseFloat(pairs[i], 64)
		if err != nil {
			return // the end of the line is text
		}
		unit := pairs[i+1]
		key := name + "." + unit
		if m := knownUnits.FindStringSubmatch(unit); m != nil {
			unit = m[1]
		} else if strings.HasPrefix(unit, "%") {
			unit = "%"
		}
		seen[key] = append(seen[key], value{Value: v, Unit: unit})
	}
}
