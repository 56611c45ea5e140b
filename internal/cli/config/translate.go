// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"strconv"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kerf-gpu/kerf/internal/cli/command"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/translate/imports"
	"github.com/kerf-gpu/kerf/sharing/translate/manifest"
)

func translateCommand(a *command.App) *cobra.Command {
	var o manifest.Options
	c := &cobra.Command{
		Use:   "translate FILE",
		Short: "Convert manifests of another GPU tool to Kerf's",
		Long: `Read manifests of another tool and print them with Kerf's resources and
annotations. It knows:

  - NVIDIA's device plugin: nvidia.com/gpu, gpu.shared, mig-*
  - HAMi: gpumem, gpumem-percentage, gpucores, and annotations
  - KAI and Run:ai: gpu-fraction, gpu-memory, gpu-fraction-num-devices
  - Volcano: volcano.sh/vgpu-*

Each request stays the same. The command rounds memory up to GiB and says so on
standard error. If something has no counterpart, the command shows all such
places of all objects and prints no manifest.

Everything else stays: schedulerName, comments, other resources. The command
finds pods in objects of each kind. With --namespace, it does not change objects
of other namespaces. FILE can be - for standard input, for example as a Helm
post-renderer. Kerf never translates a pod automatically.`,
		Example: "  kerf translate deployment.yaml | kubectl apply -f -\n" +
			"  helm template mychart | kerf translate - --replicas 4 > out.yaml\n" +
			"  kubectl get deploy web -o yaml | kubectl kerf translate - | kubectl diff -f -",
		Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			if o.Replicas < 0 || o.Replicas > int(sharing.FullGPU) {
				return command.Misused(sharing.Invalid("--replicas", strconv.Itoa(o.Replicas), "write 1 to 100",
					"is not a number of replicas"))
			}
			if o.SharedByName && o.Replicas == 0 {
				return command.Misused(sharing.Invalid("--gpu-is-replica", "", "add --replicas",
					"needs to know how many there were"))
			}
			text, err := a.ReadBounded(args[0], manifest.MaxSize)
			if err != nil {
				return command.Fail(err)
			}
			o.Namespace, o.Decimal = a.Overrides.Context.Namespace, decimal
			r, err := manifest.Translate(text, o)
			if err != nil {
				return command.Fail(err)
			}
			for _, s := range r.Said {
				_, _ = fmt.Fprintf(a.ErrOut, "%s translate: %s\n", a.Name(), s)
			}
			_, _ = fmt.Fprintf(a.ErrOut, "%s translate: %d pods found, %d translated\n", a.Name(), r.Pods, r.Changed)
			_, err = a.Out.Write(r.Text)
			return command.Fail(err)
		},
	}
	f := c.Flags()
	f.IntVar(&o.Replicas, "replicas", 0,
		"how many replicas NVIDIA's device plugin made of a GPU: nvidia.com/gpu.shared becomes that part of one")
	f.BoolVar(&o.SharedByName, "gpu-is-replica", false,
		"with --replicas: nvidia.com/gpu was a replica too (renameByDefault: false)")
	return c
}

// decimal is a quantity's value as a whole number; what is none stays as it is, and is refused by who reads it.
func decimal(text string) string {
	q, err := resource.ParseQuantity(text)
	if err != nil {
		return text
	}
	v := q.Value()
	if resource.NewQuantity(v, resource.DecimalSI).Cmp(q) != 0 {
		return text
	}
	return strconv.FormatInt(v, 10)
}

func configImportCommand(a *command.App) *cobra.Command {
	return &cobra.Command{
		Use:   "import FILE",
		Short: "Convert another tool's config to a SharingConfig",
		Long: `Read another tool's config and print a SharingConfig. It knows:

  - NVIDIA's device plugin: time-slicing, MPS, MIG strategy
  - HAMi's device-config.yaml (ConfigMap hami-scheduler-device)
  - HAMi's config.json (ConfigMap hami-device-plugin)

Standard error lists what the command omits, with the reason. If something has
no counterpart, the command shows each such line and prints no config. FILE can
be - for standard input. The command needs no GPU and no agent.

Pools have no node selector, except from HAMi's config.json, which names nodes.
kerf mig import converts MIG layouts, and kerf translate converts pods.`,
		Example: "  kerf config import device-plugin.yaml > sharing.yaml\n" +
			"  kubectl get configmap -n kube-system hami-scheduler-device \\\n" +
			"    -o 'jsonpath={.data.device-config\\.yaml}' " +
			"| kerf config import -",
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
