// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"go.yaml.in/yaml/v3"
	corev1 "k8s.io/api/core/v1"
)

// monitored has everything for Prometheus and Grafana.
func monitored() values {
	return values{"prometheusRule": values{"enabled": true, "labels": values{"release": "prometheus"}},
		"dashboards": values{"enabled": true}}
}

// TestDashboardsInTheChart: the ConfigMap has each dashboard of deploy/monitoring, and the label of Grafana's sidecar.
func TestDashboardsInTheChart(t *testing.T) {
	m := byName[*corev1.ConfigMap](t, monitored())["kerf-dashboards"]
	files, err := filepath.Glob(filepath.Join(deploy, "monitoring/dashboards/*.json"))
	if err != nil || len(files) < 4 || m == nil || len(m.Data) != len(files) {
		t.Fatalf("%d files, %v: %v", len(files), m, err)
	}
	if m.Labels["grafana_dashboard"] != "1" {
		t.Errorf("labels %v", m.Labels)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var want, have any
		if err := json.Unmarshal(text, &want); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal([]byte(m.Data["kerf-"+filepath.Base(file)]), &have); err != nil {
			t.Errorf("%s: %v", file, err)
		}
		if !reflect.DeepEqual(want, have) {
			t.Errorf("%s is another in the chart", file)
		}
	}
}

// TestRulesInTheChart: the PrometheusRule has the groups of deploy/monitoring/rules.yaml.
func TestRulesInTheChart(t *testing.T) {
	var rule struct {
		Metadata struct{ Labels map[string]string }
		Spec     values
	}
	if err := yaml.Unmarshal([]byte(made(t, monitored())["monitoring/rules.yaml"]), &rule); err != nil {
		t.Fatal(err)
	}
	want := read(t, filepath.Join(deploy, "monitoring/rules.yaml"))
	if groups, _ := want["groups"].([]any); len(groups) == 0 || !reflect.DeepEqual(rule.Spec, want) {
		t.Errorf("the rules are others in the chart: %v", rule.Spec)
	}
	if rule.Metadata.Labels["release"] != "prometheus" {
		t.Errorf("labels %v", rule.Metadata.Labels)
	}
	if files := made(t, values{}); files["monitoring/rules.yaml"]+files["monitoring/dashboards.yaml"] != "" {
		t.Error("they are there by default")
	}
}
