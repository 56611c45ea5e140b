// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"github.com/kerf-gpu/kerf/internal/cli/command"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/audit"
	"github.com/kerf-gpu/kerf/sharing/config"
	"github.com/kerf-gpu/kerf/sharing/usage"
)

// answerOf is what an agent answers, of an hour of a grant of half a GPU in each namespace.
func answerOf(t *testing.T, namespaces ...string) string {
	t.Helper()
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	if err := e.Encode(config.Prices{Currency: "EUR", PerGPUHour: []config.GPUPrice{{Model: "*H100*",
		Price: 3}}}); err != nil {
		t.Fatal(err)
	}
	for _, n := range namespaces {
		r := usage.Record{GPU: "g", Model: "NVIDIA H100", Share: 0.5, Seconds: 3600, Known: 3600, Busy: 900,
			Memory: usage.Histogram{40: 3600}, Compute: usage.Histogram{25: 3600}}
		if err := e.Encode(audit.Entry{Type: audit.Usage, Profile: "half",
			Subject: &audit.Subject{Namespace: n, Pod: "p", PodUID: "u", Labels: map[string]string{"tier": "one"}},
			Usage:   []usage.Record{r}}); err != nil {
			t.Fatal(err)
		}
	}
	return b.String()
}

func TestUsageReport(t *testing.T) {
	answers := map[string]string{"/a/usage": answerOf(t, "team", "lab"), "/b/usage": answerOf(t, "team")}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		since, err := time.Parse(time.RFC3339, r.URL.Query().Get("since"))
		if err != nil || time.Since(since) < 47*time.Hour {
			http.Error(w, "since", http.StatusBadRequest)
			return
		}
		_, _ = w.Write([]byte(answers[r.URL.Path]))
	}))
	defer server.Close()
	run := func(output string) string {
		t.Helper()
		var out bytes.Buffer
		a := &command.App{Out: &out}
		o := &usageOptions{by: []string{"namespace", "profile"}, since: 48 * time.Hour,
			Listing: command.Listing{Output: output}, agents: []string{server.URL + "/a", server.URL + "/b/"},
			plot: filepath.Join(t.TempDir(), "u.svg")}
		if err := o.check(bare(o)); err != nil {
			t.Fatal(err)
		}
		if err := report(t.Context(), a, o, false); err != nil {
			t.Fatal(err)
		}
		if svg, err := os.ReadFile(o.plot); err != nil || !strings.Contains(string(svg), "team / half") {
			t.Errorf("plot: %v\n%s", err, svg)
		}
		return out.String()
	}
	lines, err := csv.NewReader(strings.NewReader(run("csv"))).ReadAll()
	if err != nil || len(lines) != 3 {
		t.Fatalf("%v %v", err, lines)
	}
	want := "team,half,1.000,0.500,0.500,0.000,0.000,,3.000,40,50,56,0.440,1.320"
	if got := strings.Join(lines[2], ","); got != want || lines[0][0] != "namespace" {
		t.Errorf("%s\n%s, want\n%s", lines[0], got, want)
	}
	if table := run("wide"); !strings.Contains(table, "COMPUTE P99 %") || !strings.Contains(table, "costs in EUR") ||
		!strings.Contains(table, "lab") {
		t.Errorf("table:\n%s", table)
	}
	var doc struct {
		Currency string
		Rows     []struct {
			Labels  map[string]string
			Granted float64 `json:"grantedGPUHours"`
			KWh     *float64
		}
	}
	if err := json.Unmarshal([]byte(run("json")), &doc); err != nil || doc.Currency != "EUR" || len(doc.Rows) != 2 ||
		doc.Rows[1].Granted != 1 || doc.Rows[1].KWh != nil || doc.Rows[0].Labels["namespace"] != "lab" {
		t.Errorf("%v %+v", err, doc)
	}
	var same any
	if err := yaml.Unmarshal([]byte(run("yaml")), &same); err != nil {
		t.Fatal(err)
	}
	var asJSON any
	if err := json.Unmarshal([]byte(run("json")), &asJSON); err != nil || !strings.HasPrefix(run("yaml"), "by:\n") {
		t.Fatal(err)
	}
	if a, b := fmt.Sprint(same), fmt.Sprint(asJSON); a != b {
		t.Errorf("as YAML %s, as JSON %s", a, b)
	}
	answers["/a/usage"] = "rubbish"
	o := &usageOptions{since: 48 * time.Hour, Listing: command.Listing{Output: "csv"},
		agents: []string{server.URL + "/a"}}
	if err := report(t.Context(), &command.App{Out: &bytes.Buffer{}}, o, false); !errors.Is(err, sharing.ErrInvalid) {
		t.Errorf("rubbish: %v", err)
	}
}

