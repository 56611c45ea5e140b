// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package promread

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/common/model"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/usage"
)

const (
	// moments is at about how many moments a time is looked at.
	moments = 720
	// shortestStep is the least time between two moments: rates need some scrapes in it.
	shortestStep, longestStep = time.Minute, time.Hour
)

// ident are the labels that a grant's series on one GPU have in common.
const ident = "node, gpu_uuid, instance_profile, instance_start, grant, namespace, pod, container"

// Step is the time between two moments at which a time that long is looked at.
func Step(since time.Duration) time.Duration {
	return min(max((since/moments).Truncate(time.Second), shortestStep), longestStep)
}

// value puts one series' value into a point.
type value struct {
	query string
	put   func(*usage.Point, float64)
}

// values are what is asked of each grant.
func values(step time.Duration) []value {
	rate := func(of string) string { return fmt.Sprintf(`rate(%s{owner="grant"}[%ds])`, of, int(step.Seconds())) }
	return []value{
		{
			// The larger of the parts of memory and compute, as deploy/monitoring/rules.yaml has it.
			"max by (" + ident +
				`) (kerf_usage_memory_guaranteed_bytes{owner="grant"} / on (node, gpu_uuid) group_left () kerf_gpu_memory_total_bytes ` +
				`or label_replace(kerf_usage_compute_granted_ratio{owner="grant"}, "kind", "compute", "", ""))`,
			func(p *usage.Point, v float64) { p.Share = v },
		},
		{"max by (" + ident + `) (kerf_usage_memory_guaranteed_bytes{owner="grant"})`,
			func(p *usage.Point, v float64) { p.Granted = sharing.Bytes(v) }},
		{"sum by (" + ident + `) (kerf_usage_memory_bytes{owner="grant"})`, func(p *usage.Point, v float64) {
			p.Used,
				p.UsedKnown = sharing.Bytes(v), true
		}},
		{
			"sum by (" + ident + ") (" + rate("kerf_usage_active_seconds_total") + " / (" +
				rate("kerf_usage_observed_seconds_total") + " > 0))",
			func(p *usage.Point, v float64) { p.Busy, p.BusyKnown = v, true },
		},
		{"sum by (" + ident + ") (" + rate("kerf_usage_energy_joules_total") + ")",
			func(p *usage.Point, v float64) { p.Watts, p.WattsKnown = v, true }},
	}
}

// Usage adds up what grants used from since on, with the pods' labels that keys name. Profiles and levels are those of
// the monitor, and models those of the agent. Labels are those of kube-state-metrics; if Prometheus does not scrape it,
// there are none. It does not report the users of processes without a pod. Errors: sharing.ErrUnavailable,
// sharing.ErrInvalid.
func (s Source) Usage(ctx context.Context, now time.Time, since time.Duration, keys []string) ([]usage.Part, error) {
	step := Step(since)
	from := now.Add(-since).Add(step) // a moment stands for the time before it
	tracks := map[string]*usage.Track{}
	for _, v := range values(step) {
		rows, err := s.between(ctx, v.query, from, now, step)
		if err != nil {
			return nil, err
		}
		fill(tracks, rows, v.put, from, step, int(now.Sub(from)/step)+1)
	}
	if err := s.name(ctx, now, since, tracks, keys); err != nil {
		return nil, err
	}
	var out []usage.Part
	for _, k := range slices.Sorted(maps.Keys(tracks)) {
		if p, ok := tracks[k].Part(step); ok {
			out = append(out, p)
		}
	}
	return out, nil
}

// fill puts the values of rows into the points of their tracks.
func fill(tracks map[string]*usage.Track, rows model.Matrix, put func(*usage.Point, float64), from time.Time,
	step time.Duration, n int) {
	for _, r := range rows {
		of := labels(r.Metric)
		key := keyOf(of, strings.Split(ident, ", ")...)
		t := tracks[key]
		if t == nil {
			t = &usage.Track{GPU: of["gpu_uuid"], Points: make([]usage.Point, n), Labels: map[string]string{
				"namespace": of["namespace"], "pod": of["pod"], "container": of["container"], "node": of["node"],
				"grant": of["grant"],
			}}
			tracks[key] = t
		}
		for _, v := range r.Values {
			i, x := int(math.Round(v.Timestamp.Time().Sub(from).Seconds()/step.Seconds())), float64(v.Value)
			if i >= 0 && i < n && x >= 0 && !math.IsInf(x, 1) { // what is no number is not known
				put(&t.Points[i], x)
			}
		}
	}
}

// name adds the data on grants, GPUs and pods that comes from other sources than their usage.
func (s Source) name(ctx context.Context, now time.Time, since time.Duration, tracks map[string]*usage.Track,
	keys []string) error {
	last := func(by, of string) (map[string]map[string]string, error) {
		rows, err := s.instant(ctx, fmt.Sprintf("max by (%s) (last_over_time(%s[%ds]))", by, of, int(since.Seconds())),
			now)
		out := map[string]map[string]string{}
		for _, r := range rows {
			of := labels(r.Metric)
			for _, k := range []string{keyOf(of, "node", "grant"), keyOf(of, "gpu_uuid"),
				keyOf(of, "namespace", "pod")} {
				out[k] = of
			}
		}
		return out, err
	}
	grants, err := last("node, grant, profile, level, claim", "kerf_usage_grant_info")
	if err != nil {
		return err
	}
	gpus, err := last("gpu_uuid, model", "kerf_gpu_info")
	if err != nil {
		return err
	}
	pods, names := map[string]map[string]string{}, map[string]string{}
	for _, k := range keys {
		if label, is := strings.CutPrefix(k, usage.LabelKey); is {
			names[k] = "label_" + strings.Map(plain, label)
		}
	}
	if len(names) > 0 {
		if pods, err = last("namespace, pod, "+strings.Join(slices.Sorted(maps.Values(names)), ", "),
			"kube_pod_labels"); err != nil {
			return err
		}
	}
	for _, t := range tracks {
		of := grants[keyOf(t.Labels, "node", "grant")]
		t.Model = gpus[keyOf(map[string]string{"gpu_uuid": t.GPU}, "gpu_uuid")]["model"]
		t.Labels["profile"], t.Labels["level"], t.Labels["model"] = of["profile"], of["level"], t.Model
		t.Labels["claim"] = of["claim"]
		for k, name := range names {
			t.Labels[k] = pods[keyOf(t.Labels, "namespace", "pod")][name]
		}
		delete(t.Labels, "grant")
	}
	return nil
}

// plain is what kube-state-metrics makes of a character of a label's name.
func plain(r rune) rune {
	if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' {
		return r
	}
	return '_'
}

// keyOf are the values of some labels, with their names.
func keyOf(labels map[string]string, names ...string) string {
	var b strings.Builder
	for _, n := range names {
		fmt.Fprintf(&b, "%s=%q,", n, labels[n])
	}
	return b.String()
}

func labels(m model.Metric) map[string]string {
	out := make(map[string]string, len(m))
	for k, v := range m {
		out[string(k)] = string(v)
	}
	return out
}
