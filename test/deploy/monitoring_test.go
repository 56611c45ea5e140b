// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package deploy_test

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	strict "sigs.k8s.io/yaml"
)

// exposed are the series that monitor and agent have in the texts to which their tests hold them, with their labels,
// and those that the recording rules make.
func exposed(t *testing.T) map[string]map[string]bool {
	t.Helper()
	out := map[string]map[string]bool{"up": {}}
	line := regexp.MustCompile(`^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? `)
	label := regexp.MustCompile(`([a-zA-Z_]\w*)="`)
	for _, file := range []string{"monitor/exposition/testdata/exposition.txt",
		"sharing/node/metrics/testdata/exposition.txt"} {
		for l := range strings.Lines(read(t, file)) {
			m := line.FindStringSubmatch(l)
			if m == nil {
				continue
			}
			if out[m[1]] == nil {
				out[m[1]] = map[string]bool{}
			}
			for _, n := range label.FindAllStringSubmatch(m[2], -1) {
				out[m[1]][n[1]] = true
			}
		}
	}
	// Its rows come with what the agent does.
	if strings.Contains(read(t, "sharing/node/metrics/grants.go"), `"kerf_grant_reservations_total"`) {
		out["kerf_grant_reservations_total"] = map[string]bool{"outcome": true}
	}
	for _, r := range promRules(t) {
		if r.Record != "" {
			out[r.Record] = nil
		}
	}
	return out
}

// promRule is a recording or an alert rule.
type promRule struct {
	Record, Alert, Expr, For string
	Labels, Annotations      map[string]string
}

func promRules(t *testing.T) []promRule {
	t.Helper()
	var doc struct {
		Groups []struct {
			Name  string
			Rules []promRule
		}
	}
	if err := strict.UnmarshalStrict([]byte(read(t, "deploy/monitoring/rules.yaml")), &doc); err != nil {
		t.Fatal(err)
	}
	var out []promRule
	for _, g := range doc.Groups {
		out = append(out, g.Rules...)
	}
	return out
}

// selector is a series that a query names, with the labels by which it is chosen.
type selector struct {
	name   string
	labels []string
}

// selectors are what a query asks for, and the labels by which it groups and joins. It reads as much of the language as
// the rules and dashboards here use.
func selectors(query string) (found []selector, groups []string) {
	query = regexp.MustCompile(`\$\w+`).ReplaceAllString(query, "1")
	query = regexp.MustCompile(`"[^"]*"`).ReplaceAllString(query, `""`)
	query = regexp.MustCompile(`\[[^\]]*\]`).ReplaceAllString(query, "")
	lists := regexp.MustCompile(`\b(?:by|on|without|ignoring|group_left|group_right)\s*\(([^)]*)\)`)
	for _, m := range lists.FindAllStringSubmatch(query, -1) {
		groups = append(groups, strings.FieldsFunc(m[1], func(r rune) bool { return r == ',' || r == ' ' })...)
	}
	query = lists.ReplaceAllString(query, " ")
	word := regexp.MustCompile(`\b([a-zA-Z_:][\w:]*)\s*(\(|\{[^}]*\})?`)
	label := regexp.MustCompile(`([a-zA-Z_]\w*)\s*(?:=|!)`)
	for _, m := range word.FindAllStringSubmatch(query, -1) {
		if m[2] == "(" || slices.Contains([]string{"and", "or", "unless", "bool", "offset"}, m[1]) {
			continue
		}
		s := selector{name: m[1]}
		for _, l := range label.FindAllStringSubmatch(m[2], -1) {
			s.labels = append(s.labels, l[1])
		}
		found = append(found, s)
	}
	return found, groups
}

