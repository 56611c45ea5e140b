// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/kerf-gpu/kerf/internal/cli/command"
	"github.com/kerf-gpu/kerf/test/clitest"
)

func TestHelp(t *testing.T) { clitest.CheckHelp(t, clitest.New(nil).App.Root(Commands)) }

// A command that lists has all of kubectl's flags for that, with kubectl's letters.
func TestListingFlags(t *testing.T) {
	root := clitest.New(nil).App.Root(Commands)
	var lists []string
	clitest.WalkCommands(root, func(c *cobra.Command) {
		f := c.LocalFlags()
		if f.Lookup("selector") == nil && f.Lookup("all-namespaces") == nil {
			return
		}
		lists = append(lists, c.CommandPath())
		for name, letter := range map[string]string{"selector": "l", "all-namespaces": "A", "output": "o"} {
			if flag := f.Lookup(name); flag == nil || flag.Shorthand != letter {
				t.Errorf("%s: flag --%s is %+v", c.CommandPath(), name, flag)
			}
		}
		for _, form := range []string{"json", "yaml", "wide", "name", "jsonpath"} {
			if flag := f.Lookup("output"); flag == nil || !strings.Contains(flag.Usage, form) {
				t.Errorf("%s: flag --output does not name %s", c.CommandPath(), form)
			}
		}
	})
	slices.Sort(lists)
	if want := []string{"kerf mig status", "kerf status", "kerf top", "kerf usage"}; !slices.Equal(lists, want) {
		t.Errorf("commands that list: %q, want %q", lists, want)
	}
}

// Each form of output works for each command that lists a cluster.
func TestListingForms(t *testing.T) {
	for list, field := range map[string]string{"status": "nodes", "top --once": "usages", "mig status": "nodes"} {
		for _, form := range []string{"json", "yaml", "wide", "name", "jsonpath={." + field + "}"} {
			for _, scope := range []string{"-A", "-n team", "-l app=chat"} {
				f := clitest.StartCluster(t, Commands)
				f.Lists["/api/v1/pods"] = []string{`{"metadata":{"namespace":"team","name":"chat-0"}}`}
				line := list + " " + scope + " -o " + form
				if out, errOut, code := f.Call(strings.Split(line, " ")...); code != command.ExitOK || out == "" {
					t.Errorf("%s: status %d: %s%s", line, code, out, errOut)
				}
			}
		}
	}
}
