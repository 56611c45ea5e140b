// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package mig is kerf mig: MIG instances of a machine or a cluster, and pools made of a mig-parted file.
package mig

import (
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/kerf-gpu/kerf/internal/cli/command"
	"github.com/kerf-gpu/kerf/mig/parted"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/config"
	"github.com/kerf-gpu/kerf/sharing/translate/imports"
)

// partedLabel is the node's label by which NVIDIA's tools choose one of the configs in a file.
const partedLabel = "nvidia.com/mig.config"

// Commands are the commands of this package.
func Commands(a *command.App) []*cobra.Command {
	return []*cobra.Command{migCommand(a)}
}

func migCommand(a *command.App) *cobra.Command {
	c := &cobra.Command{
		Use:   "mig",
		Short: "Show, plan and apply MIG layouts",
		Long:  `Show the MIG instances of GPUs, and plan, apply or import MIG layouts.`,
		Args:  cobra.NoArgs,
		RunE:  func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(migStatusCommand(a), migPlanCommand(a), migApplyCommand(a), migImportCommand(a))
	return c
}

func migImportCommand(a *command.App) *cobra.Command {
	var chosen []string
	c := &cobra.Command{
		Use:   "import FILE",
		Short: "Convert a config of NVIDIA's mig-parted to SharingConfig pools",
		Long: `Read a config of mig-parted, as the GPU operator's MIG manager uses it, and
print a SharingConfig. Each named config becomes a pool for nodes with the label
` + partedLabel + `=NAME. With --config, the command imports only these
configs. FILE can be - for standard input. If the config has errors, the command
shows each with its line and prints no SharingConfig. FILE can also be the
ConfigMap of the config. The command needs no GPU and no agent.

The command does not support compute instances inside a MIG instance
(1c.3g.20gb).`,
		Example: "  kerf mig import config.yaml\n" +
			"  kubectl get configmap -n gpu-operator default-mig-parted-config -o yaml \\\n" +
			"    | kerf mig import - --config all-balanced",
		Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			data, err := a.ReadBounded(args[0], parted.MaxSize)
			if err != nil {
				return command.Fail(err)
			}
			if texts, ok := imports.Texts(data); ok && len(texts) == 1 {
				data = []byte(texts[0].Data)
			}
			text, err := importParted(data, chosen)
			if err != nil {
				return command.Fail(err)
			}
			_, err = a.Out.Write(text)
			return command.Fail(err)
		},
	}
	c.Flags().StringArrayVar(&chosen, "config", nil, "import only this config (repeatable)")
	return c
}

// importParted makes a SharingConfig of the chosen configs of mig-parted, or of all. GPUs that a config does not name
// stay as they are, and so they do with the pools.
func importParted(data []byte, chosen []string) ([]byte, error) {
	doc, err := parted.Parse(data)
	if err != nil {
		return nil, err //nolint:wrapcheck // it has field and line
	}
	configs := doc.Configs
	if len(chosen) > 0 {
		configs = nil
		for _, name := range chosen {
			c, err := doc.Config("--config", name)
			if err != nil {
				return nil, err //nolint:wrapcheck // it names the flag
			}
			configs = append(configs, c)
		}
	}
	var out config.Spec
	for _, c := range configs {
		if err := sharing.ValidateName("mig-configs."+c.Name, c.Name); err != nil {
			return nil, err //nolint:wrapcheck // it has the field
		}
		out.Pools = append(out.Pools, config.Pool{Name: c.Name, NodeSelector: map[string]string{partedLabel: c.Name},
			MIGLayouts: layouts(c), AutoMIGMode: config.AutoMIGModeOff})
	}
	conf, err := config.New(out)
	if err != nil {
		return nil, fmt.Errorf("the converted pools: %w", err)
	}
	text, err := conf.Encode()
	if err != nil {
		return nil, fmt.Errorf("write the pools: %w", err)
	}
	return text, nil
}

func layouts(c parted.Config) []config.MIGLayout {
	var list []config.MIGLayout
	for _, e := range c.Entries {
		l := config.MIGLayout{Enabled: e.Enabled}
		if !e.All {
			l.GPUs = e.Devices
		}
		for _, f := range e.Filters {
			id := fmt.Sprintf("0x%08X", f.Device)
			if f.Subsystem != 0 {
				id += fmt.Sprintf(":0x%08X", f.Subsystem)
			}
			l.PCI = append(l.PCI, id)
		}
		if !e.All && len(e.Devices) == 0 {
			continue // it means no GPU; here it would mean all
		}
		for _, n := range e.Instances { // one profile may stand under two spellings
			i := slices.IndexFunc(l.Instances, func(m config.MIGCount) bool { return m.Profile == n.Wish.String() })
			if i < 0 {
				i = len(l.Instances)
				l.Instances = append(l.Instances, config.MIGCount{Profile: n.Wish.String()})
			}
			l.Instances[i].Count += n.N
		}
		list = append(list, l)
	}
	return list
}
