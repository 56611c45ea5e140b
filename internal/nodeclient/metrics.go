// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package nodeclient

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"time"

	"github.com/kerf-gpu/kerf/sharing"
)

// Metrics writes the agent's exposition of metrics to w. On an error, part of it may have been written.
func Metrics(ctx context.Context, dir string, w io.Writer) error { return get(ctx, dir, "metrics", w) }

// Usage writes what grants used since then to w, as the agent's audit log has it: JSON lines, the first of which has the
// prices. On an error, part of it may have been written.
func Usage(ctx context.Context, dir string, since time.Time, w io.Writer) error {
	return get(ctx, dir, "usage?since="+url.QueryEscape(since.UTC().Format(time.RFC3339)), w)
}

// get writes what the agent's HTTP socket answers.
func get(ctx context.Context, dir, what string, w io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	l := &link{dir: dir, path: filepath.Join(dir, "http.sock")}
	transport := &http.Transport{
		DialContext:       func(ctx context.Context, _, addr string) (net.Conn, error) { return l.dial(ctx, addr) },
		DisableKeepAlives: true,
	}
	defer transport.CloseIdleConnections()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://kerf-agent/"+what, nil)
	if err != nil {
		return fmt.Errorf("ask the agent: %w", err)
	}
	resp, err := transport.RoundTrip(r)
	if err != nil {
		return l.httpError(ctx, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		head, _ := io.ReadAll(io.LimitReader(resp.Body, 512)) // only to explain the status
		return &Error{fmt.Sprintf("the agent answered %s: %s", resp.Status, strings.TrimSpace(string(head))), sharing.ErrUnavailable}
	}
	if _, err := io.Copy(w, resp.Body); err != nil {
		return l.httpError(ctx, fmt.Errorf("copy the answer: %w", err))
	}
	return nil
}

// httpError says why the exposition did not come.
func (l *link) httpError(ctx context.Context, err error) error {
	if _, failed := l.state(); failed != nil && ctx.Err() == nil {
		return l.explain(failed)
	}
	if ctx.Err() != nil {
		return &Error{fmt.Sprintf("the agent did not answer within %s", callTimeout), sharing.ErrUnavailable}
	}
	return &Error{err.Error(), sharing.ErrUnavailable}
}
