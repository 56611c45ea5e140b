// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"strings"
	"testing"

	"github.com/kerf-gpu/kerf/sharing"
)

func TestMPS(t *testing.T) {
	doc := func(pool string) []byte { return []byte(head + "spec:\n  pools:\n  - {name: a, " + pool + "}\n") }
	for text, want := range map[string]MPSSharing{
		"backends: [driver, mps]":                     MPSSharingDomain,
		"backends: [driver, mps], mpsSharing: domain": MPSSharingDomain,
		"backends: [driver, mps], mpsSharing: pool":   MPSSharingPool,
	} {
		c, err := Decode(doc(text))
		if err != nil {
			t.Fatal(err)
		}
		out, err := c.Encode()
		if err == nil {
			c, err = Decode(out)
		}
		if err != nil || c.Pools()[0].MPSSharing != want || c.Pools()[0].Backends[1] != sharing.BackendMPS {
			t.Errorf("%s: read back as %+v, %v", text, c.Pools(), err)
		}
	}
	for text, want := range map[string]MPSComputeMode{
		"backends: [driver, mps]":                                             MPSComputeModeManage,
		"backends: [driver, mps], mpsComputeMode: manage":                     MPSComputeModeManage,
		"backends: [driver, mps], mpsComputeMode: keep":                       MPSComputeModeKeep,
		"backends: [driver, mps], mpsComputeMode: keep, computeMode: default": MPSComputeModeKeep, // Kerf sets it once, MPS never
	} {
		c, err := Decode(doc(text))
		if err != nil {
			t.Fatal(err)
		}
		out, err := c.Encode()
		if err == nil {
			c, err = Decode(out)
		}
		if err != nil || c.Pools()[0].MPSComputeMode != want {
			t.Errorf("%s: read back as %+v, %v", text, c.Pools(), err)
		}
	}
	for text, want := range map[string]string{
		"mpsComputeMode: leave":                         `mpsComputeMode "leave" is not a rule for the compute mode under MPS; write manage or keep`,
		"mpsSharing: node":                              `mpsSharing "node" is not a way to share MPS; write domain or pool`,
		"backends: [driver, mps], computeMode: default": "computeMode \"default\" is set by MPS itself",
	} {
		if _, err := Decode(doc(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}
