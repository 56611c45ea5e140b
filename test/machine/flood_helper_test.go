// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package machine_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	rpcstatus "google.golang.org/grpc/status"

	nodeapi "github.com/kerf-gpu/kerf/api/node/v1alpha1"
)

// helperFlood, before a kind of flood, an address (tcp:HOST:PORT or unix:PATH) and a number, makes the helper a hostile
// peer. It prints a line when the flood is complete, and keeps it up until its standard input ends.
const helperFlood = "flood"

// http2Preface is what a client of gRPC says first, with empty settings.
const http2Preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00"

// flood is one hostile peer.
type flood struct {
	network, address string
	n                int
	// opened are the connections that were opened, rejected those that failed.
	opened, rejected atomic.Int64
}

func runFlood(kind, where, number string) error {
	network, address, _ := strings.Cut(where, ":")
	n, err := strconv.Atoi(number)
	if err != nil {
		return err
	}
	f := &flood{network: network, address: address, n: n}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	switch kind {
	case "silent":
		f.connect("", true)
	case "asked":
		f.connect("GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n", true)
	case "preface":
		f.connect(http2Preface, true)
	case "slow":
		f.connect("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", false)
	case "streams":
		err = f.streams(ctx)
	case "names":
		err = f.names(ctx)
	default:
		err = fmt.Errorf("no flood %q", kind)
	}
	if err != nil {
		return err
	}
	fmt.Println("opened", f.opened.Load(), "rejected", f.rejected.Load())
	_, _ = io.Copy(io.Discard, os.Stdin)
	return nil
}

// connect opens all connections, each of which says something once. read takes what comes, until the server closes it;
// else nothing is ever read.
func (f *flood) connect(say string, read bool) {
	work := make(chan int)
	var workers sync.WaitGroup
	for range 64 {
		workers.Go(func() {
			for i := range work {
				f.one(i, say, read)
			}
		})
	}
	for i := range f.n {
		work <- i
	}
	close(work)
	workers.Wait()
}

func (f *flood) one(i int, say string, read bool) {
	d := net.Dialer{}
	if f.network == "tcp" { // one address has too few ports for all
		d.LocalAddr = &net.TCPAddr{IP: net.IPv4(127, 0, 1, byte(1+i%100))}
	}
	c, err := d.Dial(f.network, f.address)
	for errors.Is(err, unix.EAGAIN) { // a full queue of a Unix socket: the kernel does not wait
		time.Sleep(time.Millisecond)
		c, err = d.Dial(f.network, f.address)
	}
	if err != nil {
		f.rejected.Add(1)
		return
	}
	if tcp, ok := c.(*net.TCPConn); ok && !read {
		_ = tcp.SetReadBuffer(1 << 10)
	}
	if _, err := io.WriteString(c, say); err != nil {
		f.rejected.Add(1)
		_ = c.Close()
		return
	}
	f.opened.Add(1)
	if !read {
		floodConns.Store(i, c)
		return
	}
	go func() {
		_, _ = io.Copy(io.Discard, c)
		_ = c.Close()
	}()
}

// floodConns keeps connections from being closed by the garbage collector.
var floodConns sync.Map

func (f *flood) client() (nodeapi.NodeClient, error) {
	c, err := grpc.NewClient(f.network+"://"+f.address, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithAuthority("localhost"))
	if err != nil {
		return nil, err
	}
	return nodeapi.NewNodeClient(c), nil
}

// streams opens watches of the node, 30 on each connection. Every other one never reads.
func (f *flood) streams(ctx context.Context) error {
	var all sync.WaitGroup
	for first := 0; first < f.n; first += 30 {
		c, err := f.client()
		if err != nil {
			return err
		}
		for i := first; i < min(f.n, first+30); i++ {
			all.Add(1)
			go f.stream(ctx, c, i%2 == 0, sync.OnceFunc(all.Done))
		}
	}
	all.Wait()
	return nil
}

// stream opens one watch, and calls known when it is known what became of it.
func (f *flood) stream(ctx context.Context, c nodeapi.NodeClient, read bool, known func()) {
	defer known()
	s, err := c.Watch(ctx, &nodeapi.WatchRequest{IntervalMs: 100})
	if err == nil {
		_, err = s.Recv()
	}
	if err != nil {
		f.rejected.Add(1)
		return
	}
	f.opened.Add(1)
	known()
	for read && err == nil {
		_, err = s.Recv()
	}
	<-ctx.Done()
}

// names grants under as many distinct names, and releases what it gets.
func (f *flood) names(ctx context.Context) error {
	var next atomic.Int64
	failed := make(chan error, 8)
	for range cap(failed) {
		c, err := f.client()
		if err != nil {
			return err
		}
		go func() {
			for {
				i := next.Add(1)
				if i > int64(f.n) {
					failed <- nil
					return
				}
				if err := f.name(ctx, c, i); err != nil {
					failed <- err
					return
				}
			}
		}()
	}
	var errs []error
	for range cap(failed) {
		errs = append(errs, <-failed)
	}
	return errors.Join(errs...)
}

func (f *flood) name(ctx context.Context, c nodeapi.NodeClient, i int64) error {
	r, err := c.Reserve(ctx, &nodeapi.ReserveRequest{Name: fmt.Sprintf("name-%d", i), MemoryBytes: 1 << 30})
	switch rpcstatus.Code(err) {
	case codes.OK:
		f.opened.Add(1)
		_, err = c.Release(ctx, &nodeapi.ReleaseRequest{Id: r.GetGrant().GetId()})
		return err
	case codes.Unavailable, codes.AlreadyExists: // too many calls; this process has a grant already
		f.rejected.Add(1)
		return nil
	default:
		return fmt.Errorf("grant %d: %w", i, err)
	}
}