// checkQuery holds a query to what there is. A target's own labels are on every series.
func checkQuery(t *testing.T, where, query string, series map[string]map[string]bool) {
	t.Helper()
	of := []string{"node", "job", "instance", "kind"}
	found, groups := selectors(query)
	if len(found) == 0 {
		t.Errorf("%s: %q requests no series", where, query)
	}
	all, made := slices.Clone(of), false
	for _, s := range found {
		labels, ok := series[s.name]
		if !ok {
			t.Errorf("%s: nothing exposes %q, which %q requests", where, s.name, query)
			continue
		}
		if labels == nil { // made by a rule, which was checked itself
			made = true
			continue
		}
		all = slices.AppendSeq(all, maps.Keys(labels))
		for _, l := range s.labels {
			if !labels[l] && !slices.Contains(of, l) {
				t.Errorf("%s: %q has no label %q, which %q requests", where, s.name, l, query)
			}
		}
	}
	for _, g := range groups {
		if !made && !slices.Contains(all, g) {
			t.Errorf("%s: no series has the label %q, by which %q groups", where, g, query)
		}
	}
}

func TestRulesAskForWhatThereIs(t *testing.T) {
	series := exposed(t)
	tests := read(t, "deploy/monitoring/rules-test.yaml")
	for _, r := range promRules(t) {
		name := r.Record + r.Alert
		checkQuery(t, name, r.Expr, series)
		if r.Alert != "" && (r.For == "" || r.Labels["severity"] == "" || r.Annotations["summary"] == "" ||
			r.Annotations["remedy"] == "") {
			t.Errorf("%s: an alert has a time, a severity, a summary and a remedy: %+v", name, r)
		}
		if !strings.Contains(tests, name) && name != "kerf:grant_share:ratio" { // of which the next record is the sum
			t.Errorf("%s has no test in rules-test.yaml", name)
		}
	}
}

func TestDashboardsAskForWhatThereIs(t *testing.T) {
	series := exposed(t)
	files, err := filepath.Glob(filepath.Join(root, "deploy/monitoring/dashboards/*.json"))
	if err != nil || len(files) != 4 {
		t.Fatalf("%v, %v", files, err)
	}
	variable := regexp.MustCompile(`label_values\((.*), (\w+)\)`)
	uids := map[string]bool{}
	for _, file := range files {
		var d struct {
			UID, Title string
			Templating struct {
				List []struct {
					Name, Type string
					Query      json.RawMessage
				}
			}
			Panels []struct {
				ID      int
				Title   string
				GridPos struct{ X, Y, W, H int }
				Targets []struct{ RefID, Expr string }
			}
		}
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(data, &d); err != nil {
			t.Errorf("%s: %v", file, err)
			continue
		}
		if d.UID == "" || uids[d.UID] {
			t.Errorf("%s: uid %q is not its own", file, d.UID)
		}
		uids[d.UID] = true
		for _, v := range d.Templating.List {
			if m := variable.FindStringSubmatch(string(v.Query)); m != nil {
				checkQuery(t, d.Title+" $"+v.Name, strings.ReplaceAll(m[1], `\"`, `"`), series)
			} else if v.Type == "query" {
				t.Errorf("%s: variable %s has no query that is understood: %s", d.Title, v.Name, v.Query)
			}
		}
		ids := map[int]bool{}
		for _, p := range d.Panels {
			if ids[p.ID] || p.GridPos.X+p.GridPos.W > 24 || p.GridPos.W*p.GridPos.H == 0 || len(p.Targets) == 0 {
				t.Errorf("%s: panel %d %q: its number, place or queries are wrong", d.Title, p.ID, p.Title)
			}
			ids[p.ID] = true
			for _, q := range p.Targets {
				checkQuery(t, d.Title+": "+p.Title, q.Expr, series)
			}
		}
	}
}

