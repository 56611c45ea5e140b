// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package nodeclient

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	telemetryv1 "github.com/kerf-gpu/kerf/api/telemetry/v1"
	"github.com/kerf-gpu/kerf/sharing"
)

// streamWindow is how many bytes of samples may be on their way to a reader.
const streamWindow = 1 << 20

// TelemetryPath is where the monitor of directory dir listens for the telemetry API.
func TelemetryPath(dir string) string { return filepath.Join(dir, "telemetry.sock") }

// Telemetry calls see with each sample of the monitor of directory dir, until see returns an error, ctx ends or the
// monitor goes away. The error says which; it is see's own unchanged. It never returns nil. see is called on the
// caller's goroutine; while it works, samples are missed and counted.
func Telemetry(ctx context.Context, dir string, in *telemetryv1.WatchRequest, see func(*telemetryv1.Sample) error) error {
	l := &link{dir: dir, path: TelemetryPath(dir)}
	conn, err := grpc.NewClient("passthrough:///kerf-monitor",
		grpc.WithContextDialer(l.dial), grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithNoProxy(),
		grpc.WithDisableServiceConfig(), grpc.WithDisableRetry(), grpc.WithAuthority("localhost"),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage)),
		// With windows of a fixed size nothing is measured: that would be a message to the monitor and back for each sample.
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
	stream, err := telemetryv1.NewTelemetryClient(conn).Watch(ctx, in)
	for err == nil {
		var sample *telemetryv1.Sample
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
		return &Error{fmt.Sprintf("no kerf-monitor at %q: start it with kerf-monitor --dir %q", l.dir, l.dir), ErrNoAgent}
	case failed != nil:
		return l.explain(failed)
	case st.Code() == codes.Unavailable:
		return &Error{"the monitor went away", ErrBroken}
	default:
		return fromStatus(st, limit)
	}
}
