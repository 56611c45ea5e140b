// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/kerf-gpu/kerf/internal/cli/command"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/audit"
	"github.com/kerf-gpu/kerf/sharing/audit/file"
)

func auditCommand(a *command.App) *cobra.Command {
	c := &cobra.Command{
		Use:   "audit",
		Short: "Look after the node's audit log",
		Args:  cobra.NoArgs,
	}
	var expect string
	verify := &cobra.Command{
		Use:   "verify [AUDIT-DIR]",
		Short: "Check that no line of the audit log was changed, taken out or put in",
		Long: "Check that each line of the node's audit log is whole and hangs on the one before it. It reads the files themselves, and " +
			"so needs the right to; without AUDIT-DIR they are those below --dir.\n\n" +
			"That lines were cut off at the end is seen only with --expect: keep the hash that is printed somewhere else.",
		Example: "  sudo kerf audit verify /var/lib/kerf/audit",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			dir := filepath.Join(a.Dir, "audit")
			if len(args) == 1 {
				dir = args[0]
			}
			return command.Fail(verifyAudit(a, dir, expect))
		},
	}
	verify.Flags().StringVar(&expect, "expect", "", "hash that a line of the log must have, as an earlier run printed it")
	c.AddCommand(verify)
	return c
}

// verifyAudit checks the files, and says what there is.
func verifyAudit(a *command.App, dir, expect string) error {
	paths, err := file.Files(dir)
	if err != nil {
		return err
	}
	if len(paths) == 0 {
		return fmt.Errorf("directory %q has no audit log: %w", dir, sharing.ErrNotFound)
	}
	found := expect == ""
	v, err := file.Verify(paths, func(e audit.Entry) { found = found || e.Sum == expect })
	if !found {
		err = errors.Join(err, fmt.Errorf("no line has the hash %q: lines were cut off, or the log was written anew: %w", expect, sharing.ErrInvalid))
	}
	if err != nil {
		return err
	}
	torn := ""
	if v.Torn {
		torn = "; the last line has no end yet"
	}
	_, err = fmt.Fprintf(a.Out, "entries %d to %d in %d files are whole%s\nhash of the last: %s\n", v.First, v.Tail.Seq, len(paths), torn, v.Tail.Sum)
	return err
}
