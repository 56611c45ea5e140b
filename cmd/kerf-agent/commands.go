// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/kerf-gpu/kerf/internal/cudacontext"
	"github.com/kerf-gpu/kerf/internal/kube/assign"
	"github.com/kerf-gpu/kerf/internal/nvml"
	"github.com/kerf-gpu/kerf/sharing/node/session"
	"github.com/kerf-gpu/kerf/sharing/node/uninstall"
)

// holdMost is how long a helper lives if nothing ends it before.
const holdMost = time.Minute

// holdContextCommand makes a context on the first GPU that CUDA shows, when the agent says so.
func holdContextCommand() *cobra.Command {
	return &cobra.Command{
		Use:    session.HelperCommand + " LIBRARY...",
		Short:  "Make a CUDA context and keep it until standard input ends",
		Hidden: true,
		Args:   cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, libraries []string) error {
			defer time.AfterFunc(holdMost, func() { os.Exit(1) }).Stop()
			return cudacontext.RunHelper(c.InOrStdin(), c.OutOrStdout(), libraries)
		},
	}
}

// assignClaimsCommand is the controller of the chart's dra.bindingConditions. It runs once per cluster, without a GPU.
func assignClaimsCommand() *cobra.Command {
	var o assign.Options
	var level string
	c := &cobra.Command{
		Use:   "assign-claims",
		Short: "Run the controller of pools with bindingConditions",
		Long: `Run the controller of pools with bindingConditions.

The command writes allocated ResourceClaims to the GPUNode of their node. The
agent there creates their MIG instances before kube-scheduler binds their pods.
It needs no GPU. Of several processes, the one with the Lease
kerf-claim-controller works.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			var err error
			if o.Log, err = logger(c.ErrOrStderr(), level); err != nil {
				return err
			}
			return assign.Run(c.Context(), o)
		},
	}
	f := c.Flags()
	f.StringVar(&o.Kubeconfig, "kubeconfig", "", "kubeconfig file; empty: the service account of the pod")
	f.StringVar(&o.Identity, "identity", "", "name of this process in the Lease, such as the name of its pod")
	f.StringVar(&level, "log-level", "info", "least level of log lines: debug, info, warn or error")
	_ = c.MarkFlagRequired("identity")
	return c
}

func uninstallCommand(env environment) *cobra.Command {
	r, stay := uninstall.Removal{Again: env.again}, false
	c := &cobra.Command{
		Use:   "uninstall",
		Short: "Remove everything that Kerf put on this machine",
		Long: `Remove everything that Kerf put on this machine: GPU settings, CDI specs, hooks,
sockets, checkpoints and the labels of its Node.

The command restores the power limits, time slices and compute modes that a
killed agent could not restore. This needs the driver. It ends MPS daemons that
the agent left.

It waits until no agent runs here and no process uses a grant, and logs what it
waits for. You may run it again. A directory that is a mount of the container
stays, empty.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			log, err := logger(c.ErrOrStderr(), "info")
			if err != nil {
				return err
			}
			r.Log, r.Libraries, r.DriverFolders = log, nvml.DefaultLibraryPaths(env.libraryPath),
				nvml.DriverFolders(env.libraryPath)
			if err := r.Run(c.Context()); err != nil {
				return err
			}
			if stay {
				<-c.Context().Done()
			}
			return nil
		},
	}
	f := c.Flags()
	f.StringVar(&r.Dir, "run-dir", or(env.dir, "/run/kerf"), "the agent's --run-dir")
	f.StringVar(&r.CDIDir, "cdi-dir", "/etc/cdi", "the agent's --cdi-dir; removes only Kerf's specs")
	f.StringVar(&r.HookDir, "hook-dir", "/opt/kerf", "the agent's --hook-dir")
	f.StringVar(&r.KubeletDir, "kubelet-dir", "",
		"the agent's --kubelet-dir; removes only Kerf's sockets in device-plugins; empty: none")
	f.StringVar(&r.AuditDir, "audit-dir", "", "the agent's --audit-dir; empty: keep the audit log")
	f.StringVar(&r.StateDir, "state-dir", "", "the agent's --state-dir; empty: it has none")
	f.StringVar(&r.NodeName, "node-name", env.nodeName,
		"name of the Node whose labels the command removes; empty: none")
	f.StringVar(&r.Kubeconfig, "kubeconfig", "",
		"kubeconfig file; empty: the service account of the pod")
	f.StringVar(&r.DevRoot, "dev-root", or(env.devRoot, "/"), "the agent's --dev-root")
	f.StringVar(&r.NVIDIASMI, "nvidia-smi", "",
		"path of the driver's nvidia-smi, which sets time slices; empty: search for it")
	f.BoolVar(&r.LeaveSettings, "leave-gpu-settings", false,
		"keep the GPU settings that Kerf made, for a machine without the driver")
	f.BoolVar(&stay, "stay", false, "then wait for a signal, as the container of a DaemonSet must")
	return c
}
