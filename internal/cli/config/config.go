// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package config is the commands about a SharingConfig: kerf config, and kerf translate, which turns manifests of other
// tools into Kerf's.
package config

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"github.com/kerf-gpu/kerf/internal/cli/command"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/config"
	"github.com/kerf-gpu/kerf/sharing/config/reference"
)

// Commands are the commands of this package.
func Commands(a *command.App) []*cobra.Command {
	return []*cobra.Command{configCommand(a), translateCommand(a)}
}

func configCommand(a *command.App) *cobra.Command {
	c := &cobra.Command{
		Use:   "config",
		Short: "Validate, compare, convert and import SharingConfigs",
		Long:  `The SharingConfig has the pools, profiles and prices of a cluster.`,
		Args:  cobra.NoArgs,
		RunE:  func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(configValidateCommand(a), configDiffCommand(a), configPlanCommand(a), configSchemaCommand(a),
		configImportCommand(a), configMigrateCommand(a))
	return c
}

// validated is what validate answers scripts.
type validated struct {
	Valid    bool          `json:"valid"`
	SHA256   string        `json:"sha256,omitempty"`
	Pools    []string      `json:"pools"`
	Profiles []string      `json:"profiles"`
	Errors   []errorAnswer `json:"errors"`
	// Warnings are the fields that have another name in the current version.
	Warnings []string `json:"warnings"`
}

// errorAnswer is one error: its position, the problem, and allowed values. Text is the whole message.
type errorAnswer struct {
	File    string `json:"file"`
	Line    int    `json:"line"`
	Path    string `json:"path"`
	Value   string `json:"value"`
	Problem string `json:"problem"`
	Remedy  string `json:"remedy"`
	Text    string `json:"text"`
}

// validatedOf is the answer for a config; a config that cannot be read has none.
func validatedOf(d sharingDocument, err error) (validated, error) {
	v := validated{Valid: err == nil, Pools: []string{}, Profiles: []string{}, Errors: []errorAnswer{},
		Warnings: []string{}}
	if w := config.Warning(d.files...); w != "" && err == nil {
		v.Warnings = append(v.Warnings, w)
		for _, f := range d.files {
			for _, c := range config.Changes(f.Data) {
				c.File, c.Line = f.Name, c.Line+d.offsets[f.Name]
				v.Warnings = append(v.Warnings, c.String())
			}
		}
	}
	if errs := (config.Errors{}); errors.As(err, &errs) {
		for _, m := range errs {
			v.Errors = append(v.Errors, errorAnswer{m.File, m.Line, m.What.Field, m.What.Value, m.What.Problem,
				m.What.Remedy, m.Error()})
		}
		return v, nil
	}
	if err != nil {
		return v, err
	}
	v.SHA256 = config.Hash(d.files)
	for _, p := range d.config.Pools() {
		v.Pools = append(v.Pools, p.Name)
	}
	for _, p := range d.config.Profiles() {
		v.Profiles = append(v.Profiles, p.Name)
	}
	return v, nil
}

func configValidateCommand(a *command.App) *cobra.Command {
	var output string
	c := &cobra.Command{
		Use:   "validate FILE...",
		Short: "Show all errors of a SharingConfig",
		Long: `Show all errors of a SharingConfig, each with its file, line and path, the
allowed values, and the value that was probably meant. Several files are one
config. FILE can be - for standard input, or a manifest with a ConfigMap. The
command needs no cluster, no GPU and no agent.`,
		Example: "  kerf config validate sharing.yaml\n  kubectl get cm -n kerf-system kerf-config -o yaml | " +
			"kerf config validate -",
		Args: cobra.MinimumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			if err := command.CheckOutput(output); err != nil {
				return err
			}
			d, wrong := readDocument(a, args)
			v, err := validatedOf(d, wrong)
			if output == "" {
				for _, w := range v.Warnings {
					_, _ = fmt.Fprintf(a.ErrOut, "%s config validate: warning: %s\n", a.Name(), w)
				}
			}
			if err == nil && (wrong == nil || output != "") {
				err = a.Answer(output, v, func() string {
					return fmt.Sprintf("valid: %d pools, %d profiles, sha256 %s\n", len(v.Pools), len(v.Profiles),
						v.SHA256)
				})
			}
			return command.Fail(cmp.Or(err, wrong))
		},
	}
	command.OutputFlag(c, &output)
	return c
}

