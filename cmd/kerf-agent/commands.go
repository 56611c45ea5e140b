// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/kerf-gpu/kerf/internal/cudacontext"
	"github.com/kerf-gpu/kerf/internal/nvml"
	"github.com/kerf-gpu/kerf/sharing/node/session"
	"github.com/kerf-gpu/kerf/sharing/node/uninstall"
)

// holdMost is how long a helper lives if nothing ends it before.
const holdMost = time.Minute

// holdContextCommand makes a context on the first GPU that CUDA shows, when the agent says so.
func holdContextCommand() *cobra.Command {
	return &cobra.Command{
		Use:    session.HoldContext + " LIBRARY...",
		Short:  "Make a CUDA context and keep it until standard input ends",
		Hidden: true,
		Args:   cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, libraries []string) error {
			defer time.AfterFunc(holdMost, func() { os.Exit(1) }).Stop()
			return cudacontext.Hold(c.InOrStdin(), c.OutOrStdout(), libraries)
		},
	}
}

func removeCommand(env environment) *cobra.Command {
	r, stay := uninstall.Removal{Again: env.again}, false
	c := &cobra.Command{
		Use:   "remove",
		Short: "Take everything that Kerf has put on this machine off again: settings of GPUs, CDI specs, hooks, sockets, records, labels of its node",
		Long: `What an agent that was killed has set on GPUs (power limit, time slice, compute mode) gets back what was there before, which takes the driver.
MPS daemons that it has left end.
It waits until no agent runs here and no process uses a GPU by a grant: a grant's limit ends with its cgroup. It may be run again,
and says what it waits for. What it empties may be a mount of its container: then the empty folder stays.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			log, err := logger(c.ErrOrStderr(), "info")
			if err != nil {
				return err
			}
			r.Log, r.Libraries, r.DriverFolders = log, nvml.DefaultLibraryPaths(env.libraryPath), nvml.DriverFolders(env.libraryPath)
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
	f.StringVar(&r.Dir, "dir", or(env.dir, "/run/kerf"), "the agent's --dir")
	f.StringVar(&r.CDIDir, "cdi-dir", "/etc/cdi", "the agent's --cdi-dir, of which Kerf's specs alone are taken")
	f.StringVar(&r.HookDir, "hook-dir", "/opt/kerf", "the agent's --hook-dir")
	f.StringVar(&r.KubeletDir, "kubelet-dir", "", "the agent's --kubelet-dir, of whose device-plugins Kerf's sockets alone are taken; empty for none")
	f.StringVar(&r.AuditDir, "audit-dir", "", "the agent's --audit-dir; empty keeps the audit log")
	f.StringVar(&r.StateDir, "state-dir", "", "the agent's --state-dir; empty where it has none")
	f.StringVar(&r.NodeName, "node-name", env.nodeName, "this node's name in Kubernetes, whose labels are taken off; empty for none")
	f.StringVar(&r.Kubeconfig, "kubeconfig", "", "file to reach the API server with; empty for the service account of the pod")
	f.StringVar(&r.DevRoot, "dev-root", or(env.devRoot, "/"), "the agent's --dev-root")
	f.StringVar(&r.NVIDIASMI, "nvidia-smi", "", "the driver's nvidia-smi, which sets time slices; empty to look for it")
	f.BoolVar(&r.LeaveSettings, "leave-gpu-settings", false, "leave GPUs the settings that Kerf made, where the driver is not there to put them back")
	f.BoolVar(&stay, "stay", false, "when all is gone, stay until a signal comes, as a DaemonSet's container must")
	return c
}
