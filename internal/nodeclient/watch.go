// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package nodeclient

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	nodeapi "github.com/kerf-gpu/kerf/api/node/v1alpha1"
	telemetryapi "github.com/kerf-gpu/kerf/api/telemetry/v1alpha1"
	"github.com/kerf-gpu/kerf/sharing"
)

// patience is how long past its interval a picture may be late before the agent counts as hanging.
const patience = 10 * time.Second

// errLate is the cause of a watch that ends because pictures stopped coming.
var errLate = errors.New("no picture")

// Watch calls see with the whole snapshot at once, after every change and at least every interval (100 ms to 60 s).
// It ends when see returns an error, ctx ends or the agent stops. The error says which, and an error of see is
// unchanged. It never returns nil. It calls see on the caller's goroutine.
func (c *Client) Watch(ctx context.Context, every time.Duration, see func(*nodeapi.GetNodeResponse) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	limit := every + patience
	late := time.AfterFunc(limit, func() { cancel(errLate) })
	defer late.Stop()

	stream, err := c.node.Watch(ctx, &nodeapi.WatchRequest{IntervalMs: uint32(every.Milliseconds())}) //nolint:gosec // at most 60000
	if err != nil {
		return c.plain(err, limit)
	}
	for {
		picture, err := stream.Recv()
		switch {
		case errors.Is(context.Cause(ctx), errLate):
			return &Error{fmt.Sprintf("the agent sent nothing for %s", limit), sharing.ErrUnavailable}
		case errors.Is(err, io.EOF):
			return &Error{"the agent ended the watch", ErrBroken}
		case err != nil:
			return c.plain(err, limit)
		}
		late.Stop()
		if err := see(picture); err != nil {
			return err
		}
		late.Reset(limit)
	}
}

// WatchReconnecting is Watch over restarts of the agent. After an error it calls away with it, waits a moment and
// reconnects, until see or away returns an error or ctx ends. Its error is see's, away's, or context.Cause of ctx.
func WatchReconnecting(ctx context.Context, dir string, every time.Duration, see func(*nodeapi.GetNodeResponse) error,
	away func(error) error) error {
	const pause = 200 * time.Millisecond
	for {
		var own error
		err := once(ctx, dir, every, func(p *nodeapi.GetNodeResponse) error {
			own = see(p)
			return own
		})
		switch {
		case own != nil:
			return own
		case ctx.Err() != nil:
			return context.Cause(ctx)
		}
		if err := away(err); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(pause):
		}
	}
}

// once watches over a new connection, so that the backoff of an earlier one does not delay it.
func once(ctx context.Context, dir string, every time.Duration, see func(*nodeapi.GetNodeResponse) error) error {
	c, err := New(dir)
	if err != nil {
		return err
	}
	return errors.Join(c.Watch(ctx, every, see), c.Close())
}

// streamWindow is how many bytes of samples may be on their way to a reader.
const streamWindow = 1 << 20

// TelemetryPath is where the monitor of directory dir listens for the telemetry API.
func TelemetryPath(dir string) string { return filepath.Join(dir, "telemetry.sock") }

// Telemetry calls see with each sample of the monitor of directory dir, until see returns an error, ctx ends or the
// monitor goes away. The error says which; it is see's own unchanged. It never returns nil. see is called on the
// caller's goroutine; while it works, samples are missed and counted.
func Telemetry(ctx context.Context, dir string, in *telemetryapi.WatchRequest,
	see func(*telemetryapi.Sample) error) error {
	l := &link{dir: dir, path: TelemetryPath(dir)}
	conn, err := grpc.NewClient("passthrough:///kerf-monitor",
		grpc.WithContextDialer(l.dial), grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithNoProxy(),
		grpc.WithDisableServiceConfig(), grpc.WithDisableRetry(), grpc.WithAuthority("localhost"),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage)),
		// With windows of a fixed size nothing is measured: that would be a message to the monitor and back for each
		// sample.
		grpc.WithInitialWindowSize(streamWindow), grpc.WithInitialConnWindowSize(streamWindow),
	)
	if err != nil {
		return fmt.Errorf("connect to %q: %w", l.path, err)
	}
	defer conn.Close()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	limit := time.Duration(in.GetIntervalMs())*time.Millisecond + patience
	late := time.AfterFunc(limit, func() { cancel(errLate) })
	defer late.Stop()
	stream, err := telemetryapi.NewTelemetryClient(conn).Watch(ctx, in)
	for err == nil {
		var sample *telemetryapi.Sample
		if sample, err = stream.Recv(); err != nil {
			break
		}
		late.Stop()
		if err := see(sample); err != nil {
			return err
		}
		late.Reset(limit)
	}
	return l.explainMonitor(ctx, err, limit)
}

// explainMonitor says why no sample comes.
func (l *link) explainMonitor(ctx context.Context, err error, limit time.Duration) error {
	if errors.Is(context.Cause(ctx), errLate) {
		return &Error{fmt.Sprintf("the monitor sent nothing for %s", limit), sharing.ErrUnavailable}
	}
	broken, failed := l.state()
	switch st, _ := status.FromError(err); {
	case broken:
		return &Error{"the monitor went away", ErrBroken}
	case errors.Is(failed, fs.ErrNotExist), errors.Is(failed, syscall.ENOTDIR), failed != nil && refused(failed):
		return &Error{fmt.Sprintf("no kerf-monitor at %q: start it with kerf-monitor --run-dir %q", l.dir, l.dir),
			ErrNoAgent}
	case failed != nil:
		return l.explain(failed)
	case st.Code() == codes.Unavailable:
		return &Error{"the monitor went away", ErrBroken}
	default:
		return fromStatus(st, limit)
	}
}

// Metrics writes the agent's exposition of metrics to w. On an error, part of it may have been written.
func Metrics(ctx context.Context, dir string, w io.Writer) error { return get(ctx, dir, "metrics", w) }

// Usage writes what grants used since then to w, as the agent's audit log has it: JSON lines, the first of which has
// the prices. On an error, part of it may have been written.
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
		return &Error{fmt.Sprintf("the agent answered %s: %s", resp.Status, strings.TrimSpace(string(head))),
			sharing.ErrUnavailable}
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
