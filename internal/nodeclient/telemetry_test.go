// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package nodeclient

import (
	"context"
	"errors"
	"net"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	telemetryapi "github.com/kerf-gpu/kerf/api/telemetry/v1alpha1"
	"github.com/kerf-gpu/kerf/sharing"
)

// monitorOf sends so many samples and ends the stream with an error, or waits for the reader to go.
type monitorOf struct {
	telemetryapi.UnimplementedTelemetryServer
	samples uint64
	end     error
}

func (m monitorOf) Watch(_ *telemetryapi.WatchRequest, out grpc.ServerStreamingServer[telemetryapi.Sample]) error {
	for i := range m.samples {
		if err := out.Send(&telemetryapi.Sample{Sequence: i + 1}); err != nil {
			return err
		}
	}
	if m.end == nil {
		<-out.Context().Done()
	}
	return m.end
}

func TestTelemetry(t *testing.T) {
	enough := errors.New("enough")
	cases := map[string]struct {
		monitor *monitorOf
		stop    uint64 // after so many
		want    error
	}{
		"no one there":          {nil, 0, ErrNoAgent},
		"the reader has enough": {&monitorOf{samples: 3}, 2, enough},
		"a wrong request": {&monitorOf{end: status.Error(codes.InvalidArgument, "interval")}, 0,
			sharing.ErrInvalid},
		"it is ending": {&monitorOf{samples: 2, end: status.Error(codes.Unavailable, "")}, 0, ErrBroken},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if c.monitor != nil {
				l, err := net.Listen("unix", TelemetryPath(dir))
				if err != nil {
					t.Fatal(err)
				}
				g := grpc.NewServer()
				telemetryapi.RegisterTelemetryServer(g, *c.monitor)
				done := make(chan error, 1)
				go func() { done <- g.Serve(l) }()
				defer func() {
					g.Stop()
					if err := <-done; err != nil {
						t.Error(err)
					}
				}()
			}
			var seen uint64
			err := Telemetry(t.Context(), dir, &telemetryapi.WatchRequest{}, func(s *telemetryapi.Sample) error {
				if seen++; s.GetSequence() != seen {
					t.Errorf("sample %d comes as number %d", s.GetSequence(), seen)
				}
				if seen == c.stop {
					return enough
				}
				return nil
			})
			if !errors.Is(err, c.want) {
				t.Errorf("%v, want %v", err, c.want)
			}
		})
	}
}

func TestTelemetryEndsWithItsReader(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := Telemetry(ctx, t.TempDir(), &telemetryapi.WatchRequest{}, nil); err == nil {
		t.Error("no error")
	}
}
