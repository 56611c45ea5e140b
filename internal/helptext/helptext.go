// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package helptext prints the flags of a command in a given width.
//
// A template for cobra could do the same. But text/template calls methods by name, so the linker then keeps every
// method of every type. The agent would be larger by half.
package helptext

import (
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// WrapFlags makes the usage text of root, and of the commands below it, show flags in so many columns.
func WrapFlags(root *cobra.Command, columns int) {
	var wrapped func(*cobra.Command) error
	wrapped = func(c *cobra.Command) error {
		root.SetUsageFunc(nil) // cobra's own text
		text := c.UsageString()
		root.SetUsageFunc(wrapped)
		for _, flags := range []*pflag.FlagSet{c.LocalFlags(), c.InheritedFlags()} {
			if flags.HasAvailableFlags() {
				text = strings.Replace(text, trimmed(flags.FlagUsages()), trimmed(flags.FlagUsagesWrapped(columns)), 1)
			}
		}
		_, err := io.WriteString(c.OutOrStderr(), text)
		return err
	}
	root.SetUsageFunc(wrapped)
}

// trimmed is a list of flags as cobra prints it.
func trimmed(list string) string { return strings.TrimRight(list, " \n") }
