// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package console_test

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/kerf-gpu/kerf/internal/console"
	"github.com/kerf-gpu/kerf/internal/console/auth"
	"github.com/kerf-gpu/kerf/internal/console/consoletest"
	"github.com/kerf-gpu/kerf/internal/console/model"
	"github.com/kerf-gpu/kerf/internal/console/source"
	"github.com/kerf-gpu/kerf/internal/console/stream"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/config"
	"github.com/kerf-gpu/kerf/sharing/simulate"
	"github.com/kerf-gpu/kerf/sharing/usage"
)

// users are viewers by the header User: admin sees all, others their namespace. User blind sees no events. The scope of
// expired and unknown cannot be found.
type users struct{}

func (users) Viewer(r *http.Request) *auth.Viewer {
	name := r.Header.Get("User")
	if name == "" {
		return nil
	}
	return &auth.Viewer{Name: name, Scope: func(context.Context, []string) (model.Scope, error) {
		errs := map[string]error{"expired": sharing.ErrDenied, "unknown": sharing.ErrUnavailable}
		return model.Scope{All: name == "admin", Namespaces: map[string]bool{name: true}}, errs[name]
	}, Events: func(context.Context, string) (bool, error) { return name != "blind", nil }}
}

func (users) Login(http.ResponseWriter, *http.Request) {}

// still is a source that tells nothing by itself.
type still struct{}

func (still) Run(ctx context.Context, _ *stream.Broadcaster) error { <-ctx.Done(); return nil }
func (still) Usage(context.Context, time.Duration, []string) ([]usage.Part, config.Prices, error) {
	part := func(namespace string) usage.Part {
		return usage.Part{Labels: map[string]string{"namespace": namespace},
			Record: usage.Record{Share: 1, Seconds: 3600}}
	}
	return []usage.Part{part("secret"), part("mine")}, config.Prices{}, nil
}
func (still) History(context.Context, string, time.Duration) ([]source.Point, error) { return nil, nil }
func (still) Events(context.Context, string, string) ([]source.Event, error) {
	return []source.Event{{Message: "secret"}}, nil
}
func (still) Plan(context.Context, config.Config, []config.File) (any, error) {
	return "secret plan", nil
}

// started is a console of one node with a pod of namespace secret and one of namespace mine.
func started(t *testing.T) (*console.Server, *httptest.Server) {
	t.Helper()
	s := filled(still{})
	server := httptest.NewServer(s.Handler())
	t.Cleanup(server.Close)
	return s, server
}

func filled(from source.Source) *console.Server {
	s := console.New(console.Options{Source: from, Auth: users{}, Log: slog.New(slog.DiscardHandler)})
	hidden := consoletest.Pod("secret", "secret-pod", "n", map[string]string{sharing.ResourceMemory: "10"})
	mine := consoletest.Pod("mine", "my-pod", "n", map[string]string{sharing.ResourceMemory: "10"})
	waits := consoletest.Pod("mine", "waits", "", map[string]string{sharing.ResourceMemory: "79"})
	report := consoletest.Node("n", 1, consoletest.Grant{Pod: hidden, GiB: 10}, consoletest.Grant{Pod: mine, GiB: 10})
	s.Broadcaster().Node(stream.Node{Live: simulate.LiveNode{Name: "n", Report: &report, CPU: 8000,
		Memory:      64 * sharing.GiB,
		Allocatable: map[string]int64{sharing.ResourceMemory: 79}}})
	for _, p := range []model.SeenPod{hidden, mine, waits} {
		s.Broadcaster().Pod(p)
	}
	s.Broadcaster().Flush()
	return s
}

func ask(t *testing.T, server *httptest.Server, method, path, user, body string) (int, string, http.Header) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, server.URL+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("User", user)
	r.Header.Set("Content-Type", "application/json")
	resp, err := server.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(text), resp.Header
}

// Every answer but the static files needs a viewer.
func TestNothingWithoutAViewer(t *testing.T) {
	_, server := started(t)
	for _, path := range []string{"stream", "me", "advice", "teams", "history", "events", "config"} {
		if code, text, _ := ask(t, server, http.MethodGet, "/api/"+path, "", ""); code != http.StatusUnauthorized {
			t.Errorf("%s: %d %s", path, code, text)
		}
	}
	for _, path := range []string{"config", "whatif"} {
		if code, text, _ := ask(t, server, http.MethodPost, "/api/"+path, "", "{}"); code != http.StatusUnauthorized {
			t.Errorf("%s: %d %s", path, code, text)
		}
	}
}

