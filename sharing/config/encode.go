// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"bytes"
	"fmt"
	"strconv"

	"go.yaml.in/yaml/v3"

	"github.com/kerf-gpu/kerf/sharing"
)

// The document as it is written. Reading goes through reader, which knows what was left out.
type (
	wireDocument struct {
		APIVersion string   `yaml:"apiVersion"`
		Kind       string   `yaml:"kind"`
		Spec       wireSpec `yaml:"spec"`
	}
	wireSpec struct {
		Pools    []wirePool    `yaml:"pools"`
		Profiles []wireProfile `yaml:"profiles,omitempty"`
		Prices   *wirePrices   `yaml:"prices,omitempty"`
	}
	wirePool struct {
		Name           string            `yaml:"name"`
		NodeSelector   map[string]string `yaml:"nodeSelector,omitempty"`
		Mode           string            `yaml:"mode,omitempty"`
		Place          string            `yaml:"place,omitempty"`
		MinEnforcement string            `yaml:"minEnforcement,omitempty"`
		Backends       []string          `yaml:"backends,omitempty"`
		OverCap        string            `yaml:"overCap,omitempty"`
		Strangers      string            `yaml:"strangers,omitempty"`
		ManagedMemory  string            `yaml:"managedMemory,omitempty"`
		UserQuota      *wireQuota        `yaml:"userQuota,omitempty"`
		Health         *wireHealth       `yaml:"health,omitempty"`
		Idle           *wireIdle         `yaml:"idle,omitempty"`
		Compute        string            `yaml:"compute,omitempty"`
		TimeSlice      string            `yaml:"timeSlice,omitempty"`
		ComputeMode    string            `yaml:"computeMode,omitempty"`
		MPSSharing     string            `yaml:"mpsSharing,omitempty"`
		MPSComputeMode string            `yaml:"mpsComputeMode,omitempty"`
		GPUs           []wireRule        `yaml:"gpus,omitempty"`
		Sharers        int               `yaml:"sharers,omitempty"`
		MemoryReserve  string            `yaml:"memoryReserve,omitempty"`
		Overcommit     *wireOvercommit   `yaml:"overcommit,omitempty"`
		PowerLimit     int               `yaml:"powerLimitWatts,omitempty"`
		GPUHour        float64           `yaml:"gpuHour,omitempty"`
		MIG            []wireLayout      `yaml:"mig,omitempty"`
		MIGKeepWarm    string            `yaml:"migKeepWarm,omitempty"`
		MIGReset       bool              `yaml:"migReset,omitempty"`
		MIGOnDemand    *bool             `yaml:"migOnDemand,omitempty"`
		Profiles       []string          `yaml:"profiles,omitempty"`
	}
	wireProfile struct {
		Name           string   `yaml:"name"`
		Memory         string   `yaml:"memory,omitempty"`
		Percent        uint32   `yaml:"percent,omitempty"`
		GPUs           int      `yaml:"gpus,omitempty"`
		BurstMax       string   `yaml:"burstMax,omitempty"`
		GPUModel       []string `yaml:"gpuModel,omitempty"`
		MinEnforcement string   `yaml:"minEnforcement,omitempty"`
		Backends       []string `yaml:"backends,omitempty"`
		OverCap        string   `yaml:"overCap,omitempty"`
		Place          string   `yaml:"place,omitempty"`
		Priority       int32    `yaml:"priority,omitempty"`
		Namespaces     []string `yaml:"namespaces,omitempty"`
		Hours          []string `yaml:"hours,omitempty"`
		MaxPerPod      string   `yaml:"maxMemoryPerPod,omitempty"`
		Privileged     bool     `yaml:"privileged,omitempty"`
	}
)

