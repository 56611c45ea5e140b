// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package containerd

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"

	"github.com/pelletier/go-toml/v2"
)

// maxConfig bounds a configuration that is read.
const maxConfig = 4 << 20

// crioConfig is what is read of the configuration in force that CRI-O answers.
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
		r.untold("CRI-O does not tell its configuration (%v): see what crio status config says of enable_nri, cdi_spec_dirs and default_runtime", err)
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
		r.untold("CRI-O's configuration cannot be read: %v", err)
		return
	}
	switch {
	case c.CRIO.NRI.Enable == nil:
		r.untold("CRI-O does not tell whether NRI is on: see what crio status config says of enable_nri")
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
		r.Handlers = append(r.Handlers, Handler{Name: name, Type: rt.Type, Binary: rt.Path, PodAnnotations: rt.Annotations})
	}
}
