// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"path"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/kerf-gpu/kerf/deploy"
	"github.com/kerf-gpu/kerf/sharing/doctor/preset"
)

// chartValues are the values of the chart that doctor reads.
type chartValues struct {
	Image struct {
		Registry string `yaml:"registry"`
		Agent    string `yaml:"agent"`
	} `yaml:"image"`
	PoolDefaults struct {
		ContainerRuntime string `yaml:"containerRuntime"`
		DriverLibrary    string `yaml:"driverLibrary"`
		Paths            struct {
			Kubelet       string `yaml:"kubelet"`
			RuntimeSocket string `yaml:"runtimeSocket"`
			NRISocket     string `yaml:"nriSocket"`
			CDI           string `yaml:"cdi"`
			CDISource     string `yaml:"cdiSource"`
			Hook          string `yaml:"hook"`
			Toolkit       string `yaml:"toolkit"`
		} `yaml:"paths"`
	} `yaml:"poolDefaults"`
}

// add reads a file of values over those that are there, as Helm does.
func (v *chartValues) add(file string) error {
	text, err := deploy.Files.ReadFile(file)
	if err == nil {
		err = yaml.Unmarshal(text, v)
	}
	if err != nil {
		return fmt.Errorf("read the chart's file %s: %w", file, err)
	}
	return nil
}

// presetFile is the file of a preset in a clone and in the chart's package.
func presetFile(name string) string { return "deploy/" + deploy.Presets + "/" + name + ".yaml" }

// presets are those of the chart, sorted by name.
func presets() ([]preset.Values, error) {
	files, err := deploy.Files.ReadDir(deploy.Presets)
	if err != nil {
		return nil, fmt.Errorf("read the chart's presets: %w", err)
	}
	var out []preset.Values
	for _, f := range files {
		var v chartValues
		if err := v.add(deploy.Values); err != nil {
			return nil, err
		}
		if err := v.add(path.Join(deploy.Presets, f.Name())); err != nil {
			return nil, err
		}
		d := v.PoolDefaults
		out = append(out, preset.Values{Name: strings.TrimSuffix(f.Name(), ".yaml"), Runtime: d.ContainerRuntime,
			DriverLibrary: d.DriverLibrary, Kubelet: d.Paths.Kubelet, CDI: d.Paths.CDI, CDISource: d.Paths.CDISource,
			Hook: d.Paths.Hook, Toolkit: d.Paths.Toolkit, RuntimeSocket: d.Paths.RuntimeSocket,
			NRISocket: d.Paths.NRISocket})
	}
	return out, nil
}

// agentImage is the agent's image of a version. registry is that of the release; empty for the chart's.
func agentImage(registry, version string) (string, error) {
	var v chartValues
	if err := v.add(deploy.Values); err != nil {
		return "", err
	}
	if registry != "" {
		v.Image.Registry = registry
	}
	return v.Image.Registry + "/" + v.Image.Agent + ":" + version, nil
}
