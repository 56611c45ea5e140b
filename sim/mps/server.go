// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package mps

import (
	"context"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sim/wire"
)

// serve is the server process: it holds a context on each of its GPUs, tells the control daemon that it is there,
// and ends when that closes the connection.
func (w World) serve(ctx context.Context) error {
	all, err := devices(w.Dev)
	if err != nil {
		return err
	}
	defer func() {
		for _, d := range all {
			d.close()
		}
	}()
	list, set := w.lookup("CUDA_VISIBLE_DEVICES")
	mine := visible(all, list, set)
	if len(mine) == 0 {
		return fmt.Errorf("no GPU is visible: %w", sharing.ErrNotFound)
	}
	hello := []string{"server"}
	for _, d := range mine {
		if _, err := d.ask(wire.OpMPSServe); err != nil {
			return err
		}
		if _, err := d.ask(wire.OpCtxCreate); err != nil {
			return err
		}
		hello = append(hello, d.uuid)
	}
	for _, d := range all { // it has no hold on the others
		if !slices.ContainsFunc(mine, func(m device) bool { return m.uuid == d.uuid }) {
			d.close()
		}
	}
	for _, d := range mine {
		if err := d.conn.SetDeadline(time.Time{}); err != nil {
			return fmt.Errorf("wait for the driver: %w", err)
		}
	}
	conn, err := dial(ctx, w.pipe())
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() }) // ends the wait below
	defer stop()
	defer conn.Close()
	if _, err := fmt.Fprintln(conn, strings.Join(hello, " ")); err != nil {
		return fmt.Errorf("report to the control daemon: %w", err)
	}
	var wg sync.WaitGroup
	for _, d := range mine { // without the driver there is nothing to serve
		wg.Go(func() {
			_, _ = d.conn.Read(make([]byte, 1)) // it says nothing more: until its end
			_ = conn.Close()
		})
	}
	_, _ = io.Copy(io.Discard, conn) // until its end, whichever way that comes
	for _, d := range mine {
		d.close()
	}
	wg.Wait()
	return nil
}

// dial connects to a control daemon.
func dial(ctx context.Context, pipe string) (net.Conn, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", pipe+"/control")
	if err != nil {
		return nil, fmt.Errorf("connect to the control daemon: %w", err)
	}
	return conn, nil
}
