// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"context"
	"encoding/csv"
	"fmt"
	"io"
	"net/url"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/kerf-gpu/kerf/internal/cli/command"
	"github.com/kerf-gpu/kerf/internal/kube/access"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/usage"
)

// showUsage writes a report.
func showUsage(out io.Writer, rows []usage.Row, o *usageOptions, currency string) error {
	if o.output == "json" || o.output == "yaml" {
		text, err := command.Encoded(o.output, struct {
			By       []string    `json:"by"`
			Since    string      `json:"since"`
			Currency string      `json:"currency,omitempty"`
			Rows     []usage.Row `json:"rows"`
		}{o.by, o.since.String(), currency, rows})
		if err == nil {
			_, err = out.Write(text)
		}
		return err
	}
	head := append([]string{}, o.by...)
	head = append(head, "granted_gpu_hours", "used_gpu_hours", "wasted_gpu_hours", "idle_gpu_hours", "unknown_gpu_hours", "kwh", "cost",
		"memory_p99_percent", "compute_p99_percent", "enough_percent", "saved_gpu_hours", "saved_cost")
	if o.output == "csv" {
		w := csv.NewWriter(out)
		lines := [][]string{head}
		for _, r := range rows {
			lines = append(lines, cells(r, o.by, ""))
		}
		return w.WriteAll(lines)
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	names := strings.NewReplacer("_gpu_hours", "", "_percent", " %", "_", " ")
	for i, h := range head {
		head[i] = strings.ToUpper(names.Replace(h))
	}
	lines := []string{strings.Join(head, "\t")}
	for _, r := range rows {
		lines = append(lines, strings.Join(cells(r, o.by, "-"), "\t"))
	}
	note := "GPU hours; - is not known or none"
	if currency != "" {
		note += "; costs in " + currency
	}
	if _, err := fmt.Fprintln(w, strings.Join(lines, "\n")); err != nil {
		return err
	}
	if err := w.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintln(out, note)
	return err
}

// cells are a row's values; none stands for what there is not.
func cells(r usage.Row, by []string, none string) []string {
	var out []string
	for _, k := range by {
		v := r.Labels[k]
		if v == "" {
			v = none
		}
		out = append(out, v)
	}
	number := func(v float64) { out = append(out, strconv.FormatFloat(v, 'f', 3, 64)) }
	maybe := func(v *float64) {
		if v == nil {
			out = append(out, none)
			return
		}
		number(*v)
	}
	percent := func(v *int) {
		if v == nil {
			out = append(out, none)
			return
		}
		out = append(out, strconv.Itoa(*v))
	}
	for _, v := range []float64{r.Granted, r.Used, r.Wasted, r.Idle, r.Unknown} {
		number(v)
	}
	maybe(r.KWh)
	maybe(r.Cost)
	percent(r.MemoryP99)
	percent(r.ComputeP99)
	percent(r.Enough)
	maybe(r.SavedHours)
	maybe(r.SavedMoney)
	return out
}

// clusterUsage asks the agents of all nodes what was used.
func clusterUsage(ctx context.Context, a *command.App, since time.Time, take func(from string, answer []byte) error) error {
	return a.WithCluster(ctx, func(ctx context.Context, api *access.Client) error {
		pods, err := command.OwnPods(ctx, api, "kerf-agent")
		if err != nil {
			return err
		}
		if len(pods) == 0 {
			return fmt.Errorf("no kerf-agent runs in namespace %s: name the agents with --agent, or deploy them: %w", command.SystemNamespace, sharing.ErrNotFound)
		}
		for _, p := range pods {
			answer, err := command.AskPod(ctx, api, p, command.AgentPort, "usage", url.Values{"since": {since.UTC().Format(time.RFC3339)}}, mostUsage)
			if err == nil {
				err = take("the agent of "+p.Node, answer)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}
