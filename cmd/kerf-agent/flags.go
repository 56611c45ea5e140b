// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"log/slog"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kerf-gpu/kerf/internal/failpoint"
	"github.com/kerf-gpu/kerf/internal/nvml"
	"github.com/kerf-gpu/kerf/internal/subuid"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/node/agent"
	"github.com/kerf-gpu/kerf/sharing/node/options"
)

// environment is what main read from the process's environment: defaults of flags, and the switch of the
// crash tests.
type environment struct {
	again                                                   func() error
	libraryPath, devRoot, config, dir, nodeName, failpoints string
	// path is where programs are looked for.
	path string
	// pidSpace is the number of the pid namespace that stands for the machine's in tests; empty: the machine's.
	pidSpace string
}

func command(env environment, kill func(point string)) *cobra.Command {
	opt, level := options.Options{Version: version, Again: env.again}, ""
	c := &cobra.Command{
		Use:           "kerf-agent --dir DIR",
		Short:         "Kerf's node agent: claims, caps and keeps fragments of this machine's GPUs",
		Version:       version,
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := complete(&opt, env, kill); err != nil {
				return err
			}
			var err error
			if opt.Log, err = logger(c.ErrOrStderr(), level); err != nil {
				return err
			}
			return agent.Run(c.Context(), opt)
		},
	}
	c.AddCommand(removeCommand(env), holdContextCommand())
	f := c.Flags()
	f.StringVar(&opt.Dirs.Dir, "dir", or(env.dir, "/run/kerf"), "directory of the sockets and the record")
	f.StringVar(&opt.Source.File, "config", env.config, "SharingConfig document, or a folder of its files; empty for the built-in default")
	f.StringVar(&opt.Source.Map, "config-map", "", "namespace/name of the ConfigMap that holds the document; it is watched, and --config counts only until it was read (with --kubernetes)")
	f.StringToStringVar(&opt.Source.Labels, "node-label", nil, "label of this node, by which its pool is chosen, over those of its object in Kubernetes (key=value, repeatable)")
	f.StringVar(&opt.Driver.DevRoot, "dev-root", or(env.devRoot, "/"), "directory that holds dev/nvidiaN")
	f.StringVar((*string)(&opt.Driver.By), "driver-by", "", "how the driver's library and device files reach this program's pod: runtimeClass or hostLibrary, as the chart's pools have it; empty for a program of the node itself. It changes only what is advised where they do not")
	f.StringVar(&opt.Driver.CapsRoot, "caps-root", "", "directory that holds dev/nvidia-caps and proc/driver/nvidia/capabilities, by the same path for this program and the container runtime; empty for --dev-root")
	f.StringVar(&opt.Driver.NVIDIASMI, "nvidia-smi", "", "the driver's nvidia-smi, which sets time slices; empty to look for it")
	f.StringVar(&opt.Dirs.Locks, "lock-dir", "/run/kerf/locks", "directory of the locks that keep a second agent off a GPU; the same for all agents of a machine")
	f.StringVar(&opt.Dirs.Audit, "audit-dir", "", "directory of the audit log, which should outlive a reboot; empty for audit in --dir")
	f.StringVar(&opt.Dirs.State, "state-dir", "", "this agent's directory of what must outlive a reboot: the MIG journals, which tell Kerf's instances, and a MIG mode that is Kerf's, from another's, the last good document, and which GPUs are cordoned; empty for --dir")
	f.StringVar(&opt.Access.Group, "group", "kerf", "group whose members may use the node socket; root alone may where there is no such group")
	f.StringVar(&opt.Access.HTTP, "http", "", "also serve /metrics, /healthz and /readyz on this TCP address, such as 127.0.0.1:9445")
	f.BoolVar(&opt.Containers.Serve, "containers", false, "serve containers that are no pod's (kerf run --image, kerf oci patch): installs kerf-hook and CDI specs")
	f.BoolVar(&opt.Cluster.Serve, "kubernetes", false, "serve kubelet and the container runtime on this node of a cluster")
	f.StringVar(&opt.Cluster.Node, "node-name", env.nodeName, "this node's name in Kubernetes")
	f.BoolVar(&opt.Cluster.Label, "node-labels", false, "label this node's object by its GPUs, and take its taint kerf.dev/starting off when containers with a GPU can start")
	f.StringVar(&opt.Cluster.Kubeconfig, "kubeconfig", "", "file to reach the API server with; empty for the service account of the agent's pod")
	f.StringVar(&opt.Cluster.Kubelet, "kubelet-dir", "/var/lib/kubelet", "kubelet's directory, which holds device-plugins and pod-resources")
	f.StringVar(&opt.Cluster.NRISocket, "nri-socket", "/var/run/nri/nri.sock", "the container runtime's NRI socket")
	f.StringVar(&opt.Cluster.RuntimeSocket, "containerd-socket", "/run/containerd/containerd.sock", "the container runtime's socket")
	f.StringVar(&opt.Cluster.ToolkitConfig, "toolkit-config", "/etc/nvidia-container-runtime/config.toml", "configuration of NVIDIA's container toolkit, to judge whether containers can get around their grant by it")
	f.StringVar(&opt.Containers.CDI, "cdi-dir", "/etc/cdi", "directory for Kerf's CDI specs; it should outlive a reboot")
	f.StringVar(&opt.Containers.CDISources, "cdi-source-dirs", "/etc/cdi:/var/run/cdi", "directories of the node's nvidia.com/gpu CDI spec")
	f.StringVar(&opt.Containers.Hooks, "hook-dir", "/opt/kerf", "directory on the host in which kerf-hook and libkerf.so are installed, under the agent's version")
	f.StringVar(&opt.Containers.Hook, "hook-binary", "", "the kerf-hook to install; empty for the one beside this program")
	f.StringVar(&opt.Containers.Library, "library", "", "the libkerf.so that backend libkerf preloads; empty for the one beside this program")
	f.StringVar(&opt.Driver.Settings, "gpu-settings", sharing.GPUSettingsManage, "manage: change GPU settings as the pool says (MIG mode and instances, compute mode, time slice, power limit); read-only: change none, and report what needs a change as not supported")
	f.StringVar(&opt.SubUIDs, "subuid-file", subuid.Path, "file of the users' subordinate UIDs, which count to their user in userQuota")
	f.StringSliceVar(&opt.Cluster.Exempt, "exempt-namespace", []string{"kerf-system", "gpu-operator"}, "namespace whose containers keep their own NVIDIA_VISIBLE_DEVICES (repeatable)")
	f.StringSliceVar(&opt.Cluster.HostPaths, "host-path-namespace", []string{"kerf-system", "kube-system", "gpu-operator"}, "namespace whose containers may mount host paths that reach GPUs past Kerf, besides those with the label kerf.dev/host-paths=allowed (repeatable)")
	f.StringVar(&level, "log-level", "info", "debug, info, warn or error")
	return c
}

// complete adds what the environment says, and rejects options that cannot be used.
func complete(opt *options.Options, env environment, kill func(point string)) error {
	opt.Driver.Libraries, opt.Driver.Folders = nvml.DefaultLibraryPaths(env.libraryPath), nvml.DriverFolders(env.libraryPath)
	opt.Driver.Path = env.path
	if err := opt.Complete(env.pidSpace); err != nil {
		return err
	}
	points, err := failpoint.Parse(env.failpoints, failpoint.Actions{Exit: kill})
	if err == nil {
		err = points.Check(agent.Failpoints()...)
	}
	if err != nil {
		return fmt.Errorf("KERF_FAILPOINTS: %w", err)
	}
	opt.Failpoints = points
	return nil
}

func logger(w io.Writer, level string) (*slog.Logger, error) {
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err != nil || strings.ContainsAny(level, "+-") {
		return nil, sharing.Invalid("--log-level", level, "write debug, info, warn or error", "is not a level")
	}
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: l})), nil
}

func or(a, b string) string {
	if a != "" {
		return a
	}
	return b
}
