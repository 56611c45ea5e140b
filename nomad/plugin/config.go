// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/hashicorp/nomad/plugins/base"
	"github.com/hashicorp/nomad/plugins/device"
	"github.com/hashicorp/nomad/plugins/shared/hclspec"

	"github.com/kerf-gpu/kerf/sharing"
)

// Name is the name of the plugin in Nomad's configuration.
const Name = "kerf-nomad"

// The bounds of the interval are those of the node API.
const minInterval, maxInterval = 100 * time.Millisecond, time.Minute

// config is the config block of the plugin, as Nomad encodes it.
type config struct {
	RunDir   string `codec:"run_dir"`
	Interval string `codec:"interval"`
}

// PluginInfo returns name and version of the plugin.
func (p *Plugin) PluginInfo() (*base.PluginInfoResponse, error) {
	return &base.PluginInfoResponse{Type: base.PluginTypeDevice, PluginApiVersions: []string{device.ApiVersion010},
		PluginVersion: semantic(p.version), Name: Name}, nil
}

// ConfigSchema returns the fields of the config block. run_dir is the folder of the agent's sockets. interval is the
// longest time between two reports of the agent.
func (p *Plugin) ConfigSchema() (*hclspec.Spec, error) {
	return hclspec.NewObject(map[string]*hclspec.Spec{
		"run_dir":  hclspec.NewDefault(hclspec.NewAttr("run_dir", "string", false), hclspec.NewLiteral(`"/run/kerf"`)),
		"interval": hclspec.NewDefault(hclspec.NewAttr("interval", "string", false), hclspec.NewLiteral(`"10s"`)),
	}), nil
}

// SetConfig applies the config block. The error names the field.
func (p *Plugin) SetConfig(c *base.Config) error {
	var in config
	if err := base.MsgPackDecode(c.PluginConfig, &in); err != nil {
		return fmt.Errorf("decode config: %w", err)
	}
	every, err := time.ParseDuration(in.Interval)
	if err != nil || every < minInterval || every > maxInterval {
		return sharing.Invalid("interval", in.Interval, "write a time such as 10s", "is not between %s and %s",
			minInterval, maxInterval)
	}
	if !filepath.IsAbs(in.RunDir) {
		return sharing.Invalid("run_dir", in.RunDir, "write the --run-dir of kerf-agent", "is not an absolute path")
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.dir, p.interval = in.RunDir, every
	return nil
}

var (
	released = regexp.MustCompile(`^v?\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?$`)
	noWord   = regexp.MustCompile(`[^0-9A-Za-z]+`)
)

// semantic returns a version that Nomad accepts. Builds of commits without a tag are v0.0.0 with metadata.
func semantic(version string) string {
	if released.MatchString(version) {
		return version
	}
	return "v0.0.0+" + strings.TrimSuffix(noWord.ReplaceAllString("dev."+version, "."), ".")
}
