// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Command dashqueries writes the queries of Grafana dashboards as recording rules, so that what checks rules can check
// them.
//
//	dashqueries FILE...
//
// Grafana's own variables ($__range, ...) become 1h, and the dashboards' own what they are at first.
package main

import (
	"encoding/json"
	"fmt"
	"os"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "dashqueries:", err)
		os.Exit(1)
	}
}

func run(files []string) error {
	var all []query
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		found, err := queriesOf(data)
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		all = append(all, found...)
	}
	// JSON is YAML, and needs only the standard library.
	e := json.NewEncoder(os.Stdout)
	e.SetIndent("", " ")
	return e.Encode(rulesOf(all))
}
