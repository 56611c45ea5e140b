// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package console

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/kerf-gpu/kerf/internal/console/auth"
	"github.com/kerf-gpu/kerf/internal/console/model"
	"github.com/kerf-gpu/kerf/internal/console/whatif"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/config"
	"github.com/kerf-gpu/kerf/sharing/usage"
)

// asked is a request with what its viewer may see.
type asked struct {
	*http.Request

	viewer *auth.Viewer
	scope  model.Scope
}

// answer writes the value of f as JSON, or its error.
func (s *Server) answer(f func(asked) (any, error)) func(http.ResponseWriter, *http.Request, *auth.Viewer) {
	return func(w http.ResponseWriter, r *http.Request, v *auth.Viewer) {
		ctx, cancel := context.WithTimeout(r.Context(), answerTime)
		defer cancel()
		scope, err := s.scope(ctx, v)
		if err != nil {
			refuse(w, err)
			return
		}
		value, err := f(asked{r.WithContext(ctx), v, scope})
		if err != nil && ctx.Err() != nil {
			err = fmt.Errorf("answer in %v: the console is busy, or waits for another server; try again later: %w",
				answerTime, sharing.ErrUnavailable)
		}
		code := http.StatusOK
		if err != nil {
			value, code = map[string]string{"error": err.Error()}, codeOf(err)
		}
		body, err := json.Marshal(value)
		if err != nil {
			http.Error(w, "the answer cannot be encoded", http.StatusInternalServerError)
			return
		}
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(writeTime))
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Cache-Control", "no-store")
		w.WriteHeader(code)
		_, _ = w.Write(body)
	}
}

// within calls f while it has one of the slots. F reads no request and writes no answer, so that no slow viewer keeps
// a slot.
func within[T any](a asked, slots chan struct{}, f func() (T, error)) (T, error) {
	select {
	case slots <- struct{}{}:
		defer func() { <-slots }()
		return f()
	case <-a.Context().Done():
		var none T
		return none, a.Context().Err()
	}
}

func codeOf(err error) int {
	switch {
	case errors.Is(err, sharing.ErrNotFound):
		return http.StatusNotFound
	case errors.Is(err, sharing.ErrDenied):
		return http.StatusForbidden
	case errors.Is(err, sharing.ErrUnavailable):
		return http.StatusServiceUnavailable
	}
	return http.StatusBadRequest
}

func (s *Server) me(a asked) (any, error) {
	return map[string]any{"name": a.viewer.Name, "all": a.scope.All}, nil
}

func (s *Server) advice(a asked) (any, error) {
	return within(a, s.questions, func() (any, error) {
		advice, ok, err := s.hub.Advice(a.FormValue("pod"), a.scope)
		if err == nil && !ok {
			err = fmt.Errorf("advise: there is no such pod: %w", sharing.ErrNotFound)
		}
		return advice, err
	})
}

// mostHours bounds the time of a report.
const mostHours = 31 * 24

