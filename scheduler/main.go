// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Command kerf-scheduler is kube-scheduler with the plugin Kerf. Its flags and its configuration are those of
// kube-scheduler. deploy/scheduler has the configuration that Kerf needs.
package main

import (
	"os"
	"runtime/debug"
	_ "time/tzdata" // hours of profiles are by clocks of time zones, of which the images have no database

	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register" // --logging-format=json
	"k8s.io/component-base/metrics/legacyregistry"
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // the metrics that kube-scheduler has
	_ "k8s.io/component-base/metrics/prometheus/version"
	"k8s.io/kubernetes/cmd/kube-scheduler/app"

	"github.com/kerf-gpu/kerf/scheduler/command"
	"github.com/kerf-gpu/kerf/scheduler/plugin"
)

// garbagePercent has garbage collected when there is half as much of it as of what lives, not as much. Most of a
// scheduler's garbage comes with the pods that it binds, and this one binds more of them in a second than
// kube-scheduler. The variable GOGC overrules it.
const garbagePercent = 50

// version is set by the linker.
var version = "dev"

func main() {
	if _, set := os.LookupEnv("GOGC"); !set {
		debug.SetGCPercent(garbagePercent)
	}
	os.Exit(cli.Run(command.New(version, app.WithPlugin(plugin.Name, plugin.NewFactory(legacyregistry.Register)))))
}
