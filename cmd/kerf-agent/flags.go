// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kerf-gpu/kerf/hooks/nri"
	"github.com/kerf-gpu/kerf/internal/failpoint"
	"github.com/kerf-gpu/kerf/internal/nvml"
	"github.com/kerf-gpu/kerf/internal/process"
	"github.com/kerf-gpu/kerf/internal/subuid"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/caps"
	"github.com/kerf-gpu/kerf/sharing/doctor"
	"github.com/kerf-gpu/kerf/sharing/node"
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

// settings are the agent's flags, checked.
type settings struct {
	dir, config, devRoot, capsRoot, lockDir, auditDir, stateDir, group, http, logLevel string
	labels                                                                             map[string]string
	// What follows is for a node of a Kubernetes cluster.
	containers, kubernetes, nodeLabels                  bool
	nodeName, kubeconfig, kubeletDir                    string
	nriSocket, containerdSocket, toolkitConfig          string
	cdiDir, cdiSourceDirs, hookDir, hookBinary, library string
	exempt, hostPathNamespaces                          []string
	nvidiaSMI                                           string
	configMap                                           string
	libraries, driverFolders                            []string
	gpuSettings, subUIDs                                string
	failpoints                                          *failpoint.Set
	pids                                                caps.PIDSpace
	driverBy                                            doctor.Setting
	// path is where the driver's programs are looked for.
	path string
}

func command(env environment, kill func(point string)) *cobra.Command {
	s := settings{}
	c := &cobra.Command{
		Use:           "kerf-agent --dir DIR",
		Short:         "Kerf's node agent: claims, caps and keeps fragments of this machine's GPUs",
		Version:       version,
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := s.check(env, kill); err != nil {
				return err
			}
			log, err := logger(c.ErrOrStderr(), s.logLevel)
			if err != nil {
				return err
			}
			a := &agent{settings: s, log: log, again: env.again}
			return a.run(c.Context())
		},
	}
	c.AddCommand(removeCommand(env), holdContextCommand())
	f := c.Flags()
	f.StringVar(&s.dir, "dir", or(env.dir, "/run/kerf"), "directory of the sockets and the record")
	f.StringVar(&s.config, "config", env.config, "SharingConfig document, or a folder of its files; empty for the built-in default")
	f.StringVar(&s.configMap, "config-map", "", "namespace/name of the ConfigMap that holds the document; it is watched, and --config counts only until it was read (with --kubernetes)")
	f.StringToStringVar(&s.labels, "node-label", nil, "label of this node, by which its pool is chosen, over those of its object in Kubernetes (key=value, repeatable)")
	f.StringVar(&s.devRoot, "dev-root", or(env.devRoot, "/"), "directory that holds dev/nvidiaN")
	f.StringVar((*string)(&s.driverBy), "driver-by", "", "how the driver's library and device files reach this program's pod: runtimeClass or hostLibrary, as the chart's pools have it; empty for a program of the node itself. It changes only what is advised where they do not")
	f.StringVar(&s.capsRoot, "caps-root", "", "directory that holds dev/nvidia-caps and proc/driver/nvidia/capabilities, by the same path for this program and the container runtime; empty for --dev-root")
	f.StringVar(&s.nvidiaSMI, "nvidia-smi", "", "the driver's nvidia-smi, which sets time slices; empty to look for it")
	f.StringVar(&s.lockDir, "lock-dir", "/run/kerf/locks", "directory of the locks that keep a second agent off a GPU; the same for all agents of a machine")
	f.StringVar(&s.auditDir, "audit-dir", "", "directory of the audit log, which should outlive a reboot; empty for audit in --dir")
	f.StringVar(&s.stateDir, "state-dir", "", "this agent's directory of what must outlive a reboot: the MIG journals, which tell Kerf's instances, and a MIG mode that is Kerf's, from another's, the last good document, and which GPUs are cordoned; empty for --dir")
	f.StringVar(&s.group, "group", "kerf", "group whose members may use the node socket; root alone may where there is no such group")
	f.StringVar(&s.http, "http", "", "also serve /metrics, /healthz and /readyz on this TCP address, such as 127.0.0.1:9445")
	f.BoolVar(&s.containers, "containers", false, "serve containers that are no pod's (kerf run --image, kerf oci patch): installs kerf-hook and CDI specs")
	f.BoolVar(&s.kubernetes, "kubernetes", false, "serve kubelet and the container runtime on this node of a cluster")
	f.StringVar(&s.nodeName, "node-name", env.nodeName, "this node's name in Kubernetes")
	f.BoolVar(&s.nodeLabels, "node-labels", false, "label this node's object by its GPUs, and take its taint kerf.dev/starting off when containers with a GPU can start")
	f.StringVar(&s.kubeconfig, "kubeconfig", "", "file to reach the API server with; empty for the service account of the agent's pod")
	f.StringVar(&s.kubeletDir, "kubelet-dir", "/var/lib/kubelet", "kubelet's directory, which holds device-plugins and pod-resources")
	f.StringVar(&s.nriSocket, "nri-socket", "/var/run/nri/nri.sock", "the container runtime's NRI socket")
	f.StringVar(&s.containerdSocket, "containerd-socket", "/run/containerd/containerd.sock", "the container runtime's socket")
	f.StringVar(&s.toolkitConfig, "toolkit-config", "/etc/nvidia-container-runtime/config.toml", "configuration of NVIDIA's container toolkit, to judge whether containers can get around their grant by it")
	f.StringVar(&s.cdiDir, "cdi-dir", "/etc/cdi", "directory for Kerf's CDI specs; it should outlive a reboot")
	f.StringVar(&s.cdiSourceDirs, "cdi-source-dirs", "/etc/cdi:/var/run/cdi", "directories of the node's nvidia.com/gpu CDI spec")
	f.StringVar(&s.hookDir, "hook-dir", "/opt/kerf", "directory on the host in which kerf-hook and libkerf.so are installed, under the agent's version")
	f.StringVar(&s.hookBinary, "hook-binary", "", "the kerf-hook to install; empty for the one beside this program")
	f.StringVar(&s.library, "library", "", "the libkerf.so that backend libkerf preloads; empty for the one beside this program")
	f.StringVar(&s.gpuSettings, "gpu-settings", sharing.GPUSettingsManage, "manage: change GPU settings as the pool says (MIG mode and instances, compute mode, time slice, power limit); read-only: change none, and report what needs a change as not supported")
	f.StringVar(&s.subUIDs, "subuid-file", subuid.Path, "file of the users' subordinate UIDs, which count to their user in userQuota")
	f.StringSliceVar(&s.exempt, "exempt-namespace", []string{"kerf-system", "gpu-operator"}, "namespace whose containers keep their own NVIDIA_VISIBLE_DEVICES (repeatable)")
	f.StringSliceVar(&s.hostPathNamespaces, "host-path-namespace", []string{"kerf-system", "kube-system", "gpu-operator"}, "namespace whose containers may mount host paths that reach GPUs past Kerf, besides those with the label kerf.dev/host-paths=allowed (repeatable)")
	f.StringVar(&s.logLevel, "log-level", "info", "debug, info, warn or error")
	return c
}

