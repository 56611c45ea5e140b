// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/prometheus/common/model"
	"github.com/spf13/cobra"

	"github.com/kerf-gpu/kerf/internal/cli/command"
	"github.com/kerf-gpu/kerf/internal/kube/access"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/audit"
	"github.com/kerf-gpu/kerf/sharing/audit/file"
	"github.com/kerf-gpu/kerf/sharing/usage"
)

// narrow is how many columns of amounts the table has without -o wide: up to the cost.
const narrow = 7

// showUsage writes a report.
func showUsage(out io.Writer, rows []usage.Row, o *usageOptions, currency string) error {
	if text, ok, err := o.Encode(struct {
		By       []string    `json:"by"`
		Since    string      `json:"since"`
		Currency string      `json:"currency,omitempty"`
		Rows     []usage.Row `json:"rows"`
	}{o.by, o.since.String(), currency, rows}, func() []string { return groups(rows, o.by) }); ok {
		if err == nil {
			_, err = out.Write(text)
		}
		return err
	}
	all := append(slices.Clone(o.by), "granted_gpu_hours", "used_gpu_hours", "wasted_gpu_hours", "idle_gpu_hours",
		"unknown_gpu_hours", "kwh", "cost",
		"memory_p99_percent", "compute_p99_percent", "enough_percent", "saved_gpu_hours", "saved_cost")
	if o.Output == "csv" {
		lines := [][]string{all}
		for _, r := range rows {
			lines = append(lines, cells(r, o.by, ""))
		}
		return csv.NewWriter(out).WriteAll(lines)
	}
	return usageTable(out, rows, o, all, currency)
}

// groups returns the names of the groups, with the keys that they are grouped by.
func groups(rows []usage.Row, by []string) []string {
	var out []string
	for _, r := range rows {
		out = append(out, strings.Join(by, ",")+"/"+strings.Join(cells(r, by, "")[:len(by)], ","))
	}
	return out
}

// usageTable writes the table for people; only -o wide has the columns after the cost.
func usageTable(out io.Writer, rows []usage.Row, o *usageOptions, head []string, currency string) error {
	if len(rows) == 0 {
		_, err := fmt.Fprintf(out, "No grant was used in the last %s.\n", model.Duration(o.since))
		return err
	}
	shown := len(o.by) + narrow
	if o.Wide() {
		shown = len(head)
	}
	head = head[:shown]
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	names := strings.NewReplacer("_gpu_hours", "", "_percent", " %", "_", " ")
	for i, h := range head {
		head[i] = strings.ToUpper(names.Replace(h))
	}
	lines := []string{strings.Join(head, "\t")}
	for _, r := range rows {
		lines = append(lines, strings.Join(cells(r, o.by, "-")[:shown], "\t"))
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
func clusterUsage(ctx context.Context, a *command.App, since time.Time,
	take func(from string, answer []byte) error) error {
	return a.WithCluster(ctx, func(ctx context.Context, api *access.Client) error {
		pods, err := command.OwnPods(ctx, api, "kerf-agent")
		if err != nil {
			return err
		}
		if len(pods) == 0 {
			return fmt.Errorf("no kerf-agent runs in namespace %s: name the agents with --agent, or deploy them: %w",
				command.SystemNamespace, sharing.ErrNotFound)
		}
		for _, p := range pods {
			answer, err := command.CallPod(ctx, api, p, command.AgentPort, "usage",
				url.Values{"since": {since.UTC().Format(time.RFC3339)}}, mostUsage)
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

func auditCommand(a *command.App) *cobra.Command {
	c := &cobra.Command{
		Use:   "audit",
		Short: "Check the audit log of a node",
		Args:  cobra.NoArgs,
	}
	var expect string
	verify := &cobra.Command{
		Use:   "verify [AUDIT-DIR]",
		Short: "Check that no line of the audit log was changed, removed or added",
		Long: `Check that no line of the audit log was changed, removed or added. Each line
has the hash of the line before it. The command reads the files, so it needs
read access. Without AUDIT-DIR it reads the log below --run-dir.

Only --expect detects lines that are missing at the end. Store the printed hash
in another place.`,
		Example: "  sudo kerf audit verify /var/lib/kerf/audit",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			dir := filepath.Join(a.Dir, "audit")
			if len(args) == 1 {
				dir = args[0]
			}
			return command.Fail(verifyAudit(a, dir, expect))
		},
	}
	verify.Flags().StringVar(&expect, "expect", "", "hash from an earlier run; one line must have it")
	c.AddCommand(verify)
	return c
}

// verifyAudit checks the files, and says what there is.
func verifyAudit(a *command.App, dir, expect string) error {
	paths, err := file.Files(dir)
	if err != nil {
		return err
	}
	if len(paths) == 0 {
		return fmt.Errorf("directory %q has no audit log: %w", dir, sharing.ErrNotFound)
	}
	found := expect == ""
	v, err := file.Verify(paths, func(e audit.Entry) { found = found || e.Sum == expect })
	if !found {
		err = errors.Join(err, fmt.Errorf(
			"no line has the hash %q: lines were removed, or the log was replaced: %w", expect, sharing.ErrInvalid))
	}
	if err != nil {
		return err
	}
	torn := ""
	if v.Torn {
		torn = "; the last line has no end yet"
	}
	_, err = fmt.Fprintf(a.Out, "entries %d to %d in %d files are whole%s\nhash of the last: %s\n", v.First, v.Tail.Seq,
		len(paths), torn, v.Tail.Sum)
	return err
}
