// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package containerd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/pelletier/go-toml/v2"

	"github.com/kerf-gpu/kerf/sharing"
)

// criConfig is what is read of the configuration that containerd's CRI plugin answers, in 1.7 and 2.x. Only
// what is here is looked at; each field may be missing.
type criConfig struct {
	Containerd struct {
		DefaultRuntimeName string                `json:"defaultRuntimeName"`
		Runtimes           map[string]criRuntime `json:"runtimes"`
	} `json:"containerd"`
	// EnableCDI is a setting up to 2.x; where it is gone, CDI is always on.
	EnableCDI   *bool    `json:"enableCDI"`
	CDISpecDirs []string `json:"cdiSpecDirs"`
}

type criRuntime struct {
	Type                 string         `json:"runtimeType"`
	PodAnnotations       []string       `json:"PodAnnotations"`
	ContainerAnnotations []string       `json:"ContainerAnnotations"`
	Options              map[string]any `json:"options"`
}

// readContainerd adds the CRI plugin's configuration to r. It is JSON from another program, so unreadable parts are
// reported as unchecked.
func readContainerd(r *Report, config string) {
	var c criConfig
	if config == "" {
		r.unchecked("the CRI plugin does not report its configuration")
		return
	}
	if err := json.Unmarshal([]byte(config), &c); err != nil {
		r.unchecked("the CRI plugin's configuration cannot be read: %v", err)
		return
	}
	version, known := parseVersion(r.Version)
	switch {
	case c.EnableCDI != nil && *c.EnableCDI:
		r.CDI = Yes
	case c.EnableCDI != nil, known && version[0] < 2:
		r.CDI = No
	case known:
		r.CDI = Yes
	}
	r.CDIDirs = c.CDISpecDirs
	r.DefaultRuntime = c.Containerd.DefaultRuntimeName
	for _, name := range slices.Sorted(maps.Keys(c.Containerd.Runtimes)) {
		rt := c.Containerd.Runtimes[name]
		h := Handler{Name: name, Type: rt.Type, PodAnnotations: rt.PodAnnotations,
			ContainerAnnotations: rt.ContainerAnnotations}
		h.Binary, _ = rt.Options["BinaryName"].(string) // of another type, it is not runc's option
		r.Handlers = append(r.Handlers, h)
		if name == r.DefaultRuntime {
			if systemd, known := rt.Options["SystemdCgroup"].(bool); known && systemd {
				r.CgroupDriver = CgroupSystemd
			} else if rt.Type == "io.containerd.runc.v2" {
				r.CgroupDriver = CgroupFS
			}
		}
	}
}

// release is major, minor and patch of a version.
type release [3]int

func (r release) before(o release) bool { return slices.Compare(r[:], o[:]) < 0 }

// parseVersion reads "2.4.2", "v1.7.24-0ubuntu1" or "2.0.0-rc.1". Without a patch it is 0.
func parseVersion(s string) (r release, ok bool) {
	for i, part := range strings.SplitN(strings.TrimPrefix(s, "v"), ".", len(r)) {
		if end := strings.IndexFunc(part, func(r rune) bool { return r < '0' || r > '9' }); end >= 0 && i > 0 {
			part = part[:end]
		}
		n, err := strconv.ParseUint(part, 10, 16)
		if err != nil {
			return r, i > 1
		}
		r[i], ok = int(n), i > 0
	}
	return r, ok
}

// maxConfig bounds a configuration that is read.
const maxConfig = 4 << 20

// crioConfig is the part of CRI-O's current configuration that Kerf reads.
type crioConfig struct {
	CRIO struct {
		NRI struct {
			Enable *bool `toml:"enable_nri"`
		} `toml:"nri"`
		Runtime struct {
			CDIDirs        []string               `toml:"cdi_spec_dirs"`
			CgroupManager  string                 `toml:"cgroup_manager"`
			DefaultRuntime string                 `toml:"default_runtime"`
			Runtimes       map[string]crioRuntime `toml:"runtimes"`
		} `toml:"runtime"`
	} `toml:"crio"`
}

type crioRuntime struct {
	Path        string   `toml:"runtime_path"`
	Type        string   `toml:"runtime_type"`
	Annotations []string `toml:"allowed_annotations"`
}

