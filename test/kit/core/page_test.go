// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package core_test

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kerf-gpu/kerf/test/kit/core"
)

var update = flag.Bool("update", false,
	"write the tables of docs/reference/hardware-kit.md, and the texts of the reports")

const page = "../../../docs/reference/hardware-kit.md"

// tables are the lines of the page that follow from the steps and the claims, by the head of their table.
func tables() map[string][]string {
	var steps, claims []string
	for _, s := range core.Steps() {
		steps = append(steps, fmt.Sprintf("| %d | %s | %s | %.0f |", s.Number, code(s.ID), s.Title, s.Seconds))
		for _, id := range s.Claims {
			text, _ := core.ClaimText(id)
			claims = append(claims, fmt.Sprintf("| %s | %s | %s |", code(s.ID), code(id), text))
		}
	}
	text, _ := core.ClaimText("settings-unchanged")
	claims = append(claims, fmt.Sprintf("| all | %s | %s |", code("settings-unchanged"), text))
	return map[string][]string{"| number | step | measures | seconds |": steps, "| step | claim | statement |": claims}
}

func code(name string) string { return "`" + name + "`" }

// The page has the steps and the claims of the code; -update writes them.
func TestPage(t *testing.T) {
	data, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	lines := strings.Split(string(data), "\n")
	left := tables()
	for i := 0; i < len(lines); i++ {
		out = append(out, lines[i])
		rows, ok := left[lines[i]]
		if !ok {
			continue
		}
		delete(left, lines[i])
		out = append(append(out, lines[i+1]), rows...)
		for i++; i+1 < len(lines) && lines[i+1] != ""; i++ {
		}
	}
	if len(left) > 0 {
		t.Fatalf("tables are missing: %v", left)
	}
	text := strings.Join(out, "\n")
	if *update {
		if err := os.WriteFile(page, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if d := cmp.Diff(string(data), text); d != "" {
		t.Errorf("run go test ./test/kit/core -update:\n%s", d)
	}
}
