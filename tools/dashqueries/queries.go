// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// query is one query of a dashboard, with its variables filled in.
type query struct{ panel, expr string }

// dashboard is what is read of Grafana's format.
type dashboard struct {
	Title      string
	Templating struct {
		List []struct {
			Name    string
			Current struct{ Value string }
		}
	}
	Panels []struct {
		Title   string
		Targets []struct{ Expr string }
	}
}

var errNone = errors.New("has no queries")

// queriesOf are the queries of a dashboard's panels.
func queriesOf(data []byte) ([]query, error) {
	var d dashboard
	if err := json.Unmarshal(data, &d); err != nil {
		return nil, fmt.Errorf("read dashboard: %w", err)
	}
	fill := []string{"$__range", "1h", "$__rate_interval", "5m", "$__interval", "1m"}
	for _, v := range d.Templating.List {
		value := v.Current.Value
		if value == "" || strings.HasPrefix(value, "$") {
			value = ".*"
		}
		fill = append(fill, "$"+v.Name, value)
	}
	variables := strings.NewReplacer(fill...)
	var out []query
	for _, p := range d.Panels {
		for _, t := range p.Targets {
			if t.Expr == "" {
				return nil, fmt.Errorf("panel %q of %q: %w", p.Title, d.Title, errNone)
			}
			out = append(out, query{d.Title + ": " + p.Title, variables.Replace(t.Expr)})
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("%q: %w", d.Title, errNone)
	}
	return out, nil
}

// document is a file of recording rules.
type document struct {
	Groups []group `json:"groups"`
}

type group struct {
	Name  string `json:"name"`
	Rules []rule `json:"rules"`
}

type rule struct {
	Record string            `json:"record"`
	Expr   string            `json:"expr"`
	Labels map[string]string `json:"labels"`
}

func rulesOf(all []query) document {
	g := group{Name: "dashboards"}
	for _, q := range all {
		g.Rules = append(g.Rules, rule{"dashboard:query", q.expr,
			map[string]string{"panel": q.panel, "query": fmt.Sprint(len(g.Rules))}})
	}
	return document{[]group{g}}
}
