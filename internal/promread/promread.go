// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package promread reads what grants used from a Prometheus that scrapes kerf-monitor, by its HTTP API.
//
// It promises that what Prometheus does not have is unknown, never zero, and that time outside of the request is not
// counted. It does not know what happened between two scrapes. It knows nothing of grants that began and ended between
// two of the sampled moments.
package promread

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/api"
	prom "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/model"

	"github.com/kerf-gpu/kerf/sharing"
)

const (
	// queryDeadline bounds one query, and mostAnswer is the most that is read of its answer, in bytes.
	queryDeadline = 2 * time.Minute
	mostAnswer    = 1 << 30
	// mostText is how many bytes of an error of Prometheus are repeated.
	mostText = 300
)

// Source is a Prometheus server.
type Source struct {
	// URL is its address, such as http://prometheus:9090, with a path where it has one.
	URL string
}

// bounded reads at most mostAnswer bytes of an answer.
type bounded struct{ http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (b bounded) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := b.RoundTripper.RoundTrip(req)
	if err == nil {
		resp.Body = struct {
			io.Reader
			io.Closer
		}{io.LimitReader(resp.Body, mostAnswer), resp.Body}
	}
	return resp, err
}

func (s Source) api() (prom.API, error) {
	client, err := api.NewClient(api.Config{Address: s.URL, RoundTripper: bounded{api.DefaultRoundTripper}})
	if err != nil {
		return nil, sharing.Invalid("--prometheus", s.URL, "write an address such as http://prometheus:9090",
			"is not an address")
	}
	return prom.NewAPI(client), nil
}

// instant asks for the value of each series at one moment.
func (s Source) instant(ctx context.Context, query string, at time.Time) (model.Vector, error) {
	v, err := s.ask(ctx, query, func(ctx context.Context, from prom.API) (model.Value, error) {
		v, _, _, err := from.Query(ctx, query, at)
		return v, err
	})
	rows, _ := v.(model.Vector)
	return rows, err
}

// between asks for the values of each series from a moment to another, a step apart.
func (s Source) between(ctx context.Context, query string, from, to time.Time, step time.Duration) (model.Matrix,
	error) {
	v, err := s.ask(ctx, query, func(ctx context.Context, at prom.API) (model.Value, error) {
		v, _, _, err := at.QueryRange(ctx, query, prom.Range{Start: from, End: to, Step: step})
		return v, err
	})
	rows, _ := v.(model.Matrix)
	return rows, err
}

func (s Source) ask(ctx context.Context, query string, do func(context.Context, prom.API) (model.Value, error)) (
	model.Value, error) {
	ctx, cancel := context.WithTimeout(ctx, queryDeadline)
	defer cancel()
	from, err := s.api()
	if err != nil {
		return nil, err
	}
	v, err := do(ctx, from)
	var refused *prom.Error
	switch {
	case err == nil:
		return v, nil
	case errors.As(err, &refused) && (refused.Type == prom.ErrBadData || refused.Type == prom.ErrExec):
		return nil, fmt.Errorf("ask prometheus %q: it refused %q: %q: %w", s.URL, query, short(refused.Msg),
			sharing.ErrInvalid)
	}
	return nil, fmt.Errorf("ask prometheus %q: %w (%w)", s.URL, err, sharing.ErrUnavailable)
}

func short(text string) string { return text[:min(len(text), mostText)] }
