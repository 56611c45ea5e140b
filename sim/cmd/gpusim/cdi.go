// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"path/filepath"
	"strconv"

	"github.com/spf13/cobra"
	cdi "tags.cncf.io/container-device-interface/specs-go"

	"github.com/kerf-gpu/kerf/sim/control"
	"github.com/kerf-gpu/kerf/sim/root"
)

const (
	// cdiKind is the kind under which NVIDIA's toolkit lists a node's GPUs.
	cdiKind = "nvidia.com/gpu"
	// cdiVersion is the oldest that has all that is used here, so that every runtime reads it.
	cdiVersion = "0.5.0"
	// libDir is where programs of Debian and Ubuntu images look for libraries. The simulated libraries find the
	// GPUs in /dev when they are loaded from here.
	libDir = "/" + root.Libraries
)

func cdiCommand() *cobra.Command {
	var given string
	cmd := &cobra.Command{
		Use:   "cdi --dir DIR",
		Short: "Print the CDI spec by which containers get the GPUs",
		Long: lines("Print the CDI spec by which containers get the GPUs: "+cdiKind+
			" with each GPU by index and by UUID, and",
			"all of them, as NVIDIA's toolkit makes it for a real node. Write it to /etc/cdi/nvidia.json."),
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var s control.Status
			if err := ask(cmd.Context(), given, control.Request{Command: control.CmdStatus}, &s); err != nil {
				return err
			}
			enc := json.NewEncoder(cmd.OutOrStdout())
			enc.SetIndent("", "  ")
			return enc.Encode(cdiSpec(s.Dir, s.GPUs))
		},
	}
	dirFlag(cmd, &given)
	return cmd
}

// cdiSpec lists the GPUs that are simulated in dir. The spec's general edits apply with any of the devices, and have
// what every container needs in addition to its GPUs.
func cdiSpec(dir string, gpus []control.GPU) cdi.Spec {
	spec := cdi.Spec{
		Version: cdiVersion,
		Kind:    cdiKind,
		ContainerEdits: cdi.ContainerEdits{Mounts: []*cdi.Mount{
			socketMount(dir, "nvidiactl"),
			libMount(dir, "libnvidia-ml.so.1"),
			libMount(dir, "libcuda.so.1"),
		}},
	}
	all := cdi.Device{Name: "all"}
	for _, g := range gpus {
		edits := cdi.ContainerEdits{Mounts: []*cdi.Mount{socketMount(dir, "nvidia"+strconv.Itoa(g.Minor))}}
		spec.Devices = append(spec.Devices,
			cdi.Device{Name: strconv.Itoa(g.Index), ContainerEdits: edits},
			cdi.Device{Name: g.UUID, ContainerEdits: edits})
		all.ContainerEdits.Mounts = append(all.ContainerEdits.Mounts, edits.Mounts...)
	}
	spec.Devices = append(spec.Devices, all)
	return spec
}

// socketMount puts a GPU's socket where a real GPU's device file is.
func socketMount(dir, name string) *cdi.Mount {
	return &cdi.Mount{HostPath: filepath.Join(dir, "dev", name), ContainerPath: "/dev/" + name,
		Options: []string{"bind", "rw", "nosuid", "noexec"}}
}

func libMount(dir, name string) *cdi.Mount {
	return &cdi.Mount{HostPath: filepath.Join(dir, "lib", name), ContainerPath: filepath.Join(libDir, name),
		Options: []string{"bind", "ro", "nosuid", "nodev"}}
}
