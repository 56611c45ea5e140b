// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// fake answers as Prometheus does: two series of each query, the second of which has markup in a label; none to a query
// that names nothing, and an error to one that is wrong.
func fake(t *testing.T) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query().Get("query")
		if strings.Contains(q, "$") || q == "wrong" {
			w.WriteHeader(http.StatusBadRequest)
			_, _ = fmt.Fprintf(w, `{"status":"error","error":"parse error in %s"}`, strings.ReplaceAll(q, `"`, "'"))
			return
		}
		one := `"value":[100,"0.25"]`
		if strings.HasSuffix(r.URL.Path, "query_range") {
			one = `"values":[[100,"0.25"],[160,"0.5"]]`
		}
		if q == "nothing" {
			_, _ = fmt.Fprint(w, `{"status":"success","data":{"result":[]}}`)
			return
		}
		_,
			_ = fmt.Fprintf(w,
			`{"status":"success","data":{"result":[{"metric":{"namespace":"ml","pod":"a"},%s},{"metric":{"namespace":"<b>","pod":"b"},%s}]}}`, one, one)
	}))
	t.Cleanup(s.Close)
	return s
}

// TestDashboards draws those that are delivered: each query is asked with its variables filled in, and what comes out
// is XML with every panel's title in it.
func TestDashboards(t *testing.T) {
	files, err := filepath.Glob("../../deploy/monitoring/dashboards/*.json")
	if err != nil || len(files) != 4 {
		t.Fatalf("%q, %v", files, err)
	}
	p, out := prometheus{at: fake(t).URL, end: time.Unix(160, 0), back: time.Minute}, t.TempDir()
	for _, file := range files {
		if err := drawFile(p, file, out, ".*"); err != nil {
			t.Error(err)
			continue
		}
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		d, err := parse(data, nil, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		drawn, err := os.ReadFile(filepath.Join(out, strings.TrimSuffix(filepath.Base(file), "json")+"svg"))
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range d.Panels {
			if !strings.Contains(string(drawn), ">"+escaped(p.Title)+"<") {
				t.Errorf("%s: no panel %q", file, p.Title)
			}
		}
		for x := xml.NewDecoder(strings.NewReader(string(drawn))); ; {
			if _, err := x.Token(); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatalf("%s: %v", file, err)
			}
		}
	}
}

// TestPanels looks for what each kind of panel has to show.
func TestPanels(t *testing.T) {
	p := prometheus{at: fake(t).URL, end: time.Unix(160, 0), back: time.Minute}
	of := func(kind, config, target string) string {
		t.Helper()
		d, err := parse(fmt.Appendf(nil,
			`{"title":"D","panels":[{"type":%q,"title":"P","gridPos":{"w":12,"h":8},"targets":[%s],"fieldConfig":{"defaults":%s}}]}`, kind, target, config), nil, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		if err := p.fill(t.Context(), &d.Panels[0]); err != nil {
			return err.Error()
		}
		return string(draw(d))
	}
	const both = `{"expr":"x","legendFormat":"of {{namespace}}"`
	for name, c := range map[string]struct{ drawn, want string }{
		"a stat": {of("stat", `{"unit":"percentunit"}`, both+`,"instant":true}`), ">25.0 %<"},
		"a stat with a word": {of("stat", `{"mappings":[{"options":{"0.25":{"text":"quarter"}}}]}`,
			both+`,"instant":true}`), ">quarter<"},
		"a table": {of("table", `{}`, both+`,"instant":true}`), ">&lt;b&gt;<"},
		"bars":    {of("bargauge", `{}`, both+`,"instant":true}`), ">of ml<"},
		"a graph": {of("timeseries", `{"unit":"watt"}`, both+`}`), "<polyline"},
		"a stack, to its sum": {of("timeseries", `{"unit":"percentunit","custom":{"stacking":{"mode":"normal"}}}`,
			both+`}`), ">100.0 %<"},
		"nothing":       {of("timeseries", `{}`, `{"expr":"nothing"}`), ">No data<"},
		"a wrong query": {of("timeseries", `{}`, `{"expr":"wrong"}`), "parse error in wrong"},
	} {
		if !strings.Contains(c.drawn, c.want) {
			t.Errorf("%s: no %q in %s", name, c.want, c.drawn)
		}
	}
	if _, err := parse([]byte(`{"title":"D"}`), nil, time.Minute); !errors.Is(err, errNone) {
		t.Errorf("a dashboard without panels: %v", err)
	}
}