func sinceOf(a asked, usual time.Duration) (time.Duration, error) {
	text := a.FormValue("since")
	if text == "" {
		return usual, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < time.Minute || d > mostHours*time.Hour {
		return 0, sharing.Invalid("since", text, "write a time such as 1h, at most 744h", "is no time")
	}
	return d, nil
}

// teams is what namespaces, or another key, used. Rows are made of what the viewer may see.
func (s *Server) teams(a asked) (any, error) {
	since, err := sinceOf(a, 24*time.Hour)
	by := []string{"namespace"}
	if key := a.FormValue("by"); key != "" {
		by = []string{key}
	}
	if err := errors.Join(err, usage.CheckKeys("by", by)); err != nil {
		return nil, err
	}
	return within(a, s.reads, func() (any, error) {
		parts, prices, err := s.o.Source.Usage(a.Context(), since, by)
		if err != nil {
			return nil, err
		}
		parts = slices.DeleteFunc(parts, func(p usage.Part) bool { return !a.scope.Sees(p.Labels["namespace"]) })
		return map[string]any{"by": by[0], "currency": prices.Currency,
			"rows": usage.Report(parts, by, prices.Of, prices.PerKWh)}, nil
	})
}

// history is the usage of a GPU over time, for every viewer: it has totals of the GPU, and no name of a tenant.
func (s *Server) history(a asked) (any, error) {
	since, err := sinceOf(a, time.Hour)
	if err != nil {
		return nil, err
	}
	return within(a, s.reads, func() (any, error) {
		points, err := s.o.Source.History(a.Context(), a.FormValue("gpu"), since)
		return map[string]any{"points": points}, err
	})
}

func (s *Server) events(a asked) (any, error) {
	namespace, pod := a.FormValue("namespace"), a.FormValue("pod")
	if !a.scope.Sees(namespace) || namespace == "" || pod == "" || strings.Contains(pod, ",") {
		return nil, fmt.Errorf("list events: there is no such pod: %w", sharing.ErrNotFound)
	}
	if a.viewer.Events == nil {
		return nil, fmt.Errorf("list events: may not list events: %w", sharing.ErrDenied)
	}
	switch may, err := a.viewer.Events(a.Context(), namespace); {
	case err != nil:
		return nil, err
	case !may:
		return nil, fmt.Errorf("list events: may not list events in namespace %s: %w", namespace, sharing.ErrDenied)
	}
	return within(a, s.reads, func() (any, error) {
		events, err := s.o.Source.Events(a.Context(), namespace, pod)
		return map[string]any{"events": events}, err
	})
}

// config is the applied config with its names, for a viewer of everything.
func (s *Server) config(a asked) (any, error) {
	c := s.hub.Config()
	out := struct {
		Known    bool     `json:"known"`
		Text     string   `json:"text,omitempty"`
		Pools    []string `json:"pools"`
		Profiles []string `json:"profiles"`
		Currency string   `json:"currency,omitempty"`
	}{Known: c != nil, Pools: []string{}, Profiles: []string{}}
	if c == nil {
		return out, nil
	}
	for _, p := range c.Pools() {
		out.Pools = append(out.Pools, p.Name)
	}
	for _, p := range c.Profiles() {
		out.Profiles = append(out.Profiles, p.Name)
	}
	out.Currency = c.Prices().Currency
	if a.scope.All {
		text, err := c.Encode()
		if err != nil {
			return nil, err
		}
		out.Text = string(text)
	}
	return out, nil
}

// compare checks a config and says what it would change.
func (s *Server) compare(a asked) (any, error) {
	var in struct{ Text string }
	if err := decode(a, &in); err != nil {
		return nil, err
	}
	files := []config.File{{Name: "sharing.yaml", Data: []byte(in.Text)}}
	var c config.Config
	checked, err := within(a, s.questions, func() (whatif.Checked, error) {
		var err error
		c, err = config.DecodeFiles(files...)
		return whatif.Check(err), nil // the errors are the answer
	})
	if err != nil || !checked.Valid || !a.scope.All { // a plan names the pods that it waits for
		return checked, err
	}
	checked.Plan, err = within(a, s.reads, func() (any, error) { return s.o.Source.Plan(a.Context(), c, files) })
	return checked, err
}

func (s *Server) whatIf(a asked) (any, error) {
	var q whatif.Question
	if err := decode(a, &q); err != nil {
		return nil, err
	}
	return within(a, s.questions, func() (any, error) {
		nodes, pods := s.hub.Live()
		answer, err := whatif.Evaluate(nodes, pods, s.hub.Config(), q)
		if err == nil && !a.scope.All {
			answer = answer.Without(a.scope.Sees)
		}
		return answer, err
	})
}

func decode(a asked, into any) error {
	if !strings.HasPrefix(a.Header.Get("Content-Type"), "application/json") {
		return fmt.Errorf("read the request: send JSON: %w", sharing.ErrInvalid)
	}
	text, err := io.ReadAll(a.Body)
	if err == nil {
		err = json.Unmarshal(text, into)
	}
	if err != nil {
		return fmt.Errorf("read the request: %w (%w)", err, sharing.ErrInvalid)
	}
	return nil
}