// A report counts grants by claims like those by limits. Containers with one claim are one row of that claim.
func TestUsageOfClaims(t *testing.T) {
	var answer bytes.Buffer
	e := json.NewEncoder(&answer)
	if err := e.Encode(config.Prices{}); err != nil {
		t.Fatal(err)
	}
	for _, g := range []struct {
		container string
		claims    []string
	}{{"limits", nil}, {"main", []string{"train-gpu/gpu"}}, {"side", []string{"train-gpu/gpu"}},
		{"two", []string{"a/gpu", "b/gpu"}}} {
		r := usage.Record{GPU: "g", Model: "H100", Share: 0.25, Seconds: 3600, Known: 3600, Busy: 450}
		who := &audit.Subject{Namespace: "ns", Pod: "p", PodUID: "u", Container: g.container, Claims: g.claims,
			Labels: map[string]string{"team": "vision"}}
		if err := e.Encode(audit.Entry{Type: audit.Usage, Subject: who, Usage: []usage.Record{r}}); err != nil {
			t.Fatal(err)
		}
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write(answer.Bytes())
	}))
	defer server.Close()
	for by, want := range map[string]string{
		"label:team": "vision,1.000,0.500",
		"claim":      ",0.250,0.125|a,b,0.250,0.125|train-gpu,0.500,0.250",
		"container":  "limits,0.250,0.125|main,0.250,0.125|side,0.250,0.125|two,0.250,0.125",
	} {
		var out bytes.Buffer
		o := &usageOptions{by: []string{by}, since: time.Hour, Listing: command.Listing{Output: "csv"},
			agents: []string{server.URL}}
		if err := errors.Join(o.check(bare(o)), report(t.Context(), &command.App{Out: &out}, o, false)); err != nil {
			t.Fatal(err)
		}
		lines, err := csv.NewReader(&out).ReadAll()
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, l := range lines[1:] {
			got = append(got, strings.Join(l[:3], ","))
		}
		if text := strings.Join(got, "|"); text != want || lines[0][0] != by {
			t.Errorf("by %s: %s, want %s", by, text, want)
		}
	}
}

// bare is a command that has the flags of a listing alone.
func bare(o *usageOptions) *cobra.Command {
	c, chosen := &cobra.Command{}, o.Listing
	o.Define(c, "table", "csv")
	o.Output, o.Selector = chosen.Output, chosen.Selector
	return c
}

func TestUsageFlags(t *testing.T) {
	for _, o := range []usageOptions{
		{by: []string{"colour"}, since: 1, Listing: command.Listing{Output: "csv"}},
		{since: 1, Listing: command.Listing{Selector: "a=b"}, prometheus: "http://p"},
		{since: 1, Listing: command.Listing{Output: "svg"}},
	} {
		if err := o.check(bare(&o)); !errors.Is(err, sharing.ErrInvalid) {
			t.Errorf("%+v: %v", o, err)
		}
	}
}