// reportCRIO asks CRI-O for its configuration, as crio status does: in plain HTTP on the same socket.
func (c *Client) reportCRIO(ctx context.Context, r *Report) {
	text, err := c.crioConfiguration(ctx)
	if err != nil {
		r.unchecked("CRI-O does not report its configuration (%v): see what crio status config says of enable_nri, "+
			"cdi_spec_dirs and default_runtime", err)
		return
	}
	readCRIO(r, text)
}

func (c *Client) crioConfiguration(ctx context.Context) ([]byte, error) {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		d := net.Dialer{Timeout: dialTimeout}
		return d.DialContext(ctx, "unix", c.socket)
	}
	transport := &http.Transport{DialContext: dial, DisableKeepAlives: true}
	defer transport.CloseIdleConnections()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://localhost/config", nil)
	if err != nil {
		return nil, err
	}
	resp, err := (&http.Client{Transport: transport, Timeout: callTimeout}).Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("get configuration: %s", resp.Status)
	}
	return io.ReadAll(io.LimitReader(resp.Body, maxConfig))
}

// readCRIO adds what CRI-O's configuration says to r.
func readCRIO(r *Report, text []byte) {
	var c crioConfig
	if err := toml.Unmarshal(text, &c); err != nil {
		r.unchecked("CRI-O's configuration cannot be read: %v", err)
		return
	}
	switch {
	case c.CRIO.NRI.Enable == nil:
		r.unchecked("CRI-O does not report whether NRI is on: see what crio status config says of enable_nri")
	case *c.CRIO.NRI.Enable:
		r.NRI = Yes
	default:
		r.NRI = No
	}
	run := c.CRIO.Runtime
	// CRI-O resolves CDI names whenever it has directories to look in.
	if r.CDIDirs = run.CDIDirs; len(run.CDIDirs) > 0 {
		r.CDI = Yes
	}
	if run.CgroupManager == CgroupSystemd || run.CgroupManager == CgroupFS {
		r.CgroupDriver = run.CgroupManager
	}
	r.DefaultRuntime = run.DefaultRuntime
	for _, name := range slices.Sorted(maps.Keys(run.Runtimes)) {
		rt := run.Runtimes[name]
		r.Handlers = append(r.Handlers, Handler{Name: name, Type: rt.Type, Binary: rt.Path,
			PodAnnotations: rt.Annotations})
	}
}

// ToolkitPath is the configuration of NVIDIA's container toolkit.
const ToolkitPath = "/etc/nvidia-container-runtime/config.toml"

// Toolkit is what NVIDIA's container runtime does with a container's environment.
type Toolkit struct {
	// Path is the file that says so.
	Path string
	// Env tells whether NVIDIA_VISIBLE_DEVICES gives an unprivileged container GPUs. Without a word in the
	// file it does.
	Env Answer
	// Mounts tells whether a mount of /dev/null below /var/run/nvidia-container-devices does. Without a word it does
	// not.
	Mounts Answer
	// Problem says why neither is known.
	Problem string
}

// ReadToolkit reads the configuration at path. A file that is not there means the toolkit's defaults; one
// that cannot be read makes Env unknown.
func ReadToolkit(path string) Toolkit {
	t := Toolkit{Path: path}
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		t.Env, t.Mounts = Yes, No
		return t
	}
	var text []byte
	if err == nil {
		defer f.Close()
		text, err = io.ReadAll(io.LimitReader(f, maxConfig))
	}
	if err == nil {
		t.Env, t.Mounts, err = parseToolkit(text)
	}
	if err != nil {
		t.Problem = err.Error()
	}
	return t
}

// parseToolkit tells whether environment and mounts are listened to. The error wraps ErrInvalid.
func parseToolkit(text []byte) (env, mounts Answer, err error) {
	var c struct {
		Env    *bool `toml:"accept-nvidia-visible-devices-envvar-when-unprivileged"`
		Mounts *bool `toml:"accept-nvidia-visible-devices-as-volume-mounts"`
	}
	if err := toml.Unmarshal(text, &c); err != nil {
		return Unknown, Unknown, fmt.Errorf("configuration of NVIDIA's container runtime: %v: %w", err, sharing.ErrInvalid) //nolint:errorlint // the sentinel is wrapped
	}
	env, mounts = Yes, No
	if c.Env != nil && !*c.Env {
		env = No
	}
	if c.Mounts != nil && *c.Mounts {
		mounts = Yes
	}
	return env, mounts, nil
}
