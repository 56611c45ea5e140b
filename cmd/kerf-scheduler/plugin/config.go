// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"time"

	"k8s.io/klog/v2"

	"github.com/kerf-gpu/kerf/sharing/config"
)

// rereadEvery is how often the agents' configuration is looked at again: kubelet changes the file of a ConfigMap in place.
const rereadEvery = 10 * time.Second

// configure reads the agents' configuration, and takes it whole or not at all.
func (c *core) configure(args Args) error {
	if args.SharingConfig == "" {
		return nil
	}
	text, err := os.ReadFile(args.SharingConfig)
	if err != nil {
		return fmt.Errorf("read the sharing config: %w", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.rules != nil && bytes.Equal(text, c.rules) {
		return nil
	}
	doc, err := config.Decode(text)
	if err != nil {
		return fmt.Errorf("sharing config %q: %w", args.SharingConfig, err)
	}
	c.rules = text
	c.books.Configure(doc)
	return nil
}

// reread follows the file until ctx ends. One with mistakes is told once, and changes nothing.
func (c *core) reread(ctx context.Context, args Args, every time.Duration) {
	t := time.NewTicker(every)
	defer t.Stop()
	said := ""
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		err := c.configure(args)
		if err != nil && err.Error() != said {
			klog.FromContext(ctx).Error(err, "The sharing config is not taken; what was read before stays in force")
		}
		said = ""
		if err != nil {
			said = err.Error()
		}
	}
}
