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
	"github.com/kerf-gpu/kerf/internal/helptext"
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
		Use:           "kerf-agent --run-dir DIR",
		Short:         "Run the node agent, which shares the GPUs of this machine",
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
	c.AddCommand(uninstallCommand(env), holdContextCommand(), assignClaimsCommand())
	f := c.Flags()
	f.StringVar(&opt.Dirs.Dir, "run-dir", or(env.dir, "/run/kerf"), "directory of the sockets and the checkpoint")
	f.StringVar(&opt.Dirs.Locks, "lock-dir", "/run/kerf/locks",
		"directory of the locks against a second agent on a GPU; the same for all agents of a machine")
	f.StringVar(&opt.Dirs.Audit, "audit-dir", "",
		"directory of the audit log, which should survive a reboot; empty: audit in --run-dir")
	f.StringVar(&opt.Dirs.State, "state-dir", "", "directory of what must survive a reboot: MIG journals, the last "+
		"known good config, and the cordoned GPUs; empty: --run-dir")
	f.StringVar(&opt.Access.Group, "group", "kerf",
		"group whose members may use the node socket; only root may if the group does not exist")
	f.StringVar(&opt.Access.HTTP, "metrics-bind-address", "",
		"also serve /metrics, /healthz and /readyz on this TCP address, such as 127.0.0.1:9445")
	f.StringVar(&opt.SubUIDs, "subuid-file", subuid.Path,
		"file of the subordinate UIDs of users, for userQuota")
	sourceFlags(c, &opt.Source, env)
	driverFlags(c, &opt.Driver, env)
	containerFlags(c, &opt.Containers)
	clusterFlags(c, &opt.Cluster, env)
	f.StringVar(&level, "log-level", "info", "least level of log lines: debug, info, warn or error")
	helptext.WrapFlags(c, 60)
	return c
}

// sourceFlags are where the config comes from.
func sourceFlags(c *cobra.Command, opt *options.ConfigSource, env environment) {
	f := c.Flags()
	f.StringVar(&opt.File, "config", env.config,
		"SharingConfig file, or a directory of them; empty: the built-in config")
	f.StringVar(&opt.Map, "config-map", "", "NAMESPACE/NAME of the ConfigMap with the SharingConfig. The agent "+
		"watches it, and uses --config only until it has read it (with --kubernetes)")
	f.StringToStringVar(&opt.Labels, "node-label", nil,
		"label of this node that selects its pool, as KEY=VALUE; it overrides the label of the Node (repeatable)")
}

// driverFlags are where the driver's files are, and what the agent may change with them.
func driverFlags(c *cobra.Command, opt *options.Driver, env environment) {
	f := c.Flags()
	f.StringVar(&opt.DevRoot, "dev-root", or(env.devRoot, "/"),
		"directory with dev/nvidia0 and the other device files")
	f.StringVar((*string)(&opt.By), "driver-access", "", "how the driver's library and device files reach the "+
		"agent's pod, for advice in errors: runtimeClass or hostLibrary, as in the chart; empty: the agent is no pod")
	f.StringVar(&opt.CapsRoot, "nvidia-caps-root", "", "directory with dev/nvidia-caps and "+
		"proc/driver/nvidia/capabilities, at the same path for agent and container runtime; empty: --dev-root")
	f.StringVar(&opt.NVIDIASMI, "nvidia-smi", "",
		"path of the driver's nvidia-smi, which sets time slices; empty: search for it")
	f.StringVar(&opt.Settings, "gpu-settings", sharing.GPUSettingsManage,
		"manage (set MIG mode and instances, compute mode, time slice and power limit as the pool says) or "+
			"read-only (change none, and reject what needs a change)")
}

// containerFlags are for containers without a pod as well.
func containerFlags(c *cobra.Command, opt *options.Containers) {
	f := c.Flags()
	f.BoolVar(&opt.Serve, "containers", false,
		"serve containers that are not in a pod (kerf run --image, kerf oci patch); installs kerf-hook and CDI specs")
	f.StringVar(&opt.CDI, "cdi-dir", "/etc/cdi",
		"directory of Kerf's CDI specs, which should survive a reboot")
	f.StringVar(&opt.CDISources, "cdi-source-dirs", "/etc/cdi:/var/run/cdi",
		"directories of the node's nvidia.com/gpu CDI spec")
	f.StringVar(&opt.Hooks, "hook-dir", "/opt/kerf",
		"directory on the host where the agent installs kerf-hook and libkerf.so, by version")
	f.StringVar(&opt.Hook, "hook-binary", "",
		"path of the kerf-hook to install; empty: the one next to this program")
	f.StringVar(&opt.Library, "library", "",
		"path of the libkerf.so that backend libkerf preloads; empty: the one next to this program")
}

// clusterFlags are for a node of a cluster.
func clusterFlags(c *cobra.Command, opt *options.Cluster, env environment) {
	f := c.Flags()
	f.BoolVar(&opt.Serve, "kubernetes", false,
		"serve kubelet and the container runtime on this node of a cluster")
	f.StringVar(&opt.Node, "node-name", env.nodeName, "this node's name in Kubernetes")
	f.BoolVar(&opt.Label, "node-labels", false, "label this Node by its GPUs, and remove its taint "+
		"kerf.dev/agent-not-ready when containers with a GPU can start")
	f.StringVar(&opt.Kubeconfig, "kubeconfig", "",
		"kubeconfig file; empty: the service account of the agent's pod")
	f.StringVar(&opt.Kubelet, "kubelet-dir", "/var/lib/kubelet",
		"kubelet's directory, with device-plugins and pod-resources")
	f.StringVar(&opt.NRISocket, "nri-socket", "/var/run/nri/nri.sock", "the container runtime's NRI socket")
	f.StringVar(&opt.RuntimeSocket, "containerd-socket", "/run/containerd/containerd.sock",
		"the container runtime's socket")
	f.StringVar(&opt.ToolkitConfig, "toolkit-config", "/etc/nvidia-container-runtime/config.toml",
		"config of NVIDIA's container toolkit; the agent checks whether containers can bypass their grant with it")
	f.StringSliceVar(&opt.Exempt, "exempt-namespaces", []string{"kerf-system", "kube-system", "gpu-operator"},
		"namespace whose containers keep their own NVIDIA_VISIBLE_DEVICES (repeatable)")
	f.StringSliceVar(&opt.HostPaths, "host-path-namespace",
		[]string{"kerf-system", "kube-system", "gpu-operator"},
		"namespace whose containers may mount host paths that give access to GPUs, in addition to namespaces with "+
			"the label kerf.dev/allow-host-paths=true (repeatable)")
}

// complete adds what the environment says, and rejects options that cannot be used.
func complete(opt *options.Options, env environment, kill func(point string)) error {
	opt.Driver.Libraries, opt.Driver.Folders = nvml.DefaultLibraryPaths(env.libraryPath),
		nvml.DriverFolders(env.libraryPath)
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
