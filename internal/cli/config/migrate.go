// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"github.com/kerf-gpu/kerf/internal/atomicfile"
	"github.com/kerf-gpu/kerf/internal/cli/command"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/config"
)

func configMigrateCommand(a *command.App) *cobra.Command {
	var write bool
	c := &cobra.Command{
		Use:   "migrate [FILE]",
		Short: "Convert a SharingConfig to the current version",
		Long: `Convert a SharingConfig of version kerf.dev/v1alpha1 to kerf.dev/v1alpha2, and
print it. Comments, order and layout stay. Standard error lists each renamed
field.

FILE can be - for standard input, which is the default. It can also be a
manifest or a Helm values file that has the SharingConfig as a literal block
(key: |). A file without old names stays unchanged. The command needs no
cluster, no GPU and no agent.`,
		Example: "  kerf config migrate --write sharing.yaml\n" +
			"  kubectl get cm -n kerf-system kerf-config -o yaml | kerf config migrate | \\\n" +
			"    kubectl apply -f -",
		Args: cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			name := "-"
			if len(args) > 0 {
				name = args[0]
			}
			if write && name == "-" {
				return command.Misused(sharing.Invalid("--write", "", "name a FILE", "cannot write standard input"))
			}
			return command.Fail(migrateFile(a, name, write))
		},
	}
	c.Flags().BoolVarP(&write, "write", "w", false, "write the result to FILE instead of standard output")
	return c
}

// migrateFile converts one file, and writes it to itself or to standard output.
func migrateFile(a *command.App, name string, write bool) error {
	data, err := a.ReadBounded(name, 2*config.MaxSize)
	if err != nil {
		return err //nolint:wrapcheck // it names the file
	}
	text, changes, err := migrated(data)
	if err != nil {
		return err
	}
	for _, c := range changes {
		_, _ = fmt.Fprintf(a.ErrOut, "%s config migrate: %s\n", a.Name(), c)
	}
	if !write {
		_, err = a.Out.Write(text)
		return err //nolint:wrapcheck // of the output
	}
	if len(changes) == 0 {
		return nil
	}
	info, err := os.Stat(name)
	if err == nil {
		err = atomicfile.Write(name, text, info.Mode().Perm())
	}
	return err //nolint:wrapcheck // it names the file
}

// migrated is the converted text of a file, and what changed in it.
func migrated(data []byte) ([]byte, []config.Change, error) {
	blocks, err := literalBlocks(data)
	if err != nil {
		return nil, nil, err
	}
	if blocks == nil {
		text, err := config.Migrate(data)
		return text, config.Changes(data), err //nolint:wrapcheck // it names the field
	}
	lines := strings.SplitAfter(string(data), "\n")
	var changes []config.Change
	for _, b := range blocks {
		text, err := config.Migrate(b.Data)
		if err != nil {
			return nil, nil, err //nolint:wrapcheck // it names the field
		}
		was, now := strings.Split(string(b.Data), "\n"), strings.Split(string(text), "\n")
		for i := range was {
			if was[i] == now[i] {
				continue
			}
			line := &lines[b.offset+i]
			indent := strings.Index(*line, was[i])
			if indent < 0 {
				return nil, nil, sharing.Invalid(fmt.Sprintf("line %d", b.offset+i+1), "",
					"convert the config separately",
					"has another text than the YAML parser reads")
			}
			*line = (*line)[:indent] + now[i] + (*line)[indent+len(was[i]):]
		}
		for _, c := range config.Changes(b.Data) {
			c.Line += b.offset
			changes = append(changes, c)
		}
	}
	return []byte(strings.Join(lines, "")), changes, nil
}

// literalBlocks are the SharingConfigs that other YAML documents have as text; nil if there is none.
func literalBlocks(data []byte) ([]part, error) {
	var out []part
	for decoder := yaml.NewDecoder(bytes.NewReader(data)); ; {
		var doc yaml.Node
		err := decoder.Decode(&doc)
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read the config: %w: %w", err, sharing.ErrInvalid)
		}
		if err := blocksIn(&doc, &out); err != nil {
			return nil, err
		}
	}
}

func blocksIn(n *yaml.Node, out *[]part) error {
	if n.Kind == yaml.ScalarNode && strings.Contains(n.Value, "kind: "+config.Kind+"\n") {
		if n.Style&yaml.LiteralStyle == 0 {
			return sharing.Invalid(fmt.Sprintf("line %d", n.Line), "", "write it as a literal block (key: |)",
				"has a SharingConfig in a form that cannot be converted")
		}
		*out = append(*out, part{File: config.File{Data: []byte(n.Value)}, offset: n.Line})
	}
	for _, below := range n.Content {
		if err := blocksIn(below, out); err != nil {
			return err
		}
	}
	return nil
}
