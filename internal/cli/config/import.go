// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/kerf-gpu/kerf/internal/cli/command"
	"github.com/kerf-gpu/kerf/sharing/translate/imports"
)

func configImportCommand(a *command.App) *cobra.Command {
	return &cobra.Command{
		Use:   "import FILE",
		Short: "Turn another tool's configuration into a SharingConfig",
		Long: `import reads how another tool shared GPUs, and prints a SharingConfig: the configuration of NVIDIA's device plugin
(time-slicing, MPS, MIG strategy), HAMi's device-config.yaml (ConfigMap hami-scheduler-device) or its config.json (ConfigMap
hami-device-plugin). What is left out is said on stderr, with the reason. What has no counterpart is said with its line, all of
it at once, and then nothing is printed. FILE may be - for the standard input. It needs no GPU and no agent.

Pools get no node selector, but for HAMi's config.json, which names nodes. MIG layouts come with kerf mig import, pods with
kerf translate.`,
		Example: "  kerf config import device-plugin.yaml > sharing.yaml\n" +
			"  kubectl get configmap -n kube-system hami-scheduler-device -o 'jsonpath={.data.device-config\\.yaml}' | kerf config import -",
		Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			text, err := a.ReadBounded(args[0], imports.MaxSize)
			if err != nil {
				return command.Fail(err)
			}
			r, err := imports.Parse(text)
			if err != nil {
				return command.Fail(err)
			}
			for _, s := range r.Said {
				_, _ = fmt.Fprintf(a.ErrOut, "%s config import: %s\n", a.Name(), s)
			}
			out, err := r.Config.Encode()
			if err == nil {
				_, err = a.Out.Write(out)
			}
			return command.Fail(err)
		},
	}
}
