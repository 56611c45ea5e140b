// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"
)

// dashboard is what is read of Grafana's format.
type dashboard struct {
	Title      string
	Templating struct {
		List []struct {
			Name    string
			Current struct{ Value any }
		}
	}
	Panels []panel
}

type panel struct {
	Type, Title string
	GridPos     struct{ X, Y, W, H int }
	Targets     []target
	FieldConfig struct {
		Defaults struct {
			Unit     string
			Mappings []struct {
				Options map[string]struct{ Text string }
			}
			Custom struct{ Stacking struct{ Mode string } }
		}
	}
	Options struct{ TextMode string }

	// found has what each target's query answered.
	found [][]series
}

type target struct {
	Expr, LegendFormat string
	Instant            bool
}

var errNone = errors.New("has no panel")

// parse reads a dashboard, and puts values in place of its variables: those that are given, else those that it begins
// with, else all. Grafana's own are those of the time that is shown.
func parse(data []byte, given map[string]string, back time.Duration) (dashboard, error) {
	var d dashboard
	if err := json.Unmarshal(data, &d); err != nil {
		return d, fmt.Errorf("read dashboard: %w", err)
	}
	if len(d.Panels) == 0 {
		return d, errNone
	}
	all := map[string]string{}
	for _, v := range d.Templating.List {
		all[v.Name] = ".*"
		if s, ok := v.Current.Value.(string); ok && s != "" && !strings.HasPrefix(s, "$") {
			all[v.Name] = s
		}
	}
	maps.Copy(all, given)
	seconds := fmt.Sprintf("%ds", int(back.Seconds()))
	fill := []string{"$__range", seconds, "$__rate_interval", "1m", "$__interval", "5s"}
	for name, value := range all {
		fill = append(fill, "$"+name, value)
	}
	// A board of one node compares for equality; where all are shown that is a pattern.
	values, patterns := strings.NewReplacer(fill...), strings.NewReplacer(`=".*"`, `=~".*"`)
	for _, p := range d.Panels {
		for i, t := range p.Targets {
			p.Targets[i].Expr = patterns.Replace(values.Replace(t.Expr))
		}
	}
	return d, nil
}

// name is how a series is called in a legend.
func (t target) name(labels map[string]string) string {
	if t.LegendFormat == "" {
		return labels["__name__"]
	}
	fill := make([]string, 0, 2*len(labels))
	for k, v := range labels {
		fill = append(fill, "{{"+k+"}}", v)
	}
	return strings.TrimSpace(strings.NewReplacer(fill...).Replace(t.LegendFormat))
}

// text writes a value as people read it.
func (p *panel) text(v float64) string {
	for _, m := range p.FieldConfig.Defaults.Mappings {
		if to, ok := m.Options[fmt.Sprint(v)]; ok {
			return to.Text
		}
	}
	switch p.FieldConfig.Defaults.Unit {
	case "bytes":
		return fmt.Sprintf("%.1f GiB", v/(1<<30))
	case "percentunit":
		return fmt.Sprintf("%.1f %%", 100*v)
	case "watt":
		return fmt.Sprintf("%.0f W", v)
	case "celsius":
		return fmt.Sprintf("%.0f °C", v)
	case "h":
		return fmt.Sprintf("%.2f h", v)
	case "s":
		return fmt.Sprintf("%.3g s", v)
	case "kwatth":
		return fmt.Sprintf("%.3f kWh", v)
	case "ops":
		return fmt.Sprintf("%.2f /s", v)
	}
	return fmt.Sprintf("%.4g", v)
}
