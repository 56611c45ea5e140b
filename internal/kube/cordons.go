// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"time"
)

const (
	// cordonWatch is how long one watch of this node's object lasts at the most, in seconds.
	cordonWatch = "300"
	// cordonRetry is the pause before the next watch, which grows up to cordonLast while none comes about.
	cordonRetry = time.Second
	cordonLast  = time.Minute
)

// FollowSpec tells the spec of this node's GPUNode, at first and whenever the object changes, until ctx ends; an object
// without one tells null. What cannot be read is told as an error (sharing.ErrDenied, sharing.ErrNotFound,
// sharing.ErrUnavailable), and tried again. tell is called from one goroutine.
func (c *Client) FollowSpec(ctx context.Context, tell func(spec json.RawMessage, err error)) {
	wait := cordonRetry
	for ctx.Err() == nil {
		heard, err := c.watchSpec(ctx, tell)
		if ctx.Err() != nil {
			return
		}
		if err != nil && !heard {
			tell(nil, err)
			wait = min(2*wait, cordonLast)
		} else {
			wait = cordonRetry
		}
		t := time.NewTimer(wait)
		select {
		case <-ctx.Done():
		case <-t.C:
		}
		t.Stop()
	}
}

// watchSpec reads one watch to its end; heard is true when it told anything.
func (c *Client) watchSpec(ctx context.Context, tell func(json.RawMessage, error)) (heard bool, err error) {
	doing := "watch gpunode " + c.node
	stream, err := c.core.RESTClient().Get().AbsPath(gpuNodes[:len(gpuNodes)-1]).SetHeader("Accept", "application/json").
		Param("watch", "true").Param("fieldSelector", "metadata.name="+c.node).Param("timeoutSeconds", cordonWatch).Stream(ctx)
	if err != nil {
		return false, applied(doing, err)
	}
	defer func() { _ = stream.Close() }()
	for d := json.NewDecoder(stream); ; {
		var e struct {
			Type   string
			Object struct {
				Message string
				Spec    json.RawMessage
			}
		}
		if err := d.Decode(&e); err != nil {
			return heard, refused(doing, err)
		}
		switch e.Type {
		case "ADDED", "MODIFIED":
			heard = true
			tell(e.Object.Spec, nil)
		case "ERROR":
			return heard, refused(doing, fmt.Errorf("the API server ends it: %s", e.Object.Message))
		}
	}
}
