// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package startcheck

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/kerf-gpu/kerf/sharing"
)

const (
	// again is how long after a start the limits are read back once more.
	again = 250 * time.Millisecond
	// deadline bounds one reading back, and one setting again.
	deadline = 20 * time.Second
)

// Node is what a Checker needs of the node's runtime.
type Node interface {
	// ReadLimits reads the limits of the container's cgroup. It is sharing.ErrNotFound if the container has no active
	// grant, and nothing if the driver limits no memory.
	ReadLimits(ctx context.Context, containerID string) ([]Limit, error)
	// RestoreLimits sets the limits again. From then on the level of the grant is unknown, for the reason why.
	RestoreLimits(ctx context.Context, containerID, why string) error
}

// Checker checks the containers of one node as they start. Run must be called for the second reading.
type Checker struct {
	node Node
	log  *slog.Logger
	// kick tells Run that waiting is no longer empty.
	kick chan struct{}

	mu sync.Mutex
	// waiting are the containers to check again, in the order of their starts.
	waiting []start
}

// start is a container that is to be checked again.
type start struct {
	id string
	at time.Time
}

// New returns a Checker.
func New(node Node, log *slog.Logger) *Checker {
	return &Checker{node: node, log: log, kick: make(chan struct{}, 1)}
}

// Starting reads the limits back before the container's program runs. The container may start only if it returns nil;
// then it is checked once more. Errors are those of Verdict.Refuse, and sharing.ErrNotFound for a container whose
// grant no hook activated.
func (c *Checker) Starting(ctx context.Context, containerID string) error {
	limits, err := c.node.ReadLimits(ctx, containerID)
	if err != nil {
		return fmt.Errorf("read limits back: %w", err)
	}
	if err := Evaluate(limits).Refuse(); err != nil {
		return err
	}
	if len(limits) == 0 {
		return nil
	}
	c.Again(containerID)
	return nil
}

// Again has the limits of a container read back once more, 250 ms from now. It returns at once.
func (c *Checker) Again(containerID string) {
	c.mu.Lock()
	c.waiting = append(c.waiting, start{containerID, time.Now().Add(again)})
	c.mu.Unlock()
	select {
	case c.kick <- struct{}{}:
	default:
	}
}

// Run checks each container again until ctx ends. It returns when all that it began is done.
func (c *Checker) Run(ctx context.Context) error {
	for {
		next, ok := c.next()
		if !ok {
			select {
			case <-ctx.Done():
				return nil
			case <-c.kick:
			}
			continue
		}
		t := time.NewTimer(time.Until(next.at))
		select {
		case <-ctx.Done():
			t.Stop()
			return nil
		case <-t.C:
			c.check(ctx, next.id)
		}
	}
}

// next takes the container that is to be checked first.
func (c *Checker) next() (start, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.waiting) == 0 {
		return start{}, false
	}
	s := c.waiting[0]
	c.waiting = c.waiting[1:]
	return s, true
}

// check is the second reading. A limit that is too low, or cannot be read, affects no other grant: the periodic
// verification of all caps handles it.
func (c *Checker) check(ctx context.Context, id string) {
	ctx, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	limits, err := c.node.ReadLimits(ctx, id)
	switch {
	case errors.Is(err, sharing.ErrNotFound): // it has ended
		return
	case err != nil:
		c.log.Warn("failed to read limits back after a start", "container", id, "error", err.Error())
		return
	}
	v := Evaluate(limits)
	if len(v.Raised) == 0 {
		return
	}
	why := fmt.Sprintf("another program raised the driver's limit at the container's start (%s); "+
		"Kerf set it again, and memory taken meanwhile may not count against the cap", strings.Join(v.Raised, ", "))
	if err := c.node.RestoreLimits(ctx, id, why); err != nil {
		c.log.Error("failed to restore limits after a start", "container", id, "error", err.Error())
	}
}
