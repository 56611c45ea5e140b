// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package promread reads what grants used from a Prometheus that scrapes kerf-monitor, by its HTTP API.
//
// It promises that what Prometheus does not have is not known, never zero, and that a time that is not asked for is not
// counted. It does not know what was between two scrapes, and nothing of grants that began and ended between two of the
// moments that are looked at.
package promread

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/kerf-gpu/kerf/sharing"
)

const (
	// queryDeadline bounds one query, and mostAnswer is the most that is read of its answer, in bytes.
	queryDeadline = 2 * time.Minute
	mostAnswer    = 1 << 30
	// mostText is how much of a refusal is repeated.
	mostText = 300
)

// Source is a Prometheus.
type Source struct {
	// URL is its address, such as http://prometheus:9090, with a path where it has one.
	URL string
	// Client is used for all requests; nil means http.DefaultClient.
	Client *http.Client
}

// series is one row of an answer.
type series struct {
	Metric map[string]string `json:"metric"`
	Value  sample            `json:"value"`
	Values []sample          `json:"values"`
}

// sample is a value at a moment, in seconds.
type sample struct{ at, value float64 }

// UnmarshalJSON reads [seconds, "value"].
func (s *sample) UnmarshalJSON(data []byte) error {
	var text string
	if err := json.Unmarshal(data, &[]any{&s.at, &text}); err != nil {
		return err
	}
	v, err := strconv.ParseFloat(text, 64)
	s.value = v
	return err
}

// instant asks for the values at one moment.
func (s Source) instant(ctx context.Context, query string, at time.Time) ([]series, error) {
	return s.ask(ctx, "query", query, url.Values{"query": {query}, "time": {seconds(at)}})
}

// between asks for the values at moments that are step apart.
func (s Source) between(ctx context.Context, query string, from, to time.Time, step time.Duration) ([]series, error) {
	return s.ask(ctx, "query_range", query, url.Values{
		"query": {query}, "start": {seconds(from)}, "end": {seconds(to)}, "step": {strconv.FormatFloat(step.Seconds(), 'f', -1, 64)},
	})
}

func seconds(t time.Time) string { return strconv.FormatFloat(float64(t.UnixMilli())/1000, 'f', 3, 64) }

func (s Source) ask(ctx context.Context, kind, query string, form url.Values) ([]series, error) {
	ctx, cancel := context.WithTimeout(ctx, queryDeadline)
	defer cancel()
	at := strings.TrimSuffix(s.URL, "/") + "/api/v1/" + kind
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, at, strings.NewReader(form.Encode()))
	if err != nil {
		return nil, sharing.Invalid("--prometheus", s.URL, "write an address such as http://prometheus:9090", "is not an address")
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	client := s.Client
	if client == nil {
		client = http.DefaultClient
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("ask prometheus %q: %w (%w)", s.URL, err, sharing.ErrUnavailable)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, mostAnswer))
	if err != nil {
		return nil, fmt.Errorf("ask prometheus %q: %w (%w)", s.URL, err, sharing.ErrUnavailable)
	}
	return parse(s.URL, query, resp.Status, body)
}

// parse reads an answer.
func parse(from, query, status string, body []byte) ([]series, error) {
	var answer struct {
		Status, Error string
		Data          struct{ Result []series }
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		return nil, fmt.Errorf("ask prometheus %q: it answered %s, %q: %w", from, status, short(body), errors.Join(sharing.ErrUnavailable, err))
	}
	if answer.Status != "success" {
		return nil, fmt.Errorf("ask prometheus %q: it refused %q: %q: %w", from, query, short([]byte(answer.Error)), sharing.ErrInvalid)
	}
	return answer.Data.Result, nil
}

func short(text []byte) string { return string(text[:min(len(text), mostText)]) }
