// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package mps

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sim/control"
)

const (
	publicFile = 0o644
	openToAll  = 0o666 // as the real one's: clients are of any user
	mpsFailed  = 805   // CUDA_ERROR_MPS_CONNECTION_FAILED
)

// controller is the control daemon.
type controller struct {
	w    World
	log  io.Writer
	wg   sync.WaitGroup // connections and servers
	stop context.CancelFunc

	mu       sync.Mutex
	defaults limits
	percent  float64
	server   *server // nil: none
	stopping bool
	changed  chan struct{} // closed and replaced when any of it, or a server's clients, changed
}

// control is the daemon: it runs until quit or ctx's end.
func (w World) control(ctx context.Context) (err error) {
	pipe := w.pipe()
	// #nosec G301 -- clients of any user look into it
	if err := os.Mkdir(pipe, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return fmt.Errorf("make the pipe directory: %w", err)
	}
	lock, err := os.OpenFile(filepath.Join(pipe, "control_lock"), os.O_CREATE|os.O_RDWR, publicFile)
	if err != nil {
		return fmt.Errorf("lock the pipe directory: %w", err)
	}
	defer lock.Close()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil { // #nosec G115 -- a descriptor
		return fmt.Errorf("An instance of this daemon is already running: %w", sharing.ErrConflict) //nolint:staticcheck // the real one's text
	}
	log, err := w.openLog("control.log")
	if err != nil {
		return err
	}
	defer log.Close()
	socket, pidFile := filepath.Join(pipe, "control"), filepath.Join(pipe, ControlName+".pid")
	if err := os.Remove(socket); err != nil && !errors.Is(err, os.ErrNotExist) { // a killed daemon's
		return fmt.Errorf("bind: %w", err)
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		return fmt.Errorf("bind: %w", err)
	}
	// #nosec G306 -- as the real one's
	if err := errors.Join(os.Chmod(socket, openToAll), os.WriteFile(pidFile, []byte(strconv.Itoa(os.Getpid())+"\n"),
		publicFile)); err != nil {
		return errors.Join(fmt.Errorf("bind: %w", err), l.Close())
	}
	c := &controller{w: w, log: log, percent: 100, changed: make(chan struct{})}
	if text, ok := w.lookup("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"); ok {
		if p, err := percentage(text); err == nil {
			c.percent = p
		}
	}
	c.say("Starting control daemon using socket %s", socket)
	c.say("To connect CUDA applications to this daemon, set env CUDA_MPS_PIPE_DIRECTORY=%s", pipe)
	c.run(ctx, l)
	return os.Remove(pidFile)
}

// run accepts until it receives the stop command, and ends all that it has started.
func (c *controller) run(ctx context.Context, l *net.UnixListener) {
	ctx, c.stop = context.WithCancel(ctx)
	defer c.stop()
	stop := context.AfterFunc(ctx, func() { _ = l.Close() }) // ends the loop
	defer stop()
	for {
		conn, err := l.AcceptUnix()
		if err != nil {
			break
		}
		c.wg.Go(func() { c.answer(ctx, conn) })
	}
	c.mu.Lock()
	c.stopping = true
	if c.server != nil {
		c.server.end()
	}
	c.notify()
	c.mu.Unlock()
	c.stop()
	c.wg.Wait()
	c.say("Exiting")
}

// answer serves one connection: a client, a server, or a command.
func (c *controller) answer(ctx context.Context, conn *net.UnixConn) {
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() }) // ends what waits on it
	defer stop()
	cred, err := control.PeerCred(conn)
	if err != nil {
		return
	}
	in := bufio.NewReader(io.LimitReader(conn, 64<<10))
	line, err := in.ReadString('\n')
	if err != nil {
		return
	}
	word, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
	switch word {
	case "client":
		c.client(ctx, conn, int(cred.Pid), cred.Uid)
	case "server":
		c.ready(conn, int(cred.Pid), strings.Fields(rest))
	case "command":
		c.say("Command %s", rest)
		text, err := c.command(ctx, strings.Fields(rest))
		if err != nil {
			text = err.Error() + "\n"
		}
		_, _ = io.WriteString(conn, text) // who asked may be gone
		if c.ended() {
			c.stop()
		}
	}
}

// client gives a process a server and counts it until it leaves.
func (c *controller) client(ctx context.Context, conn *net.UnixConn, pid int, uid uint32) {
	c.say("NEW CLIENT %d from user %d", pid, uid)
	s := c.attach(ctx, conn, pid, uid)
	if s == nil {
		_, _ = fmt.Fprintf(conn, "fail %d\nend\n", mpsFailed) // who asked may be gone
		return
	}
	_, _ = io.WriteString(conn, c.terms(s))
	_, _ = io.Copy(io.Discard, conn) // until it leaves
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(s.clients, conn)
	if s.leaving && len(s.clients) == 0 {
		s.end()
	}
	c.notify()
}

// terms is what a new client learns about its server.
func (c *controller) terms(s *server) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var b strings.Builder
	fmt.Fprintf(&b, "server %d %d\n", s.pid, max(1, int(s.percent)))
	for i, uuid := range s.uuids {
		fmt.Fprintf(&b, "%s %d\n", uuid, uint64(s.limits.of(i, uuid)))
	}
	return b.String() + "end\n"
}

// notify wakes all who wait for a change. c.mu is held.
func (c *controller) notify() {
	close(c.changed)
	c.changed = make(chan struct{})
}

func (c *controller) ended() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stopping
}

// say writes a line to the log, in the real one's form.
func (c *controller) say(format string, args ...any) {
	stamp := time.Now().Format("2006-01-02 15:04:05.000")
	// a full disk stops no daemon
	_, _ = fmt.Fprintf(c.log, "[%s Control %5d] %s\n", stamp, os.Getpid(), fmt.Sprintf(format, args...))
}

func (w World) openLog(name string) (*os.File, error) {
	if err := os.MkdirAll(w.logs(), 0o755); err != nil { // #nosec G301 -- as the real one's
		return nil, fmt.Errorf("open the log: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(w.logs(), name), os.O_CREATE|os.O_WRONLY|os.O_APPEND, publicFile)
	if err != nil {
		return nil, fmt.Errorf("open the log: %w", err)
	}
	return f, nil
}
