// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package options has the agent's flags, checked. Each part of the agent takes the groups that it needs.
package options

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/kerf-gpu/kerf/internal/failpoint"
	"github.com/kerf-gpu/kerf/internal/process"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/backend"
	"github.com/kerf-gpu/kerf/sharing/doctor"
)

// Options are the agent's flags, checked.
type Options struct {
	Log *slog.Logger
	// Version is the program's.
	Version string
	// Again starts this program again in its place; it returns only an error.
	Again func() error

	Dirs       Dirs
	Access     Access
	Source     ConfigSource
	Driver     Driver
	Containers Containers
	Cluster    Cluster

	// SubUIDs is the file of the users' subordinate UIDs.
	SubUIDs    string
	Failpoints *failpoint.Set
}

// Dirs are the agent's folders on the node.
type Dirs struct {
	// Dir has the sockets and the record.
	Dir string
	// State has what outlives a reboot; empty for Dir.
	State string
	// Audit has the audit log; empty for audit in Dir.
	Audit string
	// Locks has the locks that keep a second agent off a GPU.
	Locks string
}

// Access says who can call the agent.
type Access struct {
	// Group may use the node socket.
	Group string
	// HTTP is the TCP address of metrics and health; empty for none.
	HTTP string
}

// ConfigSource says where the configuration comes from.
type ConfigSource struct {
	// File is the SharingConfig file, or the folder of its files; empty for the built-in default.
	File string
	// Map is the namespace/name of the ConfigMap; empty for none.
	Map string
	// Labels of this node count before those of its object in Kubernetes.
	Labels map[string]string
}

// Driver says where the driver is, and what the agent may change of it.
type Driver struct {
	// Libraries are the paths at which NVML is looked for, and Folders those of the driver's other libraries.
	Libraries, Folders []string
	// Path is where the driver's programs are looked for.
	Path string
	// NVIDIASMI is the driver's nvidia-smi; empty to look for it.
	NVIDIASMI string
	// By is how the driver's library and device files reach the agent's pod.
	By doctor.Setting
	// DevRoot holds dev/nvidiaN, and CapsRoot the capabilities of MIG instances; CapsRoot may be empty for DevRoot.
	DevRoot, CapsRoot string
	// Settings is sharing.GPUSettingsManage or sharing.GPUSettingsReadOnly.
	Settings string
	// PIDs are the PID namespaces of the agent and of the machine.
	PIDs backend.PIDSpace
}

// Containers is for nodes with a container runtime.
type Containers struct {
	// Serve is true where containers of no pod are served.
	Serve bool
	// CDI is the folder of Kerf's CDI specs, and CDISources the list of folders of the node's own one.
	CDI, CDISources string
	// Hooks is the folder on the host for the installed hook and library.
	Hooks string
	// Hook is the kerf-hook to install, and Library the libkerf.so; empty for the file next to this program.
	Hook, Library string
}

// Cluster is for a node of a Kubernetes cluster.
type Cluster struct {
	// Serve is true on a node of a cluster.
	Serve bool
	// Node is the node's name, and Label is true if the agent labels its object.
	Node  string
	Label bool
	// Kubeconfig is the file to reach the API server with; empty for the pod's service account.
	Kubeconfig string
	// Kubelet is kubelet's folder; the others are the sockets of the container runtime and its NRI, and the
	// configuration of NVIDIA's toolkit.
	Kubelet, NRISocket, RuntimeSocket, ToolkitConfig string
	// Exempt are namespaces whose containers keep their own NVIDIA_VISIBLE_DEVICES, and HostPaths those whose
	// containers may mount host paths that reach GPUs.
	Exempt, HostPaths []string
}

// devicePlugins is the folder of device plugins on the host. Kubelet has it there also with another --root-dir.
const devicePlugins = "/var/lib/kubelet/device-plugins"

// GuardedPaths are the folders of the node that belong to Kerf or give GPUs away.
func (o *Options) GuardedPaths() []string {
	all := []string{o.Dirs.Dir, o.Dirs.Audit, o.Dirs.State, o.Containers.Hooks, o.Containers.CDI, "/etc/kerf",
		filepath.Join(o.Cluster.Kubelet, "device-plugins"), devicePlugins}
	all = append(all, filepath.SplitList(o.Containers.CDISources)...)
	return slices.DeleteFunc(all, func(dir string) bool { return !filepath.IsAbs(dir) })
}

// ReadOnly reports whether the agent may change no setting of a GPU.
func (o *Options) ReadOnly() bool { return o.Driver.Settings == sharing.GPUSettingsReadOnly }

// Complete makes the folders absolute, finds the PID namespaces, and rejects options that cannot be used; the error is
// a sharing.FieldError that names the flag. pidSpace is the number of the PID namespace that stands for the machine's
// in tests; empty: the machine's.
func (o *Options) Complete(pidSpace string) error {
	for _, p := range []struct {
		flag string
		path *string
	}{{"--run-dir", &o.Dirs.Dir}, {"--dev-root", &o.Driver.DevRoot}, {"--lock-dir", &o.Dirs.Locks},
		{"--cdi-dir", &o.Containers.CDI}, {"--hook-dir", &o.Containers.Hooks}, {"--kubelet-dir", &o.Cluster.Kubelet}} {
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
	if longest := filepath.Join(o.Dirs.Dir, "kerf.sock"); len(longest) > 107 {
		return sharing.Invalid("--run-dir", o.Dirs.Dir, "name a directory with a shorter path",
			"makes socket paths of %d bytes; 107 are possible", len(longest))
	}
	if _, err := doctor.ParseSetting("--driver-access", string(o.Driver.By)); err != nil {
		return err
	}
	if o.Driver.Settings != sharing.GPUSettingsManage && !o.ReadOnly() {
		return sharing.Invalid("--gpu-settings", o.Driver.Settings, "write manage or read-only", "is neither")
	}
	if err := o.checkPIDSpace(pidSpace); err != nil {
		return err
	}
	if namespace, name, ok := strings.Cut(o.Source.Map, "/"); o.Source.Map != "" &&
		(!ok || namespace == "" || name == "" || strings.Contains(name, "/") || !o.Cluster.Serve) {
		return sharing.Invalid("--config-map", o.Source.Map, "write namespace/name, and --kubernetes too",
			"names no ConfigMap that can be read")
	}
	if o.Cluster.Serve && o.Cluster.Node == "" {
		return sharing.Invalid("--node-name", "",
			"set it, in a pod from the field spec.nodeName through KERF_NODE_NAME", "is empty")
	}
	return nil
}

// checkPIDSpace finds the agent's pid namespace, and the one that has all processes of its GPUs. A node of a cluster
// may be a container itself. There the node's own counts: an agent outside of it does not start
// (process.JoinHostCgroups).
func (o *Options) checkPIDSpace(stand string) error {
	o.Driver.PIDs = backend.PIDSpace{Initial: process.InitialPIDSpace}
	o.Driver.PIDs.Own, o.Driver.PIDs.Err = process.PIDSpace(os.Getpid())
	switch {
	case stand != "":
		var err error
		if o.Driver.PIDs.Initial, err = strconv.ParseUint(stand, 10, 64); err != nil {
			return fmt.Errorf("KERF_TEST_PID_NAMESPACE: %w", err)
		}
	case o.Cluster.Serve:
		o.Driver.PIDs.Initial = o.Driver.PIDs.Own
	}
	return nil
}
