// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Command dashdraw draws what Grafana dashboards show of a Prometheus, each as an SVG file.
//
//	dashdraw -prometheus URL -out DIR [-range 10m] [-node NAME] FILE...
//
// It asks the panels' own queries and lays the panels out as they say. So a reader of the pages sees what is on them,
// and with which numbers. It is not Grafana: colours, fonts and axes are its own, and of a panel's settings it knows
// those that these dashboards have.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

func main() {
	p := prometheus{}
	out := flag.String("out", ".", "folder of the drawings")
	flag.StringVar(&p.at, "prometheus", "http://127.0.0.1:9090", "Prometheus that is asked")
	flag.DurationVar(&p.back, "range", 10*time.Minute, "how much time is shown, to now")
	node := flag.String("node", ".*", "node that a dashboard of one node shows")
	flag.Parse()
	p.end = time.Now()
	for _, file := range flag.Args() {
		if err := drawFile(p, file, *out, *node); err != nil {
			fmt.Fprintln(os.Stderr, "dashdraw:", err)
			os.Exit(1)
		}
	}
}

func drawFile(p prometheus, file, out, node string) error {
	data, err := os.ReadFile(file) // #nosec G304 -- the dashboards that its user names
	if err != nil {
		return err
	}
	d, err := parse(data, map[string]string{"node": node}, p.back)
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for i := range d.Panels {
		if err := p.fill(ctx, &d.Panels[i]); err != nil {
			return fmt.Errorf("%s: panel %q: %w", file, d.Panels[i].Title, err)
		}
	}
	name := strings.TrimSuffix(filepath.Base(file), ".json") + ".svg"
	return os.WriteFile(filepath.Join(out, name), draw(d), 0o644) // #nosec G306 -- a document
}
