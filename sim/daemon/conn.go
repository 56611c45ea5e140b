// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/kerf-gpu/kerf/sim/model"
	"github.com/kerf-gpu/kerf/sim/wire"
)

// device is one connection to nvidiactl or to a GPU.
type device struct {
	d      *Daemon
	peer   *peer
	minor  int            // ctl: nvidiactl
	client model.ClientID // On a GPU.
	cursor model.Cursor   // On nvidiactl: where the next wait for an event starts.
}

// serveDevice answers one packet after the other until either end closes. The client's end closes with its last
// descriptor, which another process may have.
func (d *Daemon) serveDevice(ctx context.Context, conn *net.UnixConn, minor int) {
	p, err := identify(conn)
	if err != nil {
		d.log.Warn("connection refused", "minor", minor, "error", err)
		_ = conn.Close()
		return
	}
	c := &device{d: d, peer: p, minor: minor}
	if err := d.attach(c); err != nil {
		d.log.Error("connection refused", "minor", minor, "pid", p.pid, "error", err)
		p.close()
		return
	}
	all := ctx
	ctx, cancel := context.WithCancel(ctx)
	packets := make(chan []byte)
	var wg sync.WaitGroup
	wg.Go(func() { // The first end is the end of all.
		<-ctx.Done()
		wait(all, d.leave(c))
		d.detach(c) // Before the close, of which reap does not learn.
		p.close()
	})
	wg.Go(func() {
		defer cancel()
		c.read(ctx, packets)
	})
	c.answer(ctx, packets)
	// The memory is given back, or about to be, before anything is waited for.
	d.leave(c)
	cancel()
	wg.Wait()
}

// attach makes a connection a holder of its GPU.
func (d *Daemon) attach(c *device) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if c.minor == ctl {
		c.cursor = d.model.Now()
		return nil
	}
	id, err := d.model.Open(c.minor, c.peer.pid)
	if err != nil {
		return err
	}
	if err := d.ends.watch(id, c.peer); err != nil {
		d.model.Close(id, now())
		return err
	}
	c.client = id
	d.holders[id] = c.peer
	return nil
}

// leave is Model.Leave.
func (d *Daemon) leave(c *device) time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.model.Leave(c.client, now())
}

// wait returns at a moment, or when ctx ends.
func wait(ctx context.Context, until time.Duration) {
	left := until - now()
	if left <= 0 {
		return
	}
	timer := time.NewTimer(left)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

func (d *Daemon) detach(c *device) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.model.Close(c.client, now())
	delete(d.holders, c.client)
}

// read hands packets on until the connection ends. It looks for that end also while an answer is awaited.
func (c *device) read(ctx context.Context, packets chan<- []byte) {
	buf := make([]byte, wire.MaxRequest+1) // one more, so that a truncated packet is too long
	for {
		n, err := c.peer.conn.Read(buf)
		if err != nil {
			return
		}
		select {
		case packets <- append([]byte(nil), buf[:n]...):
		case <-ctx.Done():
			return
		}
	}
}

// answer serves until ctx ends or an answer cannot be sent.
func (c *device) answer(ctx context.Context, packets <-chan []byte) {
	for {
		select {
		case <-ctx.Done():
			return
		case p := <-packets:
			start := now()
			resp, op := c.handle(ctx, p)
			if c.minor != ctl && c.d.delay(ctx, c.minor, op, start) != nil {
				return
			}
			if op == wire.OpCtxCreate && resp.Status == wire.OK {
				wait(ctx, c.d.answered(c.minor, op, start))
			}
			if ctx.Err() != nil { // a canceled wait has no answer
				return
			}
			out, err := resp.Encode()
			if err != nil {
				c.d.log.Error("answer dropped", "minor", c.minor, "error", err)
				return
			}
			if _, err := c.peer.conn.Write(out); err != nil {
				return // the process does not want it any more
			}
		}
	}
}

// handle turns a packet into an answer, and says what it asked for.
func (c *device) handle(ctx context.Context, packet []byte) (wire.Response, wire.Op) {
	req, err := wire.DecodeRequest(packet)
	switch {
	case errors.Is(err, wire.ErrVersion):
		return wire.Response{Status: wire.BadVersion}, 0
	case err != nil:
		return wire.Response{Status: wire.Invalid}, 0
	}
	var resp wire.Response
	if c.minor == ctl {
		resp, err = c.system(ctx, req)
	} else {
		if req.Op == wire.OpProcesses { // the list that it gets is that of the end of its wait
			wait(ctx, c.d.answered(c.minor, req.Op, now()))
		}
		resp, err = c.gpu(req)
	}
	if err == nil {
		return resp, req.Op
	}
	var status wire.Status
	if !errors.As(err, &status) {
		if c.peer.gone() {
			return wire.Response{Status: wire.UnknownError}, req.Op // it died in between, and no process reads this
		}
		c.d.log.Warn("request went wrong", "minor", c.minor, "pid", c.peer.pid, "op", uint32(req.Op), "error", err)
		status = wire.UnknownError
	}
	return wire.Response{Status: status}, req.Op
}
