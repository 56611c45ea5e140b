// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
)

// A config of nothing but errors does not make a log of its size.
func TestManyMistakes(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	b.WriteString(head + "spec:\n  pools: [{name: a}]\n")
	for i := range 900 {
		fmt.Fprintf(&b, "  x%d: 1\n", i)
	}
	_, err := Decode([]byte(b.String()))
	var mistakes Errors
	if !errors.As(err, &mistakes) || len(mistakes) != maxErrors+1 ||
		!strings.Contains(err.Error(), "has more errors") {
		t.Errorf("%d errors, the last is %v", len(mistakes), mistakes[len(mistakes)-1])
	}
}

// TestHostileConfigs decodes configs of the largest size that are nothing but errors. Each is rejected for its number
// of entries, before anything compares them.
func TestHostileConfigs(t *testing.T) {
	t.Parallel()
	for name, doc := range hostile(MaxSize) {
		_, err := Decode([]byte(doc))
		var mistakes Errors
		if !errors.As(err, &mistakes) || len(mistakes) > 3 ||
			!strings.Contains(err.Error(), " entries; the most are 1000; write fewer") {
			t.Errorf("%s: %d errors: %.300v", name, len(mistakes), err)
		}
	}
}

// BenchmarkHostileConfigs decodes configs as large as a caller of the node API may send.
func BenchmarkHostileConfigs(b *testing.B) {
	for name, doc := range hostile(256 << 10) {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if _, err := Decode([]byte(doc)); err == nil {
					b.Fatal("accepted")
				}
			}
		})
	}
}

// hostile are configs of a size that repeat one entry.
func hostile(size int) map[string]string {
	out := map[string]string{}
	for name, text := range map[string][3]string{
		"lists as pools":    {"  pools: [", "[],", "[]]"},
		"pools":             {"  pools:\n", "  - {name: p%d}\n", ""},
		"pools, no names":   {"  pools:\n", "  - {}\n", ""},
		"unknown fields":    {"  pools:\n", "  - {x: 1}\n", ""},
		"profiles":          {"  pools: [{name: a}]\n  profiles:\n", "  - {name: p%d, memory: 1GiB}\n", ""},
		"empty lists":       {"  pools: [{name: a}]\n  profiles:\n", "  - {namespaces: []}\n", ""},
		"names of profiles": {"  pools: [{name: a, allowedProfiles: [", "p%d,", "p]}]"},
		"labels":            {"  pools: [{name: a, nodeSelector: {", "k%d: v, ", "}}]"},
		"MIG layouts":       {"  pools: [{name: a, migLayouts: [", "{models: [x]},", "]}]"},
		"fields of the top": {"", "  k%d: 1\n", ""},
	} {
		var b strings.Builder
		b.WriteString(head + "spec:\n" + text[0])
		for i := 0; b.Len() < size-64; i++ {
			b.WriteString(strings.Replace(text[1], "%d", strconv.Itoa(i), 1))
		}
		out[name] = b.String() + text[2] + "\n"
	}
	return out
}

// TestManyNames has pools name profiles that are not there, among many that are.
func TestManyNames(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	b.WriteString(head + "spec:\n  profiles:\n")
	for i := range maxEntries {
		fmt.Fprintf(&b, "  - {name: profile-%d, gpuCount: 1}\n", i)
	}
	b.WriteString("  pools:\n  - {name: a, allowedProfiles: [profile-x]}\n")
	_, err := Decode([]byte(b.String()))
	if err == nil || !strings.Contains(err.Error(),
		`allowedProfiles[0] "profile-x" is not a profile of this config; name one of spec.profiles`) {
		t.Error(err)
	}
}
