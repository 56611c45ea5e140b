// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package nodeclient

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	nodev1 "github.com/kerf-gpu/kerf/api/node/v1"
	"github.com/kerf-gpu/kerf/sharing"
)

// patience is how long past its interval a picture may be late before the agent counts as hanging.
const patience = 10 * time.Second

// errLate is the cause of a watch that ends because pictures stopped coming.
var errLate = errors.New("no picture")

// Watch calls see with the whole picture at once, after every change and at least every interval (100 ms to
// 60 s), until see returns an error, ctx ends or the agent goes away. The error says which; it is see's own
// unchanged. It never returns nil. see is called on the caller's goroutine.
func (c *Client) Watch(ctx context.Context, every time.Duration, see func(*nodev1.GetNodeResponse) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	limit := every + patience
	late := time.AfterFunc(limit, func() { cancel(errLate) })
	defer late.Stop()

	stream, err := c.node.Watch(ctx, &nodev1.WatchRequest{IntervalMs: uint32(every.Milliseconds())}) //nolint:gosec // at most 60000
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

// Follow is Watch over restarts of the agent: after an error it calls away with it, waits a moment and
// connects anew, until see or away returns an error or ctx ends. Its error is see's, away's, or
// context.Cause of ctx.
func Follow(ctx context.Context, dir string, every time.Duration, see func(*nodev1.GetNodeResponse) error, away func(error) error) error {
	const pause = 200 * time.Millisecond
	for {
		var own error
		err := once(ctx, dir, every, func(p *nodev1.GetNodeResponse) error {
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

// once watches over a connection of its own, so that no backoff of an earlier one delays it.
func once(ctx context.Context, dir string, every time.Duration, see func(*nodev1.GetNodeResponse) error) error {
	c, err := New(dir)
	if err != nil {
		return err
	}
	return errors.Join(c.Watch(ctx, every, see), c.Close())
}
