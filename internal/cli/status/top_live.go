// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package status

import (
	"context"
	"errors"
	"fmt"
	"sync"

	telemetryv1 "github.com/kerf-gpu/kerf/api/telemetry/v1"
	"github.com/kerf-gpu/kerf/internal/cli/command"
	"github.com/kerf-gpu/kerf/internal/nodeclient"
	"github.com/kerf-gpu/kerf/internal/present"
)

// liveTop draws samples in place, and has the keys change what is shown. The screen and the keyboard are given back on
// every way out.
func liveTop(ctx context.Context, a *command.App, o *topOptions, in *telemetryv1.WatchRequest) (err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	d := &drawing{app: a, view: o.view()}
	board, err := openKeyboard(a.In)
	if err != nil {
		return err
	}
	_, _ = fmt.Fprint(a.Out, command.EnterScreen)
	defer func() { _, _ = fmt.Fprint(a.Out, command.LeaveScreen) }()
	if board != nil {
		d.view.Keys = true
		defer func() { err = errors.Join(err, board.close()) }()
		board.follow(func(key string) {
			if end := d.press(key); end != nil {
				cancel(end)
			}
		})
	}
	err = nodeclient.Telemetry(ctx, a.Dir, in, d.see)
	if cause := context.Cause(ctx); cause != nil {
		return cause // a key, or a signal
	}
	return err
}

// drawing is what is on the screen. Samples and keys change it.
type drawing struct {
	app  *command.App
	mu   sync.Mutex
	view present.TopView
	last *telemetryv1.Sample
}

// see draws a sample.
func (d *drawing) see(s *telemetryv1.Sample) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.last = s
	return d.app.Draw([]byte(present.Top(s, d.view)))
}

// press draws the last sample as a key wants it. The error ends the watch: errEnough, or why it cannot be drawn.
func (d *drawing) press(key string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	next, quit := d.view.Key(key)
	if quit {
		return errEnough
	}
	if next == d.view || d.last == nil {
		d.view = next
		return nil
	}
	d.view = next
	return d.app.Draw([]byte(present.Top(d.last, d.view)))
}
