// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/klog/v2"

	"github.com/kerf-gpu/kerf/sharing/config"
)

// rereadEvery is how often the agents' configuration is looked at again: kubelet changes the file of a ConfigMap in place.
const rereadEvery = 10 * time.Second

// configure reads the agents' configuration, and takes it whole or not at all.
func (c *core) configure(ctx context.Context, args Args) error {
	if args.SharingConfig == "" {
		return nil
	}
	files, err := readFiles(args.SharingConfig)
	if err != nil {
		return fmt.Errorf("read the sharing config: %w", err)
	}
	text := []byte(config.Hash(files))
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.rules != nil && bytes.Equal(text, c.rules) {
		return nil
	}
	doc, err := config.DecodeFiles(files...)
	if err != nil {
		return fmt.Errorf("sharing config %q: %w", args.SharingConfig, err)
	}
	c.rules = text
	c.books.Configure(doc)
	c.shown.inForce(string(text))
	klog.FromContext(ctx).Info("The sharing config is in force", "sha256", string(text))
	return nil
}

// readFiles reads a document from a file, or from all files of a folder.
func readFiles(path string) ([]config.File, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	names := []string{path}
	if info.IsDir() {
		entries, err := os.ReadDir(path)
		if err != nil {
			return nil, err
		}
		names = nil
		for _, e := range entries {
			if config.IsFile(e.Name()) && !strings.HasPrefix(e.Name(), ".") {
				names = append(names, filepath.Join(path, e.Name()))
			}
		}
	}
	var files []config.File
	for _, name := range names {
		data, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		files = append(files, config.File{Name: filepath.Base(name), Data: data})
	}
	return files, nil
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
		err := c.configure(ctx, args)
		if err != nil && err.Error() != said {
			c.shown.refused()
			klog.FromContext(ctx).Error(err, "The sharing config is not taken; what was read before stays in force")
		}
		said = ""
		if err != nil {
			said = err.Error()
		}
	}
}
