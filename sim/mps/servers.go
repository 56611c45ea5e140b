// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package mps

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
)

// server is a server process, from its start to its end. controller.mu guards it.
type server struct {
	pid     int
	uid     uint32
	uuids   []string // nil: it is not ready
	conn    *net.UnixConn
	limits  limits
	percent float64
	clients map[*net.UnixConn]int // their pids
	leaving bool                  // takes no more clients
	over    bool                  // the process has ended
}

// end tells the process to end, whether clients are there or not.
func (s *server) end() {
	s.leaving = true
	if s.conn != nil {
		_ = s.conn.Close() // that is the word
	}
}

// attach finds a server for a client of this user, waits for one of another user's, or starts one. It returns nil
// when there can be none.
func (c *controller) attach(ctx context.Context, conn *net.UnixConn, pid int, uid uint32) *server {
	var mine *server // the one whose start was waited for
	for {
		c.mu.Lock()
		s := c.server
		failed := mine != nil && mine.over && mine.uuids == nil
		switch {
		case c.stopping || failed:
			c.mu.Unlock()
			return nil
		case s == nil:
			if mine = c.start(uid); mine.over {
				c.mu.Unlock()
				return nil
			}
		case s.uuids == nil && s.uid == uid:
			mine = s
		case s.uuids != nil && s.uid == uid && !s.leaving:
			if conn != nil {
				s.clients[conn] = pid
			}
			c.notify()
			c.mu.Unlock()
			return s
		case s.uuids != nil && len(s.clients) == 0:
			s.end()
		}
		changed := c.changed
		c.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return nil
		}
	}
}

// start starts a server's process. c.mu is held. One that cannot be started is over already.
func (c *controller) start(uid uint32) *server {
	s := &server{uid: uid, limits: slices.Clone(c.defaults), percent: c.percent, clients: map[*net.UnixConn]int{}}
	cmd := exec.Command(filepath.Join(filepath.Dir(c.w.Program), ServerName)) //nolint:noctx // it ends with its connection
	cmd.Env = c.w.Env
	cmd.SysProcAttr = &syscall.SysProcAttr{}
	if os.Geteuid() == 0 && uid != 0 {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uid, Gid: uid}
	}
	if err := cmd.Start(); err != nil {
		c.say("Failed to start server: %v", err)
		s.over = true
		return s
	}
	s.pid = cmd.Process.Pid
	c.server = s
	c.say("Starting new server %d for user %d", s.pid, uid)
	c.wg.Go(func() {
		err := cmd.Wait()
		c.say("Server %d exited: %v", s.pid, err)
		c.mu.Lock()
		defer c.mu.Unlock()
		s.over = true
		if c.server == s {
			c.server = nil
		}
		c.notify()
	})
	return s
}

// ready notes that a server's process serves, and keeps its connection until that ends.
func (c *controller) ready(conn *net.UnixConn, pid int, uuids []string) {
	c.mu.Lock()
	s := c.server
	if s == nil || s.pid != pid || len(uuids) == 0 {
		c.mu.Unlock()
		return
	}
	s.conn, s.uuids = conn, uuids
	if c.stopping || s.leaving {
		s.end()
	}
	c.notify()
	c.mu.Unlock()
	c.say("NEW SERVER %d: Ready", pid)
	_, _ = conn.Read(make([]byte, 1)) // it says no more: until its end
}

// find returns the server of that pid, or nil. c.mu is held.
func (c *controller) find(pid int) *server {
	if c.server != nil && c.server.pid == pid {
		return c.server
	}
	return nil
}
