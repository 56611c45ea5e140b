// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strings"
)

const made = "<!-- Made from the code by tools/reference: run make generate. -->\n\n"

// pages are the reference, by file.
func (s *source) pages() (map[string][]byte, error) {
	metrics, err := s.metrics()
	if err != nil {
		return nil, err
	}
	events, err := s.events()
	if err != nil {
		return nil, err
	}
	keys, err := s.keys()
	if err != nil {
		return nil, err
	}
	return map[string][]byte{"metrics.md": metricsPage(metrics), "events.md": eventsPage(events),
		"keys.md": keysPage(keys)}, nil
}

func metricsPage(list []metric) []byte {
	var b strings.Builder
	b.WriteString(made + "# Metrics\n\nEvery metric of Kerf. [Monitor with Prometheus and " +
		"Grafana](../operate/monitoring.md) has queries and alerts.\n" +
		"kerf-monitor also exports the names of dcgm-exporter: see " +
		"[kerf-monitor](kerf-monitor.md#compatibility-with-dcgm-exporter).\n" +
		"kerf-scheduler adds its metrics to those of kube-scheduler.\n")
	last := ""
	for _, m := range list {
		if m.program != last {
			fmt.Fprintf(&b, "\n## %s\n\n| name | kind | labels | what it is |\n|---|---|---|---|\n", m.program)
			last = m.program
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", m.name, m.kind, strings.Join(m.labels, ", "), cell(m.help))
	}
	return []byte(b.String())
}

func eventsPage(list []event) []byte {
	var b strings.Builder
	b.WriteString(made + "# Events\n\nThe reasons of the events that Kerf writes, and what each is about. Why a " +
		"container with a GPU cannot start is in kubelet's own events of the pod.\n\n" +
		"| reason | by | what it says |\n|---|---|---|\n")
	for _, e := range list {
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", e.reason, e.program, cell(e.doc))
	}
	return []byte(b.String())
}

func keysPage(k keys) []byte {
	var b strings.Builder
	b.WriteString(made + "# Resources, annotations, labels and taints\n\nEvery key of the domain kerf.dev. The pages " +
		"on [pods](../use/pods.md) and on [GPU nodes](../operate/nodes.md) use them.\n")
	for _, part := range []struct {
		title, intro string
		list         []key
	}{
		{"Resources", "What a container requests, in its limits.", k.resources},
		{"Annotations", "Of pods, but where it is said.", k.annotations},
		{"Labels", "Of nodes, but where it is said.", k.labels},
		{"Taints", "Of nodes.", k.taints},
	} {
		fmt.Fprintf(&b, "\n## %s\n\n%s\n\n| key | what it is |\n|---|---|\n", part.title, part.intro)
		for _, one := range part.list {
			fmt.Fprintf(&b, "| %s | %s |\n", one.name, cell(one.doc))
		}
	}
	return []byte(b.String())
}

// cell is a text for a table.
func cell(text string) string { return strings.ReplaceAll(text, "|", `\|`) }