// Encode writes a document that Decode reads back as c.
func (c Config) Encode() ([]byte, error) {
	w := wireDocument{APIVersion: APIVersion, Kind: Kind, Spec: wireSpec{Prices: c.doc.Prices.wire()}}
	for _, p := range c.doc.Pools {
		one := wirePool{Name: p.Name, NodeSelector: p.NodeSelector, Place: place(p.Place), MinEnforcement: level(p.MinLevel), OverCap: overCap(p.OverCap), MIG: wireLayouts(p.MIG), Profiles: p.Profiles}
		if p.Mode != ModeAuto {
			one.Mode = p.Mode.String()
		}
		one.Backends = names(p.Backends)
		if p.Strangers != StrangersReport {
			one.Strangers = p.Strangers.String()
		}
		if p.ManagedMemory != ManagedAllow {
			one.ManagedMemory = p.ManagedMemory.String()
		}
		one.UserQuota, one.Health, one.Idle = wireQuotaOf(p.UserQuota), p.Health.wire(), p.Idle.wire()
		if p.Compute != ComputeFair {
			one.Compute = p.Compute.String()
		}
		one.TimeSlice, one.ComputeMode = p.TimeSlice.String(), p.ComputeMode.String()
		if p.MPSSharing != MPSSharingDomain {
			one.MPSSharing = p.MPSSharing.String()
		}
		if p.MPSComputeMode != MPSComputeModeManage {
			one.MPSComputeMode = p.MPSComputeMode.String()
		}
		one.GPUs, one.Sharers, one.MemoryReserve, one.PowerLimit, one.GPUHour = wireRules(p.GPUs), p.Sharers, exact(p.MemoryReserve), p.PowerLimitWatts, p.GPUHour
		one.MIGOnDemand, one.Overcommit = p.MIGOnDemand.wire(), wireFactors(p.Overcommit)
		if one.MIGReset = p.MIGReset; p.MIGKeepWarm != 0 {
			one.MIGKeepWarm = p.MIGKeepWarm.String()
		}
		w.Spec.Pools = append(w.Spec.Pools, one)
	}
	for _, p := range c.doc.Profiles {
		w.Spec.Profiles = append(w.Spec.Profiles, wireProfile{
			Name: p.Name, Memory: exact(p.Memory), Percent: uint32(p.Percent), GPUs: p.GPUs, BurstMax: burst(p.Burst), GPUModel: p.Models,
			MinEnforcement: level(p.MinLevel), Backends: names(p.Backends), OverCap: overCap(p.OverCap), Place: place(p.Place),
			Priority: p.Priority, Namespaces: p.Namespaces, Hours: hourTexts(p.Hours), MaxPerPod: exact(p.MaxPerPod), Privileged: p.Privileged,
		})
	}
	var out bytes.Buffer
	e := yaml.NewEncoder(&out)
	e.SetIndent(2)
	if err := e.Encode(w); err != nil {
		return nil, fmt.Errorf("encode sharing config: %w", err)
	}
	if err := e.Close(); err != nil {
		return nil, fmt.Errorf("encode sharing config: %w", err)
	}
	return out.Bytes(), nil
}

func names(list []Backend) []string {
	var out []string
	for _, b := range list {
		out = append(out, b.String())
	}
	return out
}

func place(s sharing.Spread) string {
	if s == sharing.PlaceDefault {
		return ""
	}
	return s.String()
}

func overCap(o OverCap) string {
	if o == OverCapDefault {
		return ""
	}
	return o.String()
}

func burst(b sharing.Burst) string {
	if b.Percent == 0 {
		return exact(b.Memory)
	}
	return b.String()
}

func level(l sharing.Level) string {
	if l == sharing.LevelUnknown {
		return ""
	}
	return l.String()
}

// exact writes an amount without loss; Bytes.String is for people and may cut.
func exact(b sharing.Bytes) string {
	if b == 0 {
		return ""
	}
	if s := b.String(); readsAs(s, b) {
		return s
	}
	return strconv.FormatUint(uint64(b), 10) + "B"
}

func readsAs(s string, b sharing.Bytes) bool {
	again, err := sharing.ParseBytes("", s)
	return err == nil && again == b
}
