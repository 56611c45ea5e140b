// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package nodeserver

import (
	"context"
	"errors"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/kerf-gpu/kerf/sharing"
)

// vocabulary maps the error vocabulary to status codes, in the order in which they are looked for: an error
// that wraps several gets the first.
func vocabulary() []struct {
	is   error
	code codes.Code
} {
	return []struct {
		is   error
		code codes.Code
	}{
		{sharing.ErrDenied, codes.PermissionDenied},
		{sharing.ErrInvalid, codes.InvalidArgument},
		{sharing.ErrUnsupported, codes.FailedPrecondition},
		{sharing.ErrExhausted, codes.ResourceExhausted},
		{sharing.ErrConflict, codes.AlreadyExists},
		{sharing.ErrNotFound, codes.NotFound},
		{sharing.ErrStale, codes.Aborted},
		{sharing.ErrLost, codes.Unavailable},
		{sharing.ErrUnavailable, codes.Unavailable},
		{context.DeadlineExceeded, codes.DeadlineExceeded},
		{context.Canceled, codes.Canceled},
	}
}

// statusOf turns an error of the runtime into what crosses the wire.
func statusOf(err error) error {
	for _, v := range vocabulary() {
		if errors.Is(err, v.is) {
			return status.Error(v.code, err.Error())
		}
	}
	return status.Error(codes.Internal, err.Error())
}
