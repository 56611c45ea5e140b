// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"io"

	"github.com/spf13/cobra"

	"github.com/kerf-gpu/kerf/sharing"
)

// documentFlag defines -o for a command whose answer is a text for people, or a document for scripts.
func documentFlag(c *cobra.Command, output *string) {
	c.Flags().StringVarP(output, "output", "o", "", "json or yaml")
	complete(c, "output", "json", "yaml")
}

// documentForm checks what -o says.
func documentForm(output string) error {
	switch output {
	case "", "json", "yaml":
		return nil
	}
	return misused(sharing.Invalid("--output", output, "write json or yaml, or leave it out", "is not a form of output"))
}

// answer writes v as the document that output asks for, or the text for people.
func (a *app) answer(output string, v any, text func() string) error {
	if output == "" {
		_, err := io.WriteString(a.out, text())
		return err //nolint:wrapcheck // of the output
	}
	data, err := encoded(output, v)
	if err == nil {
		_, err = a.out.Write(data)
	}
	return err //nolint:wrapcheck // of the output
}
