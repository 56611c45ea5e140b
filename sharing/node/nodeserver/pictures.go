// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package nodeserver

import (
	"context"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	nodeapi "github.com/kerf-gpu/kerf/api/node/v1alpha1"
	"github.com/kerf-gpu/kerf/internal/serve"
)

// pictureGap is the least time between two pictures. It bounds what callers cost, however many there are.
const pictureGap = 50 * time.Millisecond

// picture is the node at one moment, made and encoded once for all who ask.
type picture struct {
	message *nodeapi.GetNodeResponse
	encoded *serve.Encoded
}

// pictures makes pictures of the node, one at a time. Callers that wait share the next one.
type pictures struct {
	state func(context.Context) *nodeapi.GetNodeResponse
	// turn has a token while no goroutine makes a sample. The one that takes it owns what follows.
	turn chan struct{}
	last picture
	// began is when the last picture was begun.
	began time.Time
}

func newPictures(state func(context.Context) *nodeapi.GetNodeResponse) *pictures {
	p := &pictures{state: state, turn: make(chan struct{}, 1)}
	p.turn <- struct{}{}
	return p
}

// take returns a picture that was begun after the call, so that a caller sees what it changed itself. The error is a
// gRPC status.
func (p *pictures) take(ctx context.Context) (picture, error) {
	asked := time.Now()
	select {
	case <-p.turn:
	case <-ctx.Done():
		return picture{}, status.FromContextError(ctx.Err()).Err()
	}
	defer func() { p.turn <- struct{}{} }()
	if p.began.After(asked) {
		return p.last, nil
	}
	if err := sleep(ctx, pictureGap-time.Since(p.began)); err != nil {
		return picture{}, err
	}
	began := time.Now()
	message := p.state(context.WithoutCancel(ctx)) // others get it, too
	data, err := proto.Marshal(message)
	if err != nil {
		return picture{}, status.Errorf(codes.Internal, "encode picture of the node: %v", err)
	}
	p.last, p.began = picture{message, serve.NewEncoded(data)}, began
	return p.last, nil
}

// sleep waits for d, or until ctx ends with its status.
func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return status.FromContextError(ctx.Err()).Err()
	}
}
