// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package config_test

import (
	"strings"
	"testing"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/config"
)

// A pool has one front end for all its GPUs, whatever its rules say. The DRA front end shares no MIG instances.
func TestFrontEnd(t *testing.T) {
	t.Parallel()
	decode := func(pool string) (config.Config, error) {
		return config.Decode([]byte("apiVersion: kerf.dev/v1alpha2\nkind: SharingConfig\nspec:\n  pools:\n" +
			"  - {name: a, " + pool + "}\n"))
	}
	const rule = "gpuRules: [{index: [0], mode: whole}]"
	for pool, want := range map[string]sharing.FrontEnd{
		"mode: auto": sharing.FrontEndDevicePlugin, "frontend: devicePlugin": sharing.FrontEndDevicePlugin,
		"frontend: dra": sharing.FrontEndDRA, "frontend: dra, " + rule: sharing.FrontEndDRA,
		"frontend: dra, mode: mig":                                    sharing.FrontEndDRA,
		"frontend: dra, mode: auto, migLayouts: [{migEnabled: true}]": sharing.FrontEndDRA,
		"frontend: dra, bindingConditions: true":                      sharing.FrontEndDRA,
		"bindingConditions: false":                                    sharing.FrontEndDevicePlugin,
	} {
		c, err := decode(pool)
		if err != nil {
			t.Fatalf("%s: %v", pool, err)
		}
		if p := c.Pools()[0]; p.BindingConditions != strings.HasSuffix(pool, "true") || p.FrontEnd != want ||
			p.Of(sharing.GPU{}).FrontEnd != want {
			t.Errorf("%s: %v, of a GPU %v", pool, p.FrontEnd, p.Of(sharing.GPU{}).FrontEnd)
		}
	}
	for pool, want := range map[string]string{
		"frontend: claims": "spec.pools[0].frontend",
		"frontend: dra, migLayouts: [{migEnabled: true, shared: true}]": "spec.pools[0].frontend",
		"gpuRules: [{index: [0], frontend: dra}]":                       "spec.pools[0].gpuRules[0].frontend",
		"bindingConditions: true":                                       "spec.pools[0].bindingConditions",
	} {
		if _, err := decode(pool); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want an error of %s", pool, err, want)
		}
	}
}