// Dashboards that were made for dcgm-exporter ask Kerf's series as well: what NVIDIA's own asked from its first version
// on, by scrape target and by the label Hostname, with MIG instances; and what asks for the node by the name that the
// label has since May 2026.
func TestDashboardsOfDCGMExporterFindTheirSeries(t *testing.T) {
	series := exposed(t)
	for where, queries := range map[string][]string{
		"by target": {
			`DCGM_FI_DEV_GPU_TEMP{instance=~"$instance", gpu=~"$gpu"}`,
			`sum(DCGM_FI_DEV_POWER_USAGE{instance=~"$instance", gpu=~"$gpu"})`,
			`DCGM_FI_DEV_SM_CLOCK{instance=~"$instance", gpu=~"$gpu"} * 1000000`,
			`DCGM_FI_DEV_GPU_UTIL{instance=~"$instance", gpu=~"$gpu"}`,
			`DCGM_FI_PROF_PIPE_TENSOR_ACTIVE{instance=~"$instance", gpu=~"$gpu"}`,
			`DCGM_FI_DEV_FB_USED{instance=~"$instance", gpu=~"$gpu"}`,
		},
		"by Hostname": {
			`max(DCGM_FI_DEV_GPU_TEMP{Hostname=~"$Hostname", gpu=~"$gpu"}) by (Hostname, gpu, UUID)`,
			`DCGM_FI_DEV_FB_FREE{Hostname=~"$Hostname"}`,
			`sum(max(DCGM_FI_DEV_POWER_USAGE{Hostname=~"$Hostname", gpu=~"$gpu"}) by (gpu))`,
			`max(DCGM_FI_DEV_SM_CLOCK{Hostname=~"$Hostname"} * 1000000) by (Hostname, UUID, gpu)`,
			`max(DCGM_FI_PROF_GR_ENGINE_ACTIVE{Hostname=~"$Hostname", gpu=~"$gpu"}) by (Hostname, gpu, GPU_I_ID, GPU_I_PROFILE)`,
			`max(DCGM_FI_PROF_PIPE_TENSOR_ACTIVE{Hostname=~"$Hostname", gpu=~"$gpu"}) by (Hostname, gpu, GPU_I_ID, GPU_I_PROFILE)`,
			`max(DCGM_FI_DEV_FB_USED{Hostname=~"$Hostname", gpu=~"$gpu"}) by (Hostname, gpu, GPU_I_ID, GPU_I_PROFILE)`,
		},
		"by hostname and pod": {
			`max(DCGM_FI_DEV_GPU_TEMP{hostname=~"$hostname", modelName!="", device!="", pci_bus_id!=""}) by (hostname, gpu)`,
			`sum(DCGM_FI_PROF_GR_ENGINE_ACTIVE{pod=~".*decode.*", namespace="ml", container!=""})`,
			`DCGM_FI_DEV_POWER_USAGE{pod!="", DCGM_FI_DRIVER_VERSION!=""}`,
		},
	} {
		for _, q := range queries {
			checkQuery(t, where, q, series)
		}
	}
}

func TestAutoscalingAsksForWhatThereIs(t *testing.T) {
	series := exposed(t)
	var keda struct {
		Spec struct {
			Triggers []struct {
				Metadata struct{ Query, Threshold string } `json:"metadata"`
			} `json:"triggers"`
		} `json:"spec"`
	}
	var adapter struct {
		Rules struct {
			Custom []struct {
				SeriesQuery  string              `json:"seriesQuery"`
				Name         struct{ As string } `json:"name"`
				MetricsQuery string              `json:"metricsQuery"`
			} `json:"custom"`
		} `json:"rules"`
	}
	for file, into := range map[string]any{"keda.yaml": &keda, "prometheus-adapter.yaml": &adapter} {
		if err := strict.Unmarshal([]byte(read(t, "deploy/monitoring/autoscaling/"+file)), into); err != nil {
			t.Fatal(err)
		}
	}
	if len(keda.Spec.Triggers) != 1 || len(adapter.Rules.Custom) != 1 {
		t.Fatalf("%+v, %+v", keda, adapter)
	}
	checkQuery(t, "keda.yaml", keda.Spec.Triggers[0].Metadata.Query, series)
	a := adapter.Rules.Custom[0]
	checkQuery(t, "prometheus-adapter.yaml", a.SeriesQuery, series)
	checkQuery(t, "prometheus-adapter.yaml", strings.NewReplacer("<<.GroupBy>>", "namespace, pod", "<<.LabelMatchers>>",
		`namespace="x", pod=~"y"`).Replace(a.MetricsQuery), series)
	if !strings.Contains(read(t, "deploy/monitoring/autoscaling/hpa.yaml"), "name: "+a.Name.As+"\n") {
		t.Errorf("hpa.yaml does not request %q", a.Name.As)
	}
}

