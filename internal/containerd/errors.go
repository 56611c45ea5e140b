// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package containerd

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"syscall"

	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"
	"google.golang.org/grpc/status"

	"github.com/kerf-gpu/kerf/sharing"
)

// ErrNoRuntime says that there is no socket, so no container runtime runs there. It is sharing.ErrNotFound.
var ErrNoRuntime = fmt.Errorf("no container runtime: %w", sharing.ErrNotFound)

// Error is a failed call: one sentence for people, and what it means for programs (errors.Is).
type Error struct {
	Text string
	Kind error
}

// Error returns the sentence.
func (e *Error) Error() string { return e.Text }

// Unwrap returns the kind.
func (e *Error) Unwrap() error { return e.Kind }

// plain turns the error of a call into one that wraps the vocabulary; doing says what was tried. nil stays
// nil, and the caller's own cancellation stays context.Canceled.
func (c *Client) plain(ctx context.Context, doing string, err error) error {
	if err == nil {
		return nil
	}
	if cause := context.Cause(ctx); cause != nil && errors.Is(cause, context.Canceled) {
		return fmt.Errorf("%s: %w", doing, cause)
	}
	if _, wire := status.FromError(err); wire {
		err = errgrpc.ToNative(err) // what is native already would lose its kind
	}
	if errdefs.IsUnavailable(err) || errdefs.IsDeadlineExceeded(err) {
		if failed := c.link.state(); failed != nil {
			return c.link.explain(doing, failed)
		}
	}
	return &Error{Text: fmt.Sprintf("%s: %v", doing, err), Kind: kindOf(err)}
}

// kindOf is err's place in the vocabulary.
func kindOf(err error) error {
	for _, k := range []error{
		sharing.ErrNotFound, sharing.ErrConflict, sharing.ErrExhausted, sharing.ErrInvalid,
		sharing.ErrUnsupported, sharing.ErrUnavailable, sharing.ErrDenied,
	} {
		if errors.Is(err, k) {
			return k
		}
	}
	switch {
	case errdefs.IsNotFound(err):
		return sharing.ErrNotFound
	case errdefs.IsAlreadyExists(err), errdefs.IsConflict(err):
		return sharing.ErrConflict
	case errdefs.IsInvalidArgument(err), errdefs.IsOutOfRange(err):
		return sharing.ErrInvalid
	case errdefs.IsNotImplemented(err), errdefs.IsFailedPrecondition(err):
		return sharing.ErrUnsupported
	case errdefs.IsPermissionDenied(err), errdefs.IsUnauthorized(err):
		return sharing.ErrDenied
	case errdefs.IsResourceExhausted(err):
		return sharing.ErrExhausted
	}
	return sharing.ErrUnavailable
}

// explain says why the socket could not be opened.
func (l *link) explain(doing string, err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		return &Error{fmt.Sprintf("%s: no container runtime at %q", doing, l.socket), ErrNoRuntime}
	case errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, syscall.EAGAIN):
		return &Error{fmt.Sprintf("%s: the container runtime at %q does not listen: it is restarting, or was stopped", doing, l.socket), sharing.ErrUnavailable}
	case errors.Is(err, fs.ErrPermission):
		return &Error{fmt.Sprintf("%s: no permission for %q: run as root", doing, l.socket), sharing.ErrDenied}
	}
	return &Error{fmt.Sprintf("%s: connect to %q: %v", doing, l.socket, err), sharing.ErrUnavailable}
}
