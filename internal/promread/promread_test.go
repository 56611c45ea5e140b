// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package promread

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/common/model"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/usage"
)

// fake answers each query whose text has a key with that key's rows.
func fake(t *testing.T, rows map[string]string) Source {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		query := r.FormValue("query")
		answer := ""
		for key, text := range rows {
			if strings.Contains(query, key) && len(key) > 0 {
				answer = text
			}
		}
		_, _ = fmt.Fprintf(w, `{"status":"success","data":{"resultType":%q,"result":[%s]}}`,
			map[bool]string{true: "matrix", false: "vector"}[strings.HasSuffix(r.URL.Path, "query_range")], answer)
	}))
	t.Cleanup(s.Close)
	return Source{URL: s.URL + "/"}
}

func TestUsage(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	const of = `"metric":{"node":"n","gpu_uuid":"GPU-0","instance_profile":"","instance_start":"","grant":"ml/p/c","namespace":"ml","pod":"p","container":"c"}`
	at := func(i int) int64 { return now.Unix() - int64(3-i)*60 }
	s := fake(t, map[string]string{
		"kerf_usage_compute_granted_ratio": fmt.Sprintf(`{%s,"values":[[%d,"0.5"],[%d,"0.5"],[%d,"0.5"]]}`, of, at(1),
			at(2), at(3)),
		") (kerf_usage_memory_bytes": fmt.Sprintf(`{%s,"values":[[%d,"2048"]]}`, of, at(3)),
		"kerf_usage_active_seconds_total": fmt.Sprintf(`{%s,"values":[[%d,"NaN"],[%d,"0"],[%d,"0.25"]]}`, of, at(1),
			at(2), at(3)),
		"kerf_usage_energy_joules_total": fmt.Sprintf(`{%s,"values":[[%d,"100"]]}`, of, at(3)),
		"kerf_usage_grant_info":          `{"metric":{"node":"n","grant":"ml/p/c","profile":"half","level":"driver","claim":"p-gpu-x"},"value":[1,"1"]}`,
		"kerf_gpu_info":                  `{"metric":{"gpu_uuid":"GPU-0","model":"H100"},"value":[1,"1"]}`,
		"kube_pod_labels":                `{"metric":{"namespace":"ml","pod":"p","label_example_com_team":"x"},"value":[1,"1"]}`,
	})
	got, err := s.Usage(t.Context(), now, 3*time.Minute, []string{"namespace", "label:example.com/team"})
	if err != nil {
		t.Fatal(err)
	}
	want := []usage.Part{{
		Labels: map[string]string{
			"namespace": "ml", "pod": "p", "container": "c", "node": "n", "profile": "half", "level": "driver",
			"model": "H100", "claim": "p-gpu-x", "label:example.com/team": "x",
		},
		Record: usage.Record{
			GPU: "GPU-0", Model: "H100", Share: 0.5, Seconds: 180, Known: 120, Idle: 60, Busy: 15, Joules: 6000,
			Powered: 60,
			Memory:  usage.Histogram{}, Compute: usage.Histogram{0: 60, 25: 60},
		},
	}}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func TestWhatIsNoAnswer(t *testing.T) {
	cases := map[string]struct {
		status int
		body   string
		want   error
	}{
		"a refusal": {http.StatusBadRequest, `{"status":"error","errorType":"bad_data","error":"parse error"}`,
			sharing.ErrInvalid},
		"too much": {http.StatusUnprocessableEntity,
			`{"status":"error","errorType":"execution","error":"too many samples"}`, sharing.ErrInvalid},
		"not now": {http.StatusServiceUnavailable,
			`{"status":"error","errorType":"unavailable","error":"it starts"}`, sharing.ErrUnavailable},
		"no JSON": {http.StatusOK, "<html>", sharing.ErrUnavailable},
		"no numbers": {http.StatusOK,
			`{"status":"success","data":{"resultType":"matrix","result":[{"values":[["x"]]}]}}`,
			sharing.ErrUnavailable},
		"another result": {http.StatusOK, `{"status":"success","data":{"resultType":"else","result":[]}}`,
			sharing.ErrUnavailable},
	}
	for name, c := range cases {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(c.status)
			_, _ = w.Write([]byte(c.body))
		}))
		if _, err := (Source{URL: s.URL}).Usage(t.Context(), time.Unix(1e6, 0), time.Hour, nil); !errors.Is(err,
			c.want) {
			t.Errorf("%s: %v", name, err)
		}
		s.Close()
	}
	if _, err := (Source{URL: "http://127.0.0.1:1"}).Usage(t.Context(), time.Unix(1e6, 0), time.Hour,
		nil); !errors.Is(err, sharing.ErrUnavailable) {
		t.Errorf("no one there: %v", err)
	}
	stopped, stop := context.WithCancel(t.Context())
	stop()
	if _, err := (Source{URL: "http://127.0.0.1:1"}).Usage(stopped, time.Unix(1e6, 0), time.Hour, nil); !errors.Is(err,
		context.Canceled) {
		t.Errorf("a call that was stopped: %v", err)
	}
	if _, err := (Source{URL: ":"}).Usage(t.Context(), time.Unix(1e6, 0), time.Hour, nil); !errors.Is(err,
		sharing.ErrInvalid) {
		t.Errorf("no address: %v", err)
	}
}

func TestStep(t *testing.T) {
	for since, want := range map[time.Duration]time.Duration{time.Minute: time.Minute, 24 * time.Hour: 2 * time.Minute,
		90 * 24 * time.Hour: time.Hour} {
		if got := Step(since); got != want {
			t.Errorf("%s: %s, want %s", since, got, want)
		}
	}
}

// FuzzAnswer fills tracks with any rows that Prometheus may have: no share is negative.
func FuzzAnswer(f *testing.F) {
	f.Add([]byte(`[{"metric":{"a":"b"},"values":[[1,"2"],[3,"NaN"]]}]`))
	f.Add([]byte(`[{"values":[[1,"-Inf"]]}]`))
	f.Fuzz(func(t *testing.T, body []byte) {
		var rows model.Matrix
		if json.Unmarshal(body, &rows) != nil {
			return
		}
		tracks := map[string]*usage.Track{}
		fill(tracks, rows, func(p *usage.Point, v float64) { p.Share = v }, time.Unix(0, 0), time.Minute, 3)
		for _, track := range tracks {
			for _, p := range track.Points {
				if !(p.Share >= 0) {
					t.Errorf("a share of %g", p.Share)
				}
			}
		}
	})
}
