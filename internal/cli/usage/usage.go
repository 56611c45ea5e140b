// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package usage is the commands that account for what was used: kerf usage, and kerf audit for the audit log.
package usage

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/user"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/kerf-gpu/kerf/internal/agentusage"
	"github.com/kerf-gpu/kerf/internal/cli/command"
	"github.com/kerf-gpu/kerf/internal/nodeclient"
	"github.com/kerf-gpu/kerf/internal/promread"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/config"
	"github.com/kerf-gpu/kerf/sharing/usage"
)

const (
	// usageDeadline bounds one agent's answer.
	usageDeadline = 30 * time.Second
	// mostUsage is the most that is read of one answer, in bytes.
	mostUsage = 1 << 30
)

// usageOptions are the flags of kerf usage.
type usageOptions struct {
	command.Listing

	by, agents []string
	prometheus string
	// orLogs: the logs are asked where the Prometheus does not answer.
	orLogs bool
	since  time.Duration
	plot   string
}

// Commands are the commands of this package.
func Commands(a *command.App) []*cobra.Command {
	return []*cobra.Command{usageCommand(a), auditCommand(a)}
}

func usageCommand(a *command.App) *cobra.Command {
	o := &usageOptions{}
	c := &cobra.Command{
		Use:   "usage",
		Short: "Sum up what grants used, and what that costs",
		Long: `Sum up what grants used of their GPUs, from the audit logs of the agents. GPU
hours count whole GPUs: half a GPU for two hours is one. wasted is granted but
not used. idle is the part of wasted in which a grant used nothing. unknown is
time without data from the driver. enough is the 99th percentile of usage, of
memory or compute, whichever is more, plus 10%. Prices come from the config
(spec.prices). For a cluster, the command asks all agents through the API
server, which needs the right to get pods/proxy in kerf-system.

Agents sample every 10 seconds and write every 15 minutes, and when a grant
ends. With --prometheus, the command asks a Prometheus that scrapes
kerf-monitor, and takes the prices from this node or from the first --agent.
KERF_PROMETHEUS sets a Prometheus for all calls. If that one does not answer,
the command says so and reads the logs.`,
		Example: "  kerf usage --by namespace,profile --since 24h\n" +
			"  kerf usage --by namespace -o csv \\\n" +
			"    --agent http://node-1:9445 --agent http://node-2:9445\n" +
			"  kerf usage --by label:team --prometheus http://prometheus:9090",
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := o.check(c); err != nil {
				return command.Misused(err)
			}
			if at := a.Getenv("KERF_PROMETHEUS"); at != "" && !command.Changed(c, "prometheus") {
				o.prometheus, o.orLogs = at, true
			}
			return command.Fail(report(c.Context(), a, o, len(o.agents) == 0 && a.Remote(c)))
		},
	}
	f := c.Flags()
	f.StringSliceVar(&o.by, "by", []string{"namespace"}, "keys to group by, separated by commas: "+
		strings.Join(usage.Keys(), ", ")+", "+usage.LabelKey+" and a pod's label")
	command.DaysFlag(c, &o.since, "since", 24*time.Hour, "how far back, such as 12h, 7d or 2w")
	f.StringSliceVar(&o.agents, "agent", nil,
		"address of an agent's --metrics-bind-address (repeatable; default: the agent of this node)")
	f.StringVar(&o.prometheus, "prometheus", "",
		"address of a Prometheus that scrapes kerf-monitor, instead of the audit logs (environment: KERF_PROMETHEUS)")
	o.Define(c, "table", "csv")
	f.StringVar(&o.plot, "plot", "", "also write a chart to this SVG file")
	return c
}

func (o *usageOptions) check(c *cobra.Command) error {
	errs := []error{usage.CheckKeys("--by", o.by), o.Check(c)}
	if (o.Selector != "" || command.Changed(c, "namespace")) && o.prometheus != "" {
		errs = append(errs, sharing.Invalid("--selector and --namespace", "", "leave them out, and group with --by",
			"have no effect with --prometheus"))
	}
	return errors.Join(errs...)
}