// A viewer of one namespace gets no name of another one from any answer.
func TestNoNameOfOthers(t *testing.T) {
	_, server := started(t)
	for path, body := range map[string]string{"me": "", "advice?pod=mine-waits": "", "advice?pod=secret-secret-pod": "",
		"teams": "", "history?gpu=x": "", "events?namespace=secret&pod=secret-pod": "", "config": "",
		"whatif": `{"remove":["n"],"add":[{"like":"n","count":1}]}`} {
		method := http.MethodGet
		if body != "" {
			method = http.MethodPost
		}
		if _, text, _ := ask(t, server, method, "/api/"+path, "mine", body); strings.Contains(text, "secret") {
			t.Errorf("%s: %s", path, text)
		}
	}
	if code, text, _ := ask(t, server, http.MethodPost, "/api/config", "mine",
		`{"text":"apiVersion: kerf.dev/v1alpha2\nkind: SharingConfig\nspec:\n  pools:\n  - name: default\n"}`); code !=
		http.StatusOK || strings.Contains(text, "secret") || !strings.Contains(text, `"valid":true`) {
		t.Errorf("config: %d %s", code, text)
	}
	if text := streamed(t, server, "mine"); strings.Contains(text, "secret") || !strings.Contains(text, "my-pod") {
		t.Errorf("stream: %s", text)
	}
	if text := streamed(t, server, "admin"); !strings.Contains(text, "secret-pod") {
		t.Errorf("stream of an admin: %s", text)
	}
}

// streamed is the stream up to the first complete state.
func streamed(t *testing.T, server *httptest.Server, user string) string {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+"/api/stream", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("User", user)
	resp, err := server.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var all strings.Builder
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		all.WriteString(lines.Text() + "\n")
		if lines.Text() == "event: ready" {
			return all.String()
		}
	}
	t.Fatal("the stream ended before the state was complete")
	return ""
}

// A change reaches a viewer as a delta, without what is as it was.
func TestDelta(t *testing.T) {
	s, server := started(t)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+"/api/stream", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("User", "admin")
	resp, err := server.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() && lines.Text() != "event: ready" {
	}
	s.Broadcaster().RemovePod("mine-waits")
	s.Broadcaster().Flush()
	for lines.Scan() {
		if data, ok := strings.CutPrefix(lines.Text(), "data: {\"pod"); ok {
			var got map[string]any
			if err := json.Unmarshal([]byte(`{"pod`+data), &got); err != nil || len(got) != 1 ||
				got["pod/mine/mine-waits"] != nil {
				t.Errorf("delta %v: %v", got, err)
			}
			return
		}
	}
	t.Error("no delta")
}

func TestAdvice(t *testing.T) {
	_, server := started(t)
	code, text, _ := ask(t, server, http.MethodGet, "/api/advice?pod=mine-waits", "mine", "")
	for _, want := range []string{"best of 1 node has 59GiB free", "Request 59 GiB instead of 79 GiB",
		"Add a node like n"} {
		if code != http.StatusOK || !strings.Contains(text, want) {
			t.Errorf("lacks %q: %d %s", want, code, text)
		}
	}
}

func TestErrorsOfAConfigHaveLines(t *testing.T) {
	_, server := started(t)
	_, text, _ := ask(t, server, http.MethodPost, "/api/config", "admin",
		`{"text":"apiVersion: kerf.dev/v1alpha2\nkind: SharingConfig\nspec:\n  pols: []\n  profiles: 3\n"}`)
	for _, want := range []string{`"valid":false`, `"line":4`, `"line":5`} {
		if !strings.Contains(text, want) {
			t.Errorf("lacks %s: %s", want, text)
		}
	}
}

// Each answer has the headers that keep scripts and pages of others out.
func TestHeaders(t *testing.T) {
	_, server := started(t)
	for _, path := range []string{"/", "/pods", "/console.js", "/api/me", "/none.js"} {
		_, _, head := ask(t, server, http.MethodGet, path, "admin", "")
		policy := head.Get("Content-Security-Policy")
		if !strings.Contains(policy, "default-src 'none'") || strings.Contains(policy, "unsafe") ||
			head.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s: %v", path, head)
		}
	}
	for method, want := range map[string]int{http.MethodPut: http.StatusMethodNotAllowed,
		http.MethodDelete: http.StatusMethodNotAllowed} {
		if code, _, _ := ask(t, server, method, "/api/me", "admin", ""); code != want {
			t.Errorf("%s: %d", method, code)
		}
	}
}

// A page of another name, and a form of another site, get nothing.
func TestOtherSites(t *testing.T) {
	s := console.New(console.Options{Source: still{}, Auth: users{}, Hosts: []string{"127.0.0.1:1"},
		Log: slog.New(slog.DiscardHandler)})
	for name, c := range map[string]struct {
		host, site string
		want       int
	}{
		"its name":     {"127.0.0.1:1", "same-origin", http.StatusOK},
		"another name": {"evil.example:1", "same-origin", http.StatusForbidden},
		"another site": {"127.0.0.1:1", "cross-site", http.StatusForbidden},
	} {
		r := httptest.NewRequest(http.MethodPost, "/api/whatif", strings.NewReader("{}"))
		r.Host = c.host
		r.Header.Set("Sec-Fetch-Site", c.site)
		r.Header.Set("User", "admin")
		w := httptest.NewRecorder()
		s.Handler().ServeHTTP(w, r)
		if got := w.Code; (got == http.StatusForbidden) != (c.want == http.StatusForbidden) {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}
