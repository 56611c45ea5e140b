// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Command kerf-scheduler is kube-scheduler with the plugin Kerf compiled in. Its flags and its configuration are those of
// kube-scheduler; deploy/manifests has the configuration that it is made for.
package main

import (
	"os"
	_ "time/tzdata" // hours of profiles are by clocks of time zones, of which the images have no database

	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"          // --logging-format=json
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // the metrics that kube-scheduler has
	_ "k8s.io/component-base/metrics/prometheus/version"
	"k8s.io/kubernetes/cmd/kube-scheduler/app"

	"github.com/kerf-gpu/kerf/cmd/kerf-scheduler/plugin"
)

func main() {
	os.Exit(cli.Run(app.NewSchedulerCommand(app.WithPlugin(plugin.Name, plugin.NewFactory()))))
}