// TestQueriesAreUnderstood keeps the test above able to fail.
func TestQueriesAreUnderstood(t *testing.T) {
	found,
		groups := selectors(
		`sum by (a, b) (rate(x_total{l="v{", m!~"$y"}[5m])) / on (c) group_left () (kerf:z:ratio > 0) * $price`)
	if len(found) != 2 || found[0].name != "x_total" || !slices.Equal(found[0].labels, []string{"l", "m"}) ||
		found[1].name != "kerf:z:ratio" || !slices.Equal(groups, []string{"a", "b", "c"}) {
		t.Errorf("%+v, %q", found, groups)
	}
}

// TestScrapesFindTheirPorts compares the two ways to be scraped with the manifests' containers and ports.
func TestScrapesFindTheirPorts(t *testing.T) {
	var scrape struct {
		ScrapeConfigs []struct {
			JobName        string `json:"job_name"`
			HonorLabels    bool   `json:"honor_labels"`
			RelabelConfigs []struct {
				Regex string `json:"regex"`
			} `json:"relabel_configs"`
		} `json:"scrape_configs"`
	}
	if err := strict.Unmarshal([]byte(read(t, "deploy/monitoring/scrape.yaml")), &scrape); err != nil {
		t.Fatal(err)
	}
	var monitor struct {
		Spec struct {
			Selector struct {
				MatchExpressions []struct {
					Key    string   `json:"key"`
					Values []string `json:"values"`
				} `json:"matchExpressions"`
			} `json:"selector"`
			PodMetricsEndpoints []struct {
				Port        string `json:"port"`
				HonorLabels bool   `json:"honorLabels"`
			} `json:"podMetricsEndpoints"`
		} `json:"spec"`
	}
	if err := strict.Unmarshal([]byte(read(t, "deploy/monitoring/podmonitor.yaml")), &monitor); err != nil {
		t.Fatal(err)
	}
	manifests := read(t, "deploy/manifests/30-agent.yaml") + read(t, "deploy/variants/monitor.yaml")
	for i, want := range []struct{ job, container, port string }{{"kerf-monitor", "monitor", "metrics"},
		{"kerf-agent", "agent", "http"}} {
		s, p := scrape.ScrapeConfigs[i], monitor.Spec.PodMetricsEndpoints[i]
		if s.JobName != want.job || !s.HonorLabels || s.RelabelConfigs[0].Regex != want.container+";"+want.port {
			t.Errorf("scrape.yaml: %+v, want %+v", s, want)
		}
		if p.Port != want.port || !p.HonorLabels {
			t.Errorf("podmonitor.yaml: %+v, want %+v", p, want)
		}
		for _, name := range []string{want.container, want.port} {
			if !strings.Contains(manifests, "- name: "+name+"\n") {
				t.Errorf("no container or port %q is in the manifests", name)
			}
		}
	}
	who := monitor.Spec.Selector.MatchExpressions
	if len(who) != 1 || len(who[0].Values) != 2 {
		t.Fatalf("podmonitor.yaml: selects %+v", who)
	}
	for _, v := range who[0].Values {
		if !strings.Contains(manifests, who[0].Key+": "+v) {
			t.Errorf("podmonitor.yaml: no pod has %s=%s", who[0].Key, v)
		}
	}
}
