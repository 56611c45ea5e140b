// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package mps

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kerf-gpu/kerf/sharing"
)

// command carries one command out and returns its answer.
func (c *controller) command(ctx context.Context, words []string) (string, error) {
	if len(words) == 0 {
		return "", nil
	}
	args := words[1:]
	switch words[0] {
	case "quit":
		return "", c.quit(ctx, args)
	case "start_server":
		return "", c.startServer(ctx, args)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch words[0] {
	case "get_server_list":
		if c.server == nil {
			return "", nil
		}
		return lines(c.server.pid), nil
	case "set_default_active_thread_percentage", "get_default_active_thread_percentage":
		return share(&c.percent, args, words[0][0] == 's')
	case "set_default_device_pinned_mem_limit", "get_default_device_pinned_mem_limit":
		return limitOf(&c.defaults, args, words[0][0] == 's')
	case "ps":
		return c.ps(), nil
	}
	return c.ofServer(words[0], args)
}

// ofServer carries out a command whose first argument is a server's pid.
func (c *controller) ofServer(name string, args []string) (string, error) {
	known := []string{
		"get_server_status", "get_client_list", "shutdown_server", "set_active_thread_percentage",
		"get_active_thread_percentage",
		"set_device_pinned_mem_limit", "get_device_pinned_mem_limit",
	}
	if !slices.Contains(known, name) {
		return "", fmt.Errorf("Unknown command: %s: %w", name, sharing.ErrInvalid) //nolint:staticcheck // shown to people as the real one's
	}
	if len(args) == 0 {
		return "", fmt.Errorf("%s needs a server's PID: %w", name, sharing.ErrInvalid)
	}
	pid, _ := strconv.Atoi(args[0])
	s := c.find(pid)
	if s == nil {
		return "", fmt.Errorf("Server %s is not found: %w", args[0], sharing.ErrNotFound) //nolint:staticcheck // the same
	}
	args = args[1:]
	switch name {
	case "get_server_status":
		if s.uuids == nil {
			return "INITIALIZING\n", nil
		}
		if faulted(c.w.Dev, s.pid) {
			return "FAULT\n", nil
		}
		return "ACTIVE\n", nil
	case "get_client_list":
		return lines(slices.Sorted(maps.Values(s.clients))...), nil
	case "shutdown_server":
		s.leaving = true
		if len(s.clients) == 0 || slices.Contains(args, "-f") {
			s.end()
		}
		return "", nil
	case "set_active_thread_percentage", "get_active_thread_percentage":
		return share(&s.percent, args, name[0] == 's')
	default:
		return limitOf(&s.limits, args, name[0] == 's')
	}
}

// share reads or sets a percentage; both answer with it.
func share(p *float64, args []string, set bool) (string, error) {
	if set {
		if len(args) != 1 {
			return "", fmt.Errorf("needs a percentage: %w", sharing.ErrInvalid)
		}
		v, err := percentage(args[0])
		if err != nil {
			return "", err
		}
		*p = v
	}
	return showPercentage(*p) + "\n", nil
}

// limitOf reads or sets a limit; only reading answers.
func limitOf(l *limits, args []string, set bool) (string, error) {
	if set && len(args) == 2 {
		next, err := l.set(args[0], args[1])
		if err == nil {
			*l = next
		}
		return "", err
	}
	if set || len(args) != 1 {
		return "", fmt.Errorf("needs a device, and to set a limit its value: %w", sharing.ErrInvalid)
	}
	return l.get(args[0]) + "\n", nil
}

// ps lists the clients, in the columns that the hardware kit recorded of driver 580. c.mu is held.
func (c *controller) ps() string {
	const columns = "%-9v %-9v %-14v %-25.22v %-14v %-15v\n"
	var b strings.Builder
	fmt.Fprintf(&b, columns, "PID", "ID", "SERVER", "DEVICE", "NAMESPACE", "COMMAND")
	if c.server == nil || c.server.uuids == nil {
		return b.String()
	}
	for i, pid := range slices.Sorted(maps.Values(c.server.clients)) {
		program, _ := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid)) // both are empty if the process is gone
		space, _ := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", pid))
		fmt.Fprintf(&b, columns, pid, i+1, c.server.pid, c.server.uuids[0], strings.Trim(space, "pid:[]"), program)
	}
	return b.String()
}

// startServer starts a user's server and does not wait until it is ready. If it ends at once, the answer does not say
// so.
func (c *controller) startServer(ctx context.Context, args []string) error {
	if len(args) != 2 || args[0] != "-uid" {
		return fmt.Errorf("needs -uid and a user id: %w", sharing.ErrInvalid)
	}
	uid, err := strconv.ParseUint(args[1], 10, 32)
	if err != nil {
		return fmt.Errorf("invalid user id %q: %w", args[1], sharing.ErrInvalid)
	}
	user := uint32(uid) // #nosec G115 -- 32 bits
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.server == nil && !c.stopping {
		c.start(user)
		return nil
	}
	c.wg.Go(func() { c.attach(ctx, nil, 0, user) })
	return nil
}

// quit lets no more clients in, waits for those that there are, with -t SECONDS no longer than that, and ends the
// server and the daemon.
func (c *controller) quit(ctx context.Context, args []string) error {
	wait := time.Duration(1<<62 - 1)
	if len(args) == 2 && args[0] == "-t" {
		n, err := strconv.ParseUint(args[1], 10, 16)
		if err != nil {
			return fmt.Errorf("invalid timeout %q: %w", args[1], sharing.ErrInvalid)
		}
		wait = time.Duration(n) * time.Second // #nosec G115 -- 16 bits
	} else if len(args) > 0 {
		return fmt.Errorf("quit takes -t and seconds: %w", sharing.ErrInvalid)
	}
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	c.mu.Lock()
	c.stopping = true
	c.notify()
	for c.server != nil && len(c.server.clients) > 0 && ctx.Err() == nil {
		changed := c.changed
		c.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
		}
		c.mu.Lock()
	}
	if c.server != nil {
		c.server.end()
	}
	c.mu.Unlock()
	return nil
}

func lines(numbers ...int) string {
	var b strings.Builder
	for _, n := range numbers {
		fmt.Fprintln(&b, n)
	}
	return b.String()
}
