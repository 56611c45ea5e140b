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
	for text, want := range map[string]MPSDaemonScope{
		"backends: [driver, mps]":                            MPSScopeNamespace,
		"backends: [driver, mps], mpsDaemonScope: namespace": MPSScopeNamespace,
		"backends: [driver, mps], mpsDaemonScope: pool":      MPSScopePool,
	} {
		c, err := Decode(doc(text))
		if err != nil {
			t.Fatal(err)
		}
		out, err := c.Encode()
		if err == nil {
			c, err = Decode(out)
		}
		if err != nil || c.Pools()[0].MPSDaemonScope != want || c.Pools()[0].Backends[1] != sharing.BackendMPS {
			t.Errorf("%s: read back as %+v, %v", text, c.Pools(), err)
		}
	}
	for text, want := range map[string]MPSComputeMode{
		"backends: [driver, mps]":                         MPSComputeModeManage,
		"backends: [driver, mps], mpsComputeMode: manage": MPSComputeModeManage,
		"backends: [driver, mps], mpsComputeMode: keep":   MPSComputeModeUnchanged,
		// Kerf sets it once, MPS never
		"backends: [driver, mps], mpsComputeMode: keep, computeMode: default": MPSComputeModeUnchanged,
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
		"mpsComputeMode: leave": `mpsComputeMode "leave" is not a rule for the compute mode under MPS; write manage ` +
			`or keep`,
		"mpsDaemonScope: " +
			"node": `mpsDaemonScope "node" is not the scope of an MPS daemon; write namespace or pool`,
		"backends: [driver, mps], computeMode: default": "computeMode \"default\" is set by MPS itself",
	} {
		if _, err := Decode(doc(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}
