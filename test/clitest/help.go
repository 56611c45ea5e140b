// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package clitest

import (
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// helpColumns is the width of a terminal that shows each help text without a broken line.
const helpColumns = 80

// verbs are the words that the first line of a help text may begin with.
func verbs() []string {
	return strings.Split("Add|Apply|Change|Check|Clear|Compute|Convert|Cordon|Describe|Generate|Mark|Measure|Migrate|"+
		"Move|Print|Remove|Run|Share|Show|Simulate|Suggest|Sum|Validate|Write", "|")
}

// CheckHelp checks the help of a command and of those below it. It begins with an imperative, and every flag has a
// text. Lines have at most 80 columns, and no word is on the never list.
func CheckHelp(t *testing.T, c *cobra.Command) {
	t.Helper()
	never := neverList(t)
	walkCommands(c, func(c *cobra.Command) {
		name := c.CommandPath()
		if word, _, _ := strings.Cut(c.Short, " "); !slices.Contains(verbs(), strings.Trim(word, ",")) ||
			strings.HasSuffix(c.Short, ".") {
			t.Errorf("%s: the first line %q is not an imperative", name, c.Short)
		}
		text := c.Short + "\n" + c.Long + "\n" + c.UsageString()
		for l := range strings.Lines(text) {
			if l = strings.TrimRight(l, "\n"); len([]rune(l)) > helpColumns {
				t.Errorf("%s: %d columns: %s", name, len([]rune(l)), l)
			}
		}
		for _, word := range never.FindAllString(text, -1) {
			t.Errorf("%s: do not write %q", name, word)
		}
		c.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if f.Hidden { // of kubectl
				return
			}
			if len(strings.Fields(f.Usage)) < 2 && f.Name != "output" || strings.HasSuffix(f.Usage, ".") {
				t.Errorf("%s: flag --%s says %q", name, f.Name, f.Usage)
			}
		})
	})
}

// walkCommands visits the commands that help shows, without those that cobra adds.
func walkCommands(c *cobra.Command, visit func(*cobra.Command)) {
	visit(c)
	for _, sub := range c.Commands() {
		if sub.IsAvailableCommand() && sub.Name() != "help" && sub.Name() != "completion" {
			walkCommands(sub, visit)
		}
	}
}

// WalkCommands visits a command and those below it.
func WalkCommands(c *cobra.Command, visit func(*cobra.Command)) { walkCommands(c, visit) }

// neverList matches the words that no text may have.
func neverList(t *testing.T) *regexp.Regexp {
	t.Helper()
	_, self, _, _ := runtime.Caller(0)
	data, err := os.ReadFile(filepath.Join(filepath.Dir(self), "..", "..", "tools", "vale", "styles", "Kerf",
		"Never.yml"))
	if err != nil {
		t.Fatal(err)
	}
	_, list, _ := strings.Cut(string(data), "tokens:\n")
	var tokens []string
	for l := range strings.Lines(list) {
		if token, ok := strings.CutPrefix(strings.TrimSpace(l), "- "); ok {
			tokens = append(tokens, strings.Trim(token, `'"`))
		}
	}
	if len(tokens) < 20 {
		t.Fatalf("the never list has %d words only", len(tokens))
	}
	return regexp.MustCompile("(?i)" + strings.Join(tokens, "|"))
}