// TestUsageOfPrometheus asks a Prometheus for the use and an agent for the prices.
func TestUsageOfPrometheus(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rows := ""
		switch query := r.FormValue("query"); {
		case r.URL.Path == "/agent/usage":
			_, _ = w.Write([]byte(answerOf(t)))
			return
		case strings.Contains(query, "kerf_usage_compute_granted_ratio"):
			rows = `{"metric":{"gpu_uuid":"g","namespace":"ml","pod":"p","grant":"ml/p/c"},"values":[[` +
				r.FormValue("end") + `,"0.5"]]}`
		case strings.Contains(query, "kerf_gpu_info"):
			rows = `{"metric":{"gpu_uuid":"g","model":"NVIDIA H100"},"value":[1,"1"]}`
		}
		_, _ = w.Write([]byte(`{"status":"success","data":{"resultType":"` + resultOf(r) + `","result":[` + rows +
			`]}}`))
	}))
	defer server.Close()
	var out bytes.Buffer
	o := &usageOptions{by: []string{"namespace"}, since: time.Hour, Listing: command.Listing{Output: "csv"},
		prometheus: server.URL, agents: []string{server.URL + "/agent"}}
	if err := report(t.Context(), &command.App{Out: &out, ErrOut: &out}, o, false); err != nil {
		t.Fatal(err)
	}
	// Half a GPU for a minute, at 3 EUR an hour.
	if text := out.String(); !strings.Contains(text, "ml,0.008,0.000,0.000,0.000,0.008,,0.025,") {
		t.Errorf("%s", text)
	}
}

// TestUsageByALabel groups by what the audit log has of the pods' labels.
func TestUsageByALabel(t *testing.T) {
	answer := answerOf(t, "team", "lab")
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_,
			_ = w.Write([]byte(answer))
	}))
	defer server.Close()
	var out bytes.Buffer
	o := &usageOptions{by: []string{"label:tier"}, since: time.Hour, Listing: command.Listing{Output: "csv"},
		agents: []string{server.URL}}
	if err := report(t.Context(), &command.App{Out: &out}, o, false); err != nil ||
		!strings.Contains(out.String(), "\none,1.000,0.500,") {
		t.Errorf("%v\n%s", err, out.String())
	}
}

// TestUsageOfTheEnvironmentsPrometheus: it is asked unless a flag says otherwise, and where it does not answer the logs
// are, which is said. One that a flag names has to answer.
func TestUsageOfTheEnvironmentsPrometheus(t *testing.T) {
	asked, broken := 0, false
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/agent/usage" {
			_, _ = w.Write([]byte(answerOf(t, "logs")))
			return
		}
		if asked++; broken {
			http.Error(w, "no", http.StatusServiceUnavailable)
			return
		}
		_, _ = w.Write([]byte(`{"status":"success","data":{"resultType":"` + resultOf(r) + `","result":[]}}`))
	}))
	defer server.Close()
	for name, tt := range map[string]struct {
		broken       bool
		flags        []string
		env          string
		asks, ofLogs bool
		fails        bool
		says         string
	}{
		"neither":               {false, nil, "", false, true, false, ""},
		"the environment":       {false, nil, server.URL, true, false, false, ""},
		"one that is away":      {true, nil, server.URL, true, true, false, "KERF_PROMETHEUS does not answer"},
		"the logs for once":     {false, []string{"--prometheus", ""}, server.URL, false, true, false, ""},
		"a flag's, and is away": {true, []string{"--prometheus", server.URL}, server.URL, true, false, true, ""},
	} {
		t.Run(name, func(t *testing.T) {
			asked, broken = 0, tt.broken
			var out, said bytes.Buffer
			a := &command.App{Out: &out, ErrOut: &said,
				Getenv: func(key string) string { return map[string]string{"KERF_PROMETHEUS": tt.env}[key] }}
			code, err := a.Execute(append([]string{"usage", "-o", "csv", "--agent", server.URL + "/agent"},
				tt.flags...), Commands)
			if (err != nil) != tt.fails || (code != 0) != tt.fails {
				t.Errorf("exit %d, %v", code, err)
			}
			if (asked > 0) != tt.asks || strings.Contains(out.String(), "\nlogs,") != tt.ofLogs {
				t.Errorf("Prometheus was asked %d times; it prints %s", asked, out.String())
			}
			if !strings.Contains(said.String(), tt.says) || tt.says == "" && !tt.fails && said.Len() > 0 {
				t.Errorf("it says %q", said.String())
			}
		})
	}
}

// resultOf is the type of Prometheus' result for a request.
func resultOf(r *http.Request) string {
	if strings.HasSuffix(r.URL.Path, "query_range") {
		return "matrix"
	}
	return "vector"
}