func configSchemaCommand(a *command.App) *cobra.Command {
	return &cobra.Command{
		Use:   "schema",
		Short: "Print the JSON Schema of the SharingConfig, for editors",
		Args:  cobra.NoArgs,
		RunE: func(_ *cobra.Command, _ []string) error {
			text, err := reference.Schema()
			if err == nil {
				_, err = a.Out.Write(text)
			}
			return command.Fail(err)
		},
	}
}

// sharingDocument is a SharingConfig that was read.
type sharingDocument struct {
	config config.Config
	files  []config.File
	// offsets are by how many lines each file begins later in the manifest around it.
	offsets map[string]int
}

// readDocument reads and checks a config in files, manifests among them.
func readDocument(a *command.App, names []string) (sharingDocument, error) {
	d := sharingDocument{offsets: map[string]int{}}
	for _, name := range names {
		data, err := a.ReadBounded(name, 2*config.MaxSize)
		if err != nil {
			return d, err
		}
		if name == "-" {
			name = "stdin"
		}
		parts := inManifest(name, data)
		if parts == nil {
			parts = []part{{File: config.File{Name: name, Data: data}}}
		}
		for _, p := range parts {
			if _, twice := d.offsets[p.Name]; twice {
				return d, sharing.Invalid("FILE", p.Name, "name each file once", "is named twice")
			}
			d.offsets[p.Name] = p.offset
			d.files = append(d.files, p.File)
		}
	}
	var err error
	d.config, err = config.DecodeFiles(d.files...)
	if errs := (config.Errors{}); errors.As(err, &errs) {
		for i, m := range errs {
			if m.Line > 0 {
				errs[i].Line += d.offsets[m.File]
			}
		}
		return d, errs
	}
	if len(d.files) == 1 {
		name := d.files[0].Name
		d.files[0].Name = filepath.Base(name)
		d.offsets[d.files[0].Name] = d.offsets[name]
	}
	return d, err //nolint:wrapcheck // it has file, line and field
}

// part is a file of a config, and by how many lines it begins later in the manifest around it.
type part struct {
	config.File

	offset int
}

// inManifest are the parts of a config that the ConfigMaps of a manifest have; nil where there is no ConfigMap.
func inManifest(name string, data []byte) []part {
	var out []part
	for decoder := yaml.NewDecoder(bytes.NewReader(data)); ; {
		var doc yaml.Node
		err := decoder.Decode(&doc)
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil || len(doc.Content) != 1 {
			return nil // as a config, it is rejected with its errors
		}
		if kind := below(doc.Content[0], "kind"); kind == nil || kind.Value != "ConfigMap" {
			continue
		}
		entries := below(doc.Content[0], "data")
		for i := 0; entries != nil && i+1 < len(entries.Content); i += 2 {
			key, value := entries.Content[i].Value, entries.Content[i+1]
			if !config.IsFile(key) || value.Kind != yaml.ScalarNode || !strings.Contains(value.Value, config.Kind) {
				continue
			}
			p := part{File: config.File{Name: name + " (" + key + ")", Data: []byte(value.Value)}}
			if value.Style&yaml.LiteralStyle != 0 {
				p.offset = value.Line
			}
			out = append(out, p)
		}
	}
}

// below is the value of a mapping's key, nil where it has none.
func below(n *yaml.Node, name string) *yaml.Node {
	if n.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == name {
			return n.Content[i+1]
		}
	}
	return nil
}
