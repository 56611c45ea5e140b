// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package access

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/url"
	"time"

	"github.com/kerf-gpu/kerf/internal/sleep"
	"github.com/kerf-gpu/kerf/sharing"
)

const (
	// watchSeconds is how long the API server keeps one watch.
	watchSeconds = 300
	// firstRetry and lastRetry bound the pause after an error.
	firstRetry, lastRetry = time.Second, 30 * time.Second
)

// errExpired means that the watch must begin with a new list.
var errExpired = errors.New("the watch expired")

// Follower hears of the objects of a path. Its functions are called one at a time.
type Follower struct {
	// Changed gets each object of a list, and then each that was added or changed; gone is true if it was removed.
	// Lists are made at the start and after the watch was interrupted for long. No list is in memory as a whole.
	Changed func(raw json.RawMessage, gone bool) error
	// Begun is called before a list, and Listed after its last object. A list that fails is begun again.
	Begun  func()
	Listed func() error
	// Failed hears of each error before the next attempt. It ends Watch by an error. It gets nil after a list.
	Failed func(error) error
}

// Watch lists the objects of a path and watches them until ctx ends or a function of f fails. Its error is nil in the
// first case.
func (c *Client) Watch(ctx context.Context, path string, query url.Values, f Follower) error {
	version, pause := "", firstRetry
	for ctx.Err() == nil {
		err := c.follow(ctx, path, query, f, &version)
		switch {
		case ctx.Err() != nil:
			return nil //nolint:nilerr // that is how it ends
		case errors.Is(err, errExpired):
			version = ""
			continue
		case err == nil:
			pause = firstRetry
			continue
		}
		if err := f.Failed(err); err != nil {
			return err
		}
		if !sleep.For(ctx, pause) {
			return nil
		}
		pause = min(2*pause, lastRetry)
	}
	return nil
}

// follow lists the objects if no version is known, and watches once.
func (c *Client) follow(ctx context.Context, path string, query url.Values, f Follower, version *string) error {
	if *version == "" {
		f.Begun()
		at, err := c.list(ctx, path, query, func(raw json.RawMessage) error { return f.Changed(raw, false) })
		if err != nil {
			return err
		}
		if err := errors.Join(f.Listed(), f.Failed(nil)); err != nil {
			return err
		}
		*version = at
	}
	asked := url.Values{"watch": {"1"}, "resourceVersion": {*version}, "allowWatchBookmarks": {"true"},
		"timeoutSeconds": {fmt.Sprint(watchSeconds)}}
	maps.Copy(asked, query)
	ctx, cancel := context.WithTimeout(ctx, (watchSeconds+30)*time.Second)
	defer cancel()
	stream, err := c.Stream(ctx, path, asked)
	if err != nil {
		*version = ""
		return fmt.Errorf("watch %s: %w", last(path), err)
	}
	defer func() { _ = stream.Close() }()
	return read(json.NewDecoder(stream), f, version)
}

// read reads the events of one watch.
func read(d *json.Decoder, f Follower, version *string) error {
	for {
		var event struct {
			Type   string
			Object json.RawMessage
		}
		if err := d.Decode(&event); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return fmt.Errorf("read a watch: %w (%w)", err, sharing.ErrUnavailable)
		}
		var object struct {
			Metadata struct{ ResourceVersion string }
		}
		if err := json.Unmarshal(event.Object, &object); err != nil || event.Type == "ERROR" {
			return errExpired
		}
		if event.Type != "BOOKMARK" {
			if err := f.Changed(event.Object, event.Type == "DELETED"); err != nil {
				return err
			}
		}
		*version = object.Metadata.ResourceVersion
	}
}
