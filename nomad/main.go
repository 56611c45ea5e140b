// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Command kerf-nomad is a device plugin of Nomad: it offers the memory of each GPU in GiB, as the agent reports it.
// Nomad starts it from its plugin_dir.
package main

import (
	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/nomad/plugins/device"

	"github.com/kerf-gpu/kerf/nomad/plugin"
)

// version is set by the linker.
var version = "dev"

func main() {
	log := hclog.New(&hclog.LoggerOptions{Level: hclog.Debug, JSONFormat: true})
	device.Serve(plugin.New(version, log), log)
}
