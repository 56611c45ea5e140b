// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
)

// page is what a page of docs/benchmarks shows.
type page struct {
	// Columns are the heads of the table; empty for metric, median, p99, target and met.
	Columns []string `json:"columns,omitempty"`
	Rows    []row    `json:"rows"`
	Chart   chart    `json:"chart"`
}

// row is a line of the table. Median, P99 and Cells are keys of results; "" is shown as a dash.
type row struct {
	Metric string `json:"metric"`
	Median string `json:"median,omitempty"`
	P99    string `json:"p99,omitempty"`
	// Cells are the other columns of a page with special columns.
	Cells []string `json:"cells,omitempty"`
	// Target is the target in words; empty for none. Most and Least bound the value of the key Of, in its own unit.
	Target string   `json:"target,omitempty"`
	Of     string   `json:"of,omitempty"`
	Max    *float64 `json:"most,omitempty"`
	Least  *float64 `json:"least,omitempty"`
}

// chart is a bar chart.
type chart struct {
	Title string  `json:"title"`
	Unit  string  `json:"unit"`
	From  float64 `json:"from,omitempty"`
	To    float64 `json:"to"`
	Bars  []bar   `json:"bars"`
}

// bar is a value of results in the unit of its chart.
type bar struct {
	Label string `json:"label"`
	Key   string `json:"key"`
}

func readPages(path string) (map[string]page, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read pages: %w", err)
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	var p map[string]page
	if err := d.Decode(&p); err != nil {
		return nil, fmt.Errorf("read pages %s: %w", path, err)
	}
	return p, nil
}

const begin, end = "<!-- results -->\n", "<!-- end of results -->\n"

// put replaces the results in the text of the page.
func (p page) put(text string, values results) (string, error) {
	before, rest, ok := strings.Cut(text, begin)
	_, after, closed := strings.Cut(rest, end)
	if !ok || !closed {
		return "", errors.New("the lines that enclose the results are missing")
	}
	table, err := p.table(values)
	if err != nil {
		return "", err
	}
	drawn, err := p.Chart.draw(values)
	if err != nil {
		return "", err
	}
	return before + begin + table + "\n" + drawn + end + after, nil
}

func (p page) table(values results) (string, error) {
	columns := p.Columns
	if columns == nil {
		columns = []string{"metric", "median", "p99", "target", "met"}
	}
	var b strings.Builder
	writeLine(&b, columns)
	b.WriteString(strings.Repeat("|---", len(columns)) + "|\n")
	for _, r := range p.Rows {
		cells := []string{r.Metric}
		keys := r.Cells
		if p.Columns == nil {
			keys = []string{r.Median, r.P99}
		}
		for _, key := range keys {
			text, err := show(values, key)
			if err != nil {
				return "", fmt.Errorf("row %q: %w", r.Metric, err)
			}
			cells = append(cells, text)
		}
		if p.Columns == nil {
			met, err := r.met(values)
			if err != nil {
				return "", fmt.Errorf("row %q: %w", r.Metric, err)
			}
			cells = append(cells, orDash(r.Target), met)
		}
		if len(cells) != len(columns) {
			return "", fmt.Errorf("row %q: %d cells for %d columns", r.Metric, len(cells), len(columns))
		}
		writeLine(&b, cells)
	}
	return b.String(), nil
}

func writeLine(b *strings.Builder, cells []string) {
	b.WriteString("| " + strings.Join(cells, " | ") + " |\n")
}

func orDash(s string) string {
	if s == "" {
		return "–"
	}
	return s
}

func show(values results, key string) (string, error) {
	if key == "" {
		return "–", nil
	}
	v, ok := values[key]
	if !ok {
		return "", fmt.Errorf("no result %q", key)
	}
	return v.String(), nil
}

// met says whether the measured value is within the bounds; a row without a bound has no answer.
func (r row) met(values results) (string, error) {
	if r.Max == nil && r.Least == nil {
		if r.Target != "" {
			return "", errors.New("the target has no bound")
		}
		return "–", nil
	}
	v, ok := values[r.Of]
	if !ok {
		return "", fmt.Errorf("no result %q", r.Of)
	}
	if r.Max != nil && v.Value > *r.Max || r.Least != nil && v.Value < *r.Least {
		return "no", nil
	}
	return "yes", nil
}

func (c chart) draw(values results) (string, error) {
	var labels, bars []string
	for _, b := range c.Bars {
		v, ok := values[b.Key]
		if !ok {
			return "", fmt.Errorf("chart %q: no result %q", c.Title, b.Key)
		}
		x, kind := v.base()
		if s, ok := scales()[c.Unit]; ok {
			if s.kind != kind {
				return "", fmt.Errorf("chart %q: %s is not in %s", c.Title, b.Key, c.Unit)
			}
			x /= s.factor
		}
		labels = append(labels, fmt.Sprintf("%q", b.Label))
		bars = append(bars, trim(fmt.Sprintf("%.2f", x)))
	}
	return fmt.Sprintf("```mermaid\nxychart-beta\n    title %q\n    x-axis [%s]\n    y-axis %q %s --> %s\n    bar "+
		"[%s]\n```\n",
		c.Title, strings.Join(labels, ", "), c.Unit, trim(fmt.Sprintf("%.2f", c.From)), trim(fmt.Sprintf("%.2f", c.To)),
		strings.Join(bars, ", ")), nil
}