// checkPIDSpace finds out which pid namespace the agent is in, and which one has all processes that its GPUs serve. A node of
// a cluster may be a container itself, so there the node's own counts: an agent that is not in it does not start
// (process.JoinHostCgroups).
func (s *settings) checkPIDSpace(stand string) error {
	s.pids = caps.PIDSpace{Initial: process.InitialPIDSpace}
	s.pids.Own, s.pids.Err = process.PIDSpace(os.Getpid())
	switch {
	case stand != "":
		var err error
		if s.pids.Initial, err = strconv.ParseUint(stand, 10, 64); err != nil {
			return fmt.Errorf("KERF_TEST_PID_NAMESPACE: %w", err)
		}
	case s.kubernetes:
		s.pids.Initial = s.pids.Own
	}
	return nil
}

// check completes the settings and refuses what cannot be used.
func (s *settings) check(env environment, kill func(point string)) error {
	for _, p := range []struct {
		flag string
		path *string
	}{{"--dir", &s.dir}, {"--dev-root", &s.devRoot}, {"--lock-dir", &s.lockDir}, {"--cdi-dir", &s.cdiDir}, {"--hook-dir", &s.hookDir}, {"--kubelet-dir", &s.kubeletDir}} {
		if *p.path == "" {
			return sharing.Invalid(p.flag, "", "name a directory", "is empty")
		}
		abs, err := filepath.Abs(*p.path)
		if err != nil {
			return fmt.Errorf("%s %q: %w", p.flag, *p.path, err)
		}
		*p.path = abs
	}
	// A unix socket's path has 108 bytes, the terminating zero among them.
	if longest := filepath.Join(s.dir, "kerf.sock"); len(longest) > 107 {
		return sharing.Invalid("--dir", s.dir, "name a directory with a shorter path", "makes socket paths of %d bytes; 107 are possible", len(longest))
	}
	if _, err := doctor.ParseSetting("--driver-by", string(s.driverBy)); err != nil {
		return err
	}
	if s.gpuSettings != sharing.GPUSettingsManage && !s.readOnly() {
		return sharing.Invalid("--gpu-settings", s.gpuSettings, "write manage or read-only", "is neither")
	}
	s.libraries, s.driverFolders = nvml.DefaultLibraryPaths(env.libraryPath), nvml.DriverFolders(env.libraryPath)
	if err := s.checkPIDSpace(env.pidSpace); err != nil {
		return err
	}
	points, err := failpoint.Parse(env.failpoints, failpoint.Actions{Exit: kill})
	if err == nil {
		err = points.Check(slices.Concat(node.Failpoints(), nri.Failpoints(), migFailpoints())...)
	}
	if err != nil {
		return fmt.Errorf("KERF_FAILPOINTS: %w", err)
	}
	if namespace, name, ok := strings.Cut(s.configMap, "/"); s.configMap != "" && (!ok || namespace == "" || name == "" || strings.Contains(name, "/") || !s.kubernetes) {
		return sharing.Invalid("--config-map", s.configMap, "write namespace/name, and --kubernetes too", "names no ConfigMap that can be read")
	}
	s.failpoints, s.path = points, env.path
	if s.kubernetes && s.nodeName == "" {
		return sharing.Invalid("--node-name", "", "set it, in a pod from the field spec.nodeName through KERF_NODE_NAME", "is empty")
	}
	return nil
}

// guardedPaths are the folders of the node that belong to Kerf or give GPUs away.
func (s *settings) guardedPaths() []string {
	all := []string{s.dir, s.auditDir, s.stateDir, s.hookDir, s.cdiDir, "/etc/kerf", filepath.Join(s.kubeletDir, "device-plugins")}
	all = append(all, filepath.SplitList(s.cdiSourceDirs)...)
	return slices.DeleteFunc(all, func(dir string) bool { return !filepath.IsAbs(dir) })
}

// readOnly reports whether the agent may change no setting of a GPU.
func (s *settings) readOnly() bool { return s.gpuSettings == sharing.GPUSettingsReadOnly }

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
