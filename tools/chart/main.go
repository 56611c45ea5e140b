// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Command chart writes the manifests in deploy/ out of the chart deploy/chart, with Helm's own engine, or checks that
// they are what the chart makes:
//
//	chart [--check] DEPLOY
//
// It promises that every file it knows of is the chart's with the values listed here, and ignores other files. It is
// a separate module, so that no program depends on Helm.
package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

func main() {
	args := os.Args[1:]
	check := len(args) == 2 && args[0] == "--check"
	if check {
		args = args[1:]
	}
	if len(args) != 1 || strings.HasPrefix(args[0], "-") {
		fmt.Fprintln(os.Stderr, "usage: chart [--check] DEPLOY")
		os.Exit(2)
	}
	if err := manifests(args[0], !check); err != nil {
		fmt.Fprintln(os.Stderr, "chart:", err)
		os.Exit(1)
	}
}

// plain are the values of the manifests that are applied without Helm: the agent and what holds it, as the quick start
// goes through them.
func plain() values {
	return values{
		"namespace": values{"create": true},
		"monitor":   values{"enabled": false},
		"scheduler": values{"replicas": 1},
		"admission": values{"mutate": "never"},
	}
}

// with is a copy of plain with one key of a section, or one section, set.
func with(section, key string, value any) values {
	v := plain()
	inner, ok := v[section].(values)
	if !ok {
		inner = values{}
	}
	inner[key] = value
	v[section] = inner
	return v
}

// binding has the controller of claims, once.
func binding() values {
	v := plain()
	v["dra"] = values{"enabled": true, "bindingConditions": values{"enabled": true, "replicas": 1}}
	return v
}

// a variant is one file with other values.
type variant struct {
	template, file string
	values         values
}

func variants() []variant {
	return []variant{
		{"agent/02-runtimeclass.yaml", "runtimeclass-nvidia.yaml", with("runtimeClass", "create", true)},
		{"agent/15-evict.yaml", "evict-over-cap.yaml", with("agent", "allowEviction", true)},
		{"agent/16-node-health.yaml", "node-health.yaml", with("agent", "nodeHealth", true)},
		{"agent/17-dra.yaml", "dra.yaml", with("dra", "enabled", true)},
		{"agent/30-agent.yaml", "dra-agent.yaml", with("dra", "enabled", true)},
		{"agent/18-claims.yaml", "dra-binding.yaml", binding()},
		{"agent/30-agent.yaml", "crio.yaml", with("poolDefaults", "containerRuntime", "crio")},
		{"agent/30-agent.yaml", "privileged.yaml", with("poolDefaults", "driverAccess", "hostLibrary")},
		{"agent/30-agent.yaml", "read-only-gpu-settings.yaml", with("poolDefaults", "gpuSettings", "read-only")},
		{"agent/35-monitor.yaml", "monitor.yaml", with("monitor", "enabled", true)},
		{"mutation/scheduler-name.yaml", "scheduler-name.yaml", with("admission", "mutate", "always")},
	}
}

// manifests writes, or compares, every file of deploy that is made of the chart.
func manifests(deploy string, write bool) error {
	chart := filepath.Join(deploy, "chart")
	if err := packaged(deploy, write); err != nil {
		return err
	}
	files, err := render(chart, namespace, plain())
	if err != nil {
		return err
	}
	want := map[string]string{}
	for name, text := range files {
		switch folder, file := filepath.Split(name); folder {
		case "agent/":
			want["manifests/"+file] = text
		case "scheduler/":
			want["scheduler/"+file] = text
		case "tests/": // only Helm runs them
		default:
			return fmt.Errorf("%s is no file of deploy/: give it a folder, or leave it out of the plain values", name)
		}
	}
	if files, err = render(chart, namespace, with("podMonitor", "enabled", true)); err != nil {
		return err
	}
	want["monitoring/podmonitor.yaml"] = files["monitoring/podmonitor.yaml"]
	for _, v := range variants() {
		made, err := render(chart, namespace, v.values)
		if err != nil {
			return err
		}
		want["variants/"+v.file] = made[v.template]
	}
	return carry(deploy, want, write)
}

// packaged writes, or compares, the copies of deploy/monitoring in the chart: Helm packages only files of its folder.
func packaged(deploy string, write bool) error {
	sources, err := filepath.Glob(filepath.Join(deploy, "monitoring/dashboards/*.json"))
	if err != nil {
		return err
	}
	for _, source := range append(sources, filepath.Join(deploy, "monitoring/rules.yaml")) {
		text, err := os.ReadFile(source)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(filepath.Join(deploy, "monitoring"), source)
		if err != nil {
			return err
		}
		said, err := compare(filepath.Join(deploy, "chart/files", name), string(text), write)
		if err != nil {
			return err
		}
		if said != "" {
			return fmt.Errorf("deploy/chart/files/%s is no copy: %s; run 'make generate'", name, said)
		}
	}
	return nil
}

// carry writes or compares files, and finds those that the chart does not make any more.
func carry(deploy string, want map[string]string, write bool) error {
	var stale []error
	for file, text := range want {
		if text == "" {
			return fmt.Errorf("%s would be empty", file)
		}
		said, err := compare(filepath.Join(deploy, file), text, write)
		if err != nil {
			return err
		}
		if said != "" {
			stale = append(stale, fmt.Errorf("deploy/%s is not what the chart makes: %s", file, said))
		}
	}
	for _, folder := range []string{"manifests", "scheduler", "variants"} {
		here, err := filepath.Glob(filepath.Join(deploy, folder, "*"))
		if err != nil {
			return err
		}
		for _, file := range here {
			if _, ok := want[folder+"/"+filepath.Base(file)]; !ok {
				stale = append(stale, fmt.Errorf("deploy/%s/%s is nothing that the chart makes", folder,
					filepath.Base(file)))
			}
		}
	}
	if len(stale) > 0 {
		return errors.Join(append(stale, errors.New("change deploy/chart, then run 'make generate'"))...)
	}
	return nil
}
