// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"bytes"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kerf-gpu/kerf/internal/cli/command"
	run "github.com/kerf-gpu/kerf/internal/cli/simulate"
)

// What the pages show of kerf simulate and kerf-lab is what these print, except the speed. The running cluster that the
// pages show exists nowhere: TestSimulateFromCluster has one like it.
func TestSimulateAsDocumented(t *testing.T) {
	guide, err := os.ReadFile("../../docs/operate/what-if.md")
	if err != nil {
		t.Fatal(err)
	}
	labs, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	cluster, err := os.ReadFile("../../docs/operate/placement.yaml")
	if err != nil {
		t.Fatal(err)
	}
	text := string(guide) + "\n" + string(labs)
	_, shown, _ := strings.Cut(string(cluster), "machines:\n") // below its comment
	if !strings.Contains(text, "```yaml\nmachines:\n"+shown+"```") {
		t.Error("what-if.md does not show placement.yaml as it is")
	}
	t.Chdir(t.TempDir())
	write := func(name, text string) {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("placement.yaml", string(cluster))
	speed := regexp.MustCompile(`(?m) +(\d+|DECISIONS/S)$`)
	ran := 0
	for i, block := range strings.Split(text, "```") {
		if i%2 == 0 || !strings.HasPrefix(block, "\n$ ") {
			continue
		}
		for part := range strings.SplitSeq(strings.TrimPrefix(block, "\n$ "), "\n$ ") {
			line, shown, _ := strings.Cut(strings.TrimSuffix(part, "\n"), "\n")
			if name, ok := strings.CutPrefix(line, "cat "); ok {
				write(name, shown+"\n")
				continue
			}
			program, args, _ := strings.Cut(line, " ")
			if program != "kerf" && program != "kerf-lab" || strings.Contains(args, "--from-cluster") {
				continue
			}
			ran++
			out, errOut := &bytes.Buffer{}, &bytes.Buffer{}
			a := &command.App{Out: out, ErrOut: errOut, Getenv: func(string) string { return "" }}
			root := a.Root(run.Commands)
			if program == "kerf-lab" {
				root = Command(a)
			}
			code, _ := a.Run(root, strings.Fields(strings.ReplaceAll(args, "'", "")))
			said := strings.TrimSuffix(out.String(), "\n")
			if strings.Contains(shown, "DECISIONS/S") {
				said, shown = speed.ReplaceAllString(said, ""), speed.ReplaceAllString(shown, "")
			}
			if diff := cmp.Diff(strings.Split(shown, "\n"), strings.Split(said, "\n")); code != command.ExitOK ||
				diff != "" {
				t.Errorf("%s %s: status %d, %s (-docs +said):\n%s", program, args, code, errOut, diff)
			}
		}
	}
	if ran < 5 {
		t.Errorf("%d commands were found: too few to show anything", ran)
	}
}
