// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// points is about how many of each series are drawn.
const points = 120

// prometheus is asked for the time that ends now.
type prometheus struct {
	at   string
	end  time.Time
	back time.Duration
}

// series are values of one set of labels.
type series struct {
	Labels map[string]string `json:"metric"`
	Values []sample          `json:"values"`
	// Value is the only one, of a query of one moment.
	Value *sample `json:"value"`
}

// sample is a value and its time, which Prometheus writes as a pair.
type sample struct{ at, value float64 }

var errAnswer = errors.New("is no answer of Prometheus'")

func (s *sample) UnmarshalJSON(data []byte) error {
	var pair [2]any
	if err := json.Unmarshal(data, &pair); err != nil {
		return err
	}
	at, ok1 := pair[0].(float64)
	text, ok2 := pair[1].(string)
	v, err := strconv.ParseFloat(text, 64)
	if !ok1 || !ok2 || err != nil {
		return errAnswer
	}
	s.at, s.value = at, v
	return nil
}

// fill asks a panel's queries.
func (p prometheus) fill(ctx context.Context, of *panel) error {
	for _, t := range of.Targets {
		found, err := p.ask(ctx, t)
		if err != nil {
			return fmt.Errorf("%q: %w", t.Expr, err)
		}
		of.found = append(of.found, found)
	}
	return nil
}

func (p prometheus) ask(ctx context.Context, t target) ([]series, error) {
	at, q := p.at+"/api/v1/query", url.Values{"query": {t.Expr}, "time": {unix(p.end)}}
	if !t.Instant {
		at = p.at + "/api/v1/query_range"
		step := max(1, int(p.back.Seconds())/points)
		q = url.Values{"query": {t.Expr}, "start": {unix(p.end.Add(-p.back))}, "end": {unix(p.end)},
			"step": {strconv.Itoa(step)}}
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, at+"?"+q.Encode(), http.NoBody)
	if err != nil {
		return nil, err
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	var body struct {
		Status, Error string
		Data          struct{ Result []series }
	}
	if err := json.NewDecoder(answer.Body).Decode(&body); err != nil {
		return nil, fmt.Errorf("%s: %w", answer.Status, err)
	}
	if body.Status != "success" {
		return nil, fmt.Errorf("%s: %s: %w", answer.Status, body.Error, errAnswer)
	}
	return body.Data.Result, nil
}

func unix(t time.Time) string { return strconv.FormatInt(t.Unix(), 10) }

// last is a series' newest value.
func (s series) last() float64 {
	if s.Value != nil {
		return s.Value.value
	}
	return s.Values[len(s.Values)-1].value // Prometheus answers no series without a value
}
