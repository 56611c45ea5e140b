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
	"github.com/kerf-gpu/kerf/sharing/translate"
	"github.com/kerf-gpu/kerf/sharing/translate/imports"
	"github.com/kerf-gpu/kerf/sharing/translate/manifest"
)

// exitLeft is the exit status of translate --strict if a GPU request stays.
const exitLeft = 3

func translateCommand(a *command.App) *cobra.Command {
	var o manifest.Options
	var strict bool
	var to, memory string
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

The command finds pods and containers in objects of each kind, also in quotas
of whole GPUs. It edits the text in place: comments, order and other lines stay.
JSON stays JSON. Standard error names each GPU request that the command does not
change, such as a ResourceClaim. With --strict, one such request is an error
with exit status 3, and the command prints no manifest.

With --to dra, pods request the same by ResourceClaim: the command adds a
ResourceClaimTemplate for each kind of request, also for Kerf's own limits.
For a percentage, --gpu-memory states the memory of one GPU.

With --namespace, it does not change objects of other namespaces. FILE can be -
for standard input, for example as a Helm post-renderer. Kerf never translates a
pod automatically.`,
		Example: "  kerf translate pod.yaml --to dra --gpu-memory 79GiB\n" +
			"  kerf translate deployment.yaml | kubectl apply -f -\n" +
			"  kerf translate job.yaml --strict --scheduler kerf-scheduler > out.yaml\n" +
			"  helm template mychart | kerf translate - --replicas 4 > out.yaml\n" +
			"  kubectl get deploy web -o yaml | kubectl kerf translate - | kubectl diff -f -",
		Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			err := checkTranslate(o)
			if err == nil {
				o.ByClaim, err = byClaim(to, memory)
			}
			if err != nil {
				return command.Misused(err)
			}
			return translateFile(a, args[0], o, strict)
		},
	}
	f := c.Flags()
	f.IntVar(&o.Replicas, "replicas", 0,
		"how many replicas NVIDIA's device plugin made of a GPU: nvidia.com/gpu.shared becomes that part of one")
	f.BoolVar(&o.SharedByName, "gpu-is-replica", false,
		"with --replicas: nvidia.com/gpu was a replica too (renameByDefault: false)")
	f.StringVar(&o.MIGSingle, "mig-single", "",
		"MIG profile of the nodes with strategy single, such as 1g.10gb: nvidia.com/gpu becomes that instance")
	f.IntVar(&o.MemoryFactor, "memory-factor", 1, "MiB in one unit of gpumem or vgpu-memory (HAMi: memoryFactor)")
	f.StringVar(&o.Scheduler, "scheduler", "", "scheduler that replaces another one in translated objects")
	f.StringVar(&to, "to", toLimits, "form of the requests: limits (kerf.dev resources) or dra (ResourceClaims)")
	f.StringVar(&memory, "gpu-memory", "",
		"with --to dra: memory of one GPU, such as 79GiB, to convert a percentage to GiB")
	f.BoolVar(&strict, "strict", false, "fail with exit status 3 if a GPU request stays")
	return c
}

// toLimits and toDRA are what translated pods request by.
const (
	toLimits = "limits"
	toDRA    = "dra"
)

// byClaim reads what pods are to request by; nil for limits.
func byClaim(to, memory string) (*translate.ClaimOptions, error) {
	switch {
	case to == toLimits && memory == "":
		return nil, nil
	case to == toLimits:
		return nil, sharing.Invalid("--gpu-memory", memory, "add --to dra", "is for ResourceClaims")
	case to != toDRA:
		return nil, sharing.Invalid("--to", to, "write limits or dra", "is no form of request")
	case memory == "":
		return &translate.ClaimOptions{}, nil
	}
	size, err := sharing.ParseSize("--gpu-memory", memory)
	if err == nil && size > 16384*sharing.GiB {
		err = sharing.Invalid("--gpu-memory", memory, "write the memory of one GPU", "is more than any GPU has")
	}
	return &translate.ClaimOptions{Memory: size}, err
}

// checkTranslate checks the flags.
func checkTranslate(o manifest.Options) error {
	if o.Replicas < 0 || o.Replicas > int(sharing.FullGPU) {
		return sharing.Invalid("--replicas", strconv.Itoa(o.Replicas), "write 1 to 100", "is not a number of replicas")
	}
	if o.SharedByName && o.Replicas == 0 {
		return sharing.Invalid("--gpu-is-replica", "", "add --replicas", "needs to know how many there were")
	}
	if _, ok := sharing.MIGResource(o.MIGSingle); o.MIGSingle != "" && !ok {
		return sharing.Invalid("--mig-single", o.MIGSingle, "write a profile such as 1g.10gb", "is not a MIG profile")
	}
	if o.MIGSingle != "" && o.SharedByName {
		return sharing.Invalid("--mig-single", o.MIGSingle, "leave out one of them",
			"cannot be given together with --gpu-is-replica")
	}
	if o.MemoryFactor < 1 || o.MemoryFactor > 1<<20 {
		return sharing.Invalid("--memory-factor", strconv.Itoa(o.MemoryFactor), "write 1 to 1048576", "is not a factor")
	}
	return nil
}

// translateFile translates one file, and prints the result.
func translateFile(a *command.App, name string, o manifest.Options, strict bool) error {
	data, err := a.ReadBounded(name, manifest.MaxSize)
	if err != nil {
		return command.Fail(err)
	}
	o.Namespace, o.Decimal = a.Overrides.Context.Namespace, decimal
	r, err := manifest.Translate(data, o)
	if err != nil {
		return command.Fail(err)
	}
	for _, s := range append(r.Differences, r.Left...) {
		_, _ = fmt.Fprintf(a.ErrOut, "%s translate: %s\n", a.Name(), s)
	}
	_, _ = fmt.Fprintf(a.ErrOut, "%s translate: %d pods found, %d translated, %d GPU requests not translated\n",
		a.Name(), r.Pods, r.Changed, len(r.Left))
	if strict && len(r.Left) > 0 {
		return command.Exit(exitLeft, sharing.Invalid("--strict", "", "change these requests by hand",
			"found %d GPU requests without a translation", len(r.Left)))
	}
	_, err = a.Out.Write(r.Text)
	return command.Fail(err)
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
  - Volcano's device-config.yaml (ConfigMap volcano-vgpu-device-config)
  - a ConfigMap with one of these, or with several of NVIDIA's: each becomes a
    pool of the nodes whose label nvidia.com/device-plugin.config selects it

Standard error lists what the command omits, with the reason. If something has
no counterpart, the command shows each such line and prints no config. FILE can
be - for standard input. The command needs no GPU and no agent.

Pools have no node selector, except from HAMi's config.json, which names nodes.
kerf mig import converts MIG layouts, and kerf translate converts pods.`,
		Example: "  kerf config import device-plugin.yaml > sharing.yaml\n" +
			"  kubectl get configmap -n kube-system hami-scheduler-device -o yaml \\\n" +
			"    | kerf config import -",
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
			for _, s := range r.Differences {
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
