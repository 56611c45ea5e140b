// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package present turns the node API's picture of a node into what people and scripts read: a JSON document
// with stable names, tables, and bars.
//
// It promises to be pure: it has no I/O, clock or terminal, and gets width, color and user names. It gives the same
// output for the same snapshot. It never shows an unknown number as a number. It never lets control characters of a
// name or a reason reach a terminal.
//
// It does not decide anything about grants, and the text forms are for people: only the JSON (and YAML) is
// an interface.
package present

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"unicode"

	"go.yaml.in/yaml/v3"

	"github.com/kerf-gpu/kerf/sharing"
)

// unknown stands where a value is not known or there is none.
const unknown = "-"

// clean makes s safe for a terminal and keeps it in one line: what does not print becomes a question mark.
func clean(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '?'
	}, s)
}

// or is s, or the mark for nothing.
func or(s string) string {
	if s == "" {
		return unknown
	}
	return clean(s)
}

func size(b uint64) string { return sharing.Bytes(b).String() }

// times is an amount, and how often it is given where that is more than once.
func times(amount string, percent int) string {
	if f := sharing.Factor(max(0, min(percent, 1000))); f.More() {
		return amount + " x" + f.String()
	}
	return amount
}

// ofPercent is how much compute is granted, and of how much where that is more than there is.
func ofPercent(granted, percent int) string {
	text := strconv.Itoa(granted) + "%"
	if percent > 100 {
		text += " of " + strconv.Itoa(percent) + "%"
	}
	return text
}

// withLent is the guaranteed memory, and after a plus the burst memory.
func withLent(guaranteed, lent uint64) string {
	if lent == 0 {
		return size(guaranteed)
	}
	return size(guaranteed) + "+" + size(lent)
}

func sizeOr(b *uint64) string {
	if b == nil {
		return unknown
	}
	return size(*b)
}

// percent renders a share; 0 is a fair share, not none.
func percent(p uint32) string {
	if p == 0 {
		return "fair"
	}
	return sharing.Percent(p).String()
}

func utilization(u *uint32) string {
	if u == nil {
		return unknown
	}
	return strconv.Itoa(int(*u)) + "%"
}

// usable is what of a GPU can be granted at all; 0 if unknown.
func (g GPU) usable() uint64 {
	return uint64(sharing.Bytes(valueOf(g.CapacityBytes)).SubFloor(sharing.Bytes(valueOf(g.ReservedBytes))))
}

// allocatable is usable for people.
func (g GPU) allocatable() string {
	if g.CapacityBytes == nil {
		return unknown
	}
	return times(size(g.usable()), int(g.MemoryOvercommit))
}

// granted is the granted memory for people.
func (g GPU) granted() string {
	if g.GrantedBytes == nil {
		return unknown
	}
	return withLent(*g.GrantedBytes, g.BurstBytes)
}

// guaranteed is the memory of a share or grant for people. That of a whole GPU is 0 where it is unknown.
func guaranteed(memory, lent uint64, whole bool) string {
	if memory == 0 && whole {
		return unknown
	}
	return withLent(memory, lent)
}

func valueOf(b *uint64) uint64 {
	if b == nil {
		return 0
	}
	return *b
}

// plural is "1 pid", "2 pids".
func plural(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return strconv.Itoa(n) + " " + what
}

// JSON renders v, indented for people, or in one line for streams, with a newline at the end.
func JSON(v any, indent bool) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if indent {
		e.SetIndent("", "  ")
	}
	if err := e.Encode(v); err != nil {
		return nil, fmt.Errorf("encode json: %w", err)
	}
	return b.Bytes(), nil
}

// YAML renders v with the names, the order and the nulls of its JSON.
func YAML(v any) ([]byte, error) {
	// JSON is YAML: its tree keeps order and names, and only its style changes.
	text, err := JSON(v, false)
	if err != nil {
		return nil, err
	}
	var tree yaml.Node
	if err := yaml.Unmarshal(text, &tree); err != nil {
		return nil, fmt.Errorf("encode yaml: %w", err)
	}
	block(&tree)
	var b bytes.Buffer
	e := yaml.NewEncoder(&b)
	e.SetIndent(2)
	if err := e.Encode(&tree); err != nil {
		return nil, fmt.Errorf("encode yaml: %w", err)
	}
	if err := e.Close(); err != nil {
		return nil, fmt.Errorf("encode yaml: %w", err)
	}
	return b.Bytes(), nil
}

// block takes the JSON style off every node but strings, whose quotes keep them strings ("on", "1e3").
func block(n *yaml.Node) {
	if n.Kind != yaml.ScalarNode {
		n.Style = 0
	}
	for i, c := range n.Content {
		// Keys are names of ours and need no quotes.
		if n.Kind == yaml.MappingNode && i%2 == 0 {
			c.Style = 0
		}
		block(c)
	}
}

// shortHash is how many characters of a config's hash users see: enough to distinguish configs.
const shortHash = 12

// summary is the node in a few lines: the state first, then every reason and warning on a separate line.
func summary(s Status) []line {
	state := line{{green, "ready"}}
	if !s.Ready {
		state = line{{red, "not ready"}}
	}
	state = state.add(plainStyle, fmt.Sprintf("  driver %s  agent %s  pool %s  %s, %s", or(s.DriverVersion),
		or(s.AgentVersion),
		or(s.Config.Pool), plural(len(s.GPUs), "GPU"), plural(len(s.Grants), "grant")))
	lines := []line{state}
	if c := s.Config; c.SHA256 != "" {
		lines = append(lines, line{{plainStyle,
			clean(fmt.Sprintf("config %.*s from %s", shortHash, c.SHA256, or(c.Source)))}})
	}
	for _, r := range s.NotReady {
		lines = append(lines, line{{red, "not ready: "}, {plainStyle, clean(r)}})
	}
	for _, w := range s.Warnings {
		lines = append(lines, line{{yellow, "warning: "}, {plainStyle, clean(w)}})
	}
	for _, e := range s.Config.Errors {
		lines = append(lines, line{{yellow, "new config refused: "}, {plainStyle, clean(e)}})
	}
	for _, w := range s.Config.Pending {
		text := fmt.Sprintf("GPU %d: %s, when these have ended: %s", w.Index, strings.Join(w.Settings, ", "),
			strings.Join(w.BlockedBy, ", "))
		lines = append(lines, line{{yellow, "config waits: "}, {plainStyle, clean(text)}})
	}
	return lines
}