func report(ctx context.Context, a *command.App, o *usageOptions, remote bool) error {
	var parts []usage.Part
	var prices config.Prices
	var err error
	fromLogs := o.prometheus == ""
	if !fromLogs {
		parts, err = (promread.Source{URL: o.prometheus}).Usage(ctx, time.Now(), o.since, o.by)
		switch {
		case err == nil:
			prices = pricesFor(ctx, a, o, remote)
		case o.orLogs && errors.Is(err, sharing.ErrUnavailable):
			_, _ = fmt.Fprintf(a.ErrOut,
				"kerf usage: the agents' logs are asked, because the Prometheus of KERF_PROMETHEUS "+
					"does not answer: %v\n", err)
			fromLogs = true
		default:
			return err
		}
	}
	if fromLogs {
		if parts, prices, err = usageOfAgents(ctx, a, o.agents, remote, time.Now().Add(-o.since)); err != nil {
			return err
		}
	}
	parts = o.selected(parts, a.Overrides.Context.Namespace)
	rows := usage.Report(parts, o.by, prices.Of, prices.PerKWh)
	if o.plot != "" {
		if err := os.WriteFile(o.plot, usage.Plot(rows, o.by), 0o644); err != nil { //nolint:gosec // a picture for all who can read the directory
			return fmt.Errorf("--plot: %w", err)
		}
	}
	return showUsage(a.Out, rows, o, prices.Currency)
}

// usageOfAgents returns the entries of the audit logs and the first known prices. Without a name it reads this node's
// agent. selected returns the usage of the pods that --namespace and --selector name.
func (o *usageOptions) selected(parts []usage.Part, namespace string) []usage.Part {
	selector, err := labels.Parse(o.Selector)
	if err != nil || namespace == "" && o.Selector == "" {
		return parts // check has rejected what cannot be parsed
	}
	return slices.DeleteFunc(parts, func(p usage.Part) bool {
		own := labels.Set{}
		for k, v := range p.Labels {
			if name, ok := strings.CutPrefix(k, usage.LabelKey); ok {
				own[name] = v
			}
		}
		return namespace != "" && p.Labels["namespace"] != namespace || !selector.Matches(own)
	})
}

func usageOfAgents(ctx context.Context, a *command.App, agents []string, remote bool,
	since time.Time) (parts []usage.Part, prices config.Prices, err error) {
	take := func(from string, answer []byte) error {
		more, p, err := readUsage(bytes.NewReader(answer))
		if err != nil {
			return fmt.Errorf("answer of %s: %w", from, err)
		}
		if parts = append(parts, more...); prices.Currency == "" {
			prices = p
		}
		return nil
	}
	if remote {
		err := clusterUsage(ctx, a, since, take)
		return parts, prices, err
	}
	if len(agents) == 0 {
		var answer bytes.Buffer
		if err := nodeclient.Usage(ctx, a.Dir, since, &answer); err != nil {
			return nil, prices, err
		}
		err := take("the agent", answer.Bytes())
		return parts, prices, err
	}
	for _, agent := range agents {
		answer, err := askUsage(ctx, agent, since)
		if err != nil {
			return nil, prices, err
		}
		if err := take(agent, answer); err != nil {
			return nil, prices, err
		}
	}
	return parts, prices, nil
}

// pricesFor are those of an agent's configuration. Where none answers there are none, which is said.
func pricesFor(ctx context.Context, a *command.App, o *usageOptions, remote bool) config.Prices {
	_, prices, err := usageOfAgents(ctx, a, o.agents[:min(len(o.agents), 1)], remote, time.Now())
	if err != nil {
		_, _ = fmt.Fprintf(a.ErrOut, "kerf usage: no prices: %v\n", err)
	}
	return prices
}

// askUsage asks another node's agent.
func askUsage(ctx context.Context, agent string, since time.Time) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, usageDeadline)
	defer cancel()
	at := strings.TrimSuffix(agent, "/") + "/usage?since=" + url.QueryEscape(since.UTC().Format(time.RFC3339))
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, at, nil)
	if err != nil {
		return nil, sharing.Invalid("--agent", agent, "write an address such as http://node-1:9445",
			"is not an address")
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, fmt.Errorf("ask agent %q: %w (%w)", agent, err, sharing.ErrUnavailable)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, mostUsage))
	if err != nil || resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("ask agent %q: it answered %s: %w", agent, resp.Status,
			errors.Join(err, sharing.ErrUnavailable))
	}
	return body, nil
}

// readUsage reads an agent's answer.
func readUsage(in io.Reader) ([]usage.Part, config.Prices, error) {
	return agentusage.Read(in, userName) //nolint:wrapcheck // it says what it did
}

// userName names a user of this machine.
func userName(uid uint32) string {
	id := strconv.FormatUint(uint64(uid), 10)
	if u, err := user.LookupId(id); err == nil {
		return u.Username
	}
	return id
}
