// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package containerd

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"strings"

	introspectionv1 "github.com/containerd/containerd/api/services/introspection/v1"
	versionv1 "github.com/containerd/containerd/api/services/version/v1"
	"google.golang.org/protobuf/types/known/emptypb"
	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kerf-gpu/kerf/sharing"
)

// Answer is yes, no, or unknown.
type Answer uint8

// The answers.
const (
	Unknown Answer = iota
	No
	Yes
)

// String returns "yes", "no" or "unknown".
func (a Answer) String() string {
	switch a {
	case Yes:
		return "yes"
	case No:
		return "no"
	case Unknown:
	}
	return "unknown"
}

// The names of runtimes that are known.
const (
	NameContainerd = "containerd"
	NameCRIO       = "cri-o"
)

// The cgroup drivers.
const (
	CgroupSystemd = "systemd"
	CgroupFS      = "cgroupfs"
)

// nriPlugin is the type of containerd's plugin that serves NRI.
const nriPlugin = "io.containerd.nri.v1"

// Report is what the container runtime tells of itself.
type Report struct {
	// Name is "containerd", "cri-o", or what another runtime calls itself.
	Name string
	// Version is as the runtime gives it, without a leading "v".
	Version string
	// CRI, NRI and CDI tell whether the runtime serves kubelet, takes NRI plugins, and resolves CDI names.
	CRI, NRI, CDI Answer
	// CDIDirs are where it looks for CDI specs, in rising order of precedence; nil if unknown.
	CDIDirs []string
	// CgroupDriver is CgroupSystemd, CgroupFS, or empty if unknown.
	CgroupDriver string
	// DefaultRuntime is the handler of pods that name no RuntimeClass; empty if unknown.
	DefaultRuntime string
	// Handlers are the OCI runtimes that pods can have, by name.
	Handlers []Handler
	// Unchecked has one sentence for each thing that is unknown, with the reason.
	Unchecked []string
}

// Handler is one configured OCI runtime.
type Handler struct {
	Name string
	// Type is containerd's runtime type, such as "io.containerd.runc.v2".
	Type string
	// Binary is the OCI runtime's program as configured; empty means the type's own default.
	Binary string
	// PodAnnotations and ContainerAnnotations are patterns of the annotations that reach the OCI spec.
	PodAnnotations, ContainerAnnotations []string
}

// Default is the handler of pods that name no RuntimeClass; false if unknown.
func (r Report) Default() (Handler, bool) {
	for _, h := range r.Handlers {
		if h.Name == r.DefaultRuntime && h.Name != "" {
			return h, true
		}
	}
	return Handler{}, false
}

func (r *Report) unchecked(format string, args ...any) {
	r.Unchecked = append(r.Unchecked, fmt.Sprintf(format, args...))
}

// Report reads the container runtime's version and configuration. It returns an error if the runtime does not answer
// at all. What the runtime does not report is in Unchecked.
func (c *Client) Report(ctx context.Context) (Report, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	var r Report
	version, err := c.cri.Version(ctx, &criv1.VersionRequest{})
	if err = c.Plain(ctx, "read the version", err); err != nil {
		if !errors.Is(err, sharing.ErrUnsupported) {
			return r, err
		}
		return c.withoutCRI(ctx)
	}
	r.CRI = Yes
	r.Name, r.Version = strings.ToLower(version.GetRuntimeName()), strings.TrimPrefix(version.GetRuntimeVersion(), "v")
	switch r.Name {
	case NameContainerd:
		c.reportContainerd(ctx, &r)
	case NameCRIO:
		c.reportCRIO(ctx, &r)
	default:
		r.unchecked("%q is a container runtime that Kerf does not know", r.Name)
	}
	c.reportCgroups(ctx, &r)
	return r, nil
}

// withoutCRI is the report of a containerd that does not serve kubelet, such as Docker's.
func (c *Client) withoutCRI(ctx context.Context) (Report, error) {
	version, err := versionv1.NewVersionClient(c.conn).Version(ctx, &emptypb.Empty{})
	if err != nil {
		return Report{}, c.Plain(ctx, "read the version", err)
	}
	r := Report{Name: NameContainerd, CRI: No, Version: strings.TrimPrefix(version.GetVersion(), "v")}
	c.reportNRI(ctx, &r)
	r.unchecked("its CDI, cgroup driver and runtimes are settings of the CRI plugin, which is off")
	return r, nil
}

func (c *Client) reportContainerd(ctx context.Context, r *Report) {
	c.reportNRI(ctx, r)
	status, err := c.cri.Status(ctx, &criv1.StatusRequest{Verbose: true})
	if err != nil {
		r.unchecked("%v", c.Plain(ctx, "read the CRI plugin's configuration", err))
		return
	}
	readContainerd(r, status.GetInfo()["config"])
}

// reportNRI tells what containerd's list of plugins says. A plugin that is there may still be disabled in
// its own configuration, which containerd does not tell: ProbeNRI can.
func (c *Client) reportNRI(ctx context.Context, r *Report) {
	plugins, err := introspectionv1.NewIntrospectionClient(c.conn).Plugins(ctx,
		&introspectionv1.PluginsRequest{Filters: []string{"type==" + nriPlugin}})
	switch {
	case err != nil:
		r.unchecked("%v", c.Plain(ctx, "read the state of NRI", err))
	case len(plugins.GetPlugins()) == 0:
		r.NRI = No
	case plugins.GetPlugins()[0].GetInitErr() != nil:
		r.NRI = No
		r.unchecked("NRI did not start: %s", plugins.GetPlugins()[0].GetInitErr().GetMessage())
	}
}

// reportCgroups asks for the cgroup driver in the way that newer runtimes answer; what the configuration said
// stays when they do not.
func (c *Client) reportCgroups(ctx context.Context, r *Report) {
	conf, err := c.cri.RuntimeConfig(ctx, &criv1.RuntimeConfigRequest{})
	switch {
	case err != nil || conf.GetLinux() == nil:
	case conf.GetLinux().GetCgroupDriver() == criv1.CgroupDriver_CGROUPFS:
		r.CgroupDriver = CgroupFS
	case conf.GetLinux().GetCgroupDriver() == criv1.CgroupDriver_SYSTEMD:
		r.CgroupDriver = CgroupSystemd
	}
	if r.CgroupDriver == "" {
		r.unchecked("the cgroup driver is not known")
	}
}

// ProbeNRI tells whether a runtime takes NRI plugins at socket, by connecting and leaving again, which the
// runtime notes in its log. Unknown when this process may not connect.
func ProbeNRI(ctx context.Context, socket string) Answer {
	d := net.Dialer{Timeout: dialTimeout}
	conn, err := d.DialContext(ctx, "unix", socket)
	switch {
	case err == nil:
		_ = conn.Close() // nothing was sent
		return Yes
	case errors.Is(err, fs.ErrPermission), ctx.Err() != nil:
		return Unknown
	}
	return No
}
