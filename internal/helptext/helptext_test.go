// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package helptext

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// The flags of the command and those of its parent are wrapped, and nothing else of the text changes.
func TestWrapFlags(t *testing.T) {
	root := &cobra.Command{Use: "root"}
	child := &cobra.Command{Use: "child", Run: func(*cobra.Command, []string) {}}
	root.AddCommand(child)
	root.PersistentFlags().String("far", "", "a flag of all commands with more text than a line of forty columns holds")
	child.Flags().String("near", "", "a flag of this command with more text than a line of forty columns holds")
	before := child.UsageString()
	WrapFlags(root, 40)
	after := child.UsageString()
	for l := range strings.Lines(after) {
		if strings.Contains(l, "flag of") && len(l) > 41 {
			t.Errorf("%q has more than 40 columns", l)
		}
	}
	words := func(s string) string { return strings.Join(strings.Fields(s), " ") }
	if words(before) != words(after) || before == after {
		t.Errorf("before:\n%s\nafter:\n%s", before, after)
	}
	if again := child.UsageString(); again != after {
		t.Errorf("the second time:\n%s", again)
	}
}
