// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"

	"github.com/kerf-gpu/kerf/api/gpunode"
	"github.com/kerf-gpu/kerf/internal/atomicfile"
	"github.com/kerf-gpu/kerf/internal/kube"
	"github.com/kerf-gpu/kerf/sharing"
)

// CordonsFile has the cluster's last list of cordoned GPUs. An agent that starts while the API server is away uses it.
const CordonsFile = "cordons.json"

// cordons read the spec of the node's GPUNode, which an administrator writes. It says which GPUs take nothing new. The
// rest is handed on.
type cordons struct {
	log *slog.Logger
	// dir has the file.
	dir string
	// set and warn are the runtime's; rest takes the other fields of the spec.
	set  func(map[sharing.GPUID]string)
	rest func(gpunode.Spec)
	warn func(sentence string)
	last []byte
	// applied is the generation of the spec that was read last.
	applied atomic.Int64

	// mu guards who wants which GPUs closed: the cluster, and that another device plugin has them.
	mu              sync.Mutex
	cluster, shared map[sharing.GPUID]string
}

// restore sets what was said before this agent started. A file that cannot be read is said, and overwritten by the next
// word of the cluster.
func (c *cordons) restore() {
	text, err := os.ReadFile(filepath.Join(c.dir, CordonsFile))
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	if err == nil {
		err = c.take(text)
	}
	if err != nil {
		c.warn("which GPUs were cordoned cannot be read: " + err.Error())
	}
}

// tell takes the spec, or why there is none. An error changes nothing.
func (c *cordons) tell(s kube.Spec, err error) {
	spec := s.Text
	if err == nil {
		defer func() { c.applied.Store(s.Generation) }()
	}
	if err == nil && bytes.Equal(spec, c.last) && c.last != nil {
		return
	}
	if err == nil {
		err = c.take(spec)
	}
	if err == nil {
		err = atomicfile.Write(filepath.Join(c.dir, CordonsFile), orNull(spec), 0o600)
	}
	if err != nil {
		c.warn("cannot read cordoned GPUs, using the last known list: " + err.Error())
		return
	}
	c.warn("")
	c.last = orNull(spec)
}

func (c *cordons) take(text []byte) error {
	spec, err := gpunode.ReadSpec(text)
	if err != nil {
		return fmt.Errorf("%w (%w)", err, sharing.ErrInvalid)
	}
	why := map[sharing.GPUID]string{}
	for _, cordon := range spec.CordonedGPUs {
		why[sharing.GPUID(cordon.UUID)] = cordon.Text()
		c.log.Info("cordoned GPU", "gpu", cordon.UUID, "reason", cordon.Text())
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cluster = why
	c.close()
	c.rest(spec)
	return nil
}

// drainSentence says why the node grants nothing; empty if the driver is not drained.
func drainSentence(d *gpunode.DriverDrain) string {
	if d == nil {
		return ""
	}
	return "the NVIDIA driver is drained: " + d.Text()
}

// overlap takes the GPUs that another device plugin hands out, and why nothing new is granted on them.
func (c *cordons) overlap(why map[sharing.GPUID]string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if maps.Equal(why, c.shared) {
		return
	}
	for id, reason := range why {
		c.log.Warn("GPU stopped accepting grants", "gpu", string(id), "reason", reason)
	}
	c.shared = why
	c.close()
}

// close needs the lock.
func (c *cordons) close() {
	all := map[sharing.GPUID]string{}
	maps.Copy(all, c.cluster)
	maps.Copy(all, c.shared)
	c.set(all)
}

func orNull(spec []byte) []byte {
	if len(spec) == 0 {
		return []byte("null")
	}
	return spec
}
