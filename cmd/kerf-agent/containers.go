// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/kerf-gpu/kerf/deviceplugin"
	"github.com/kerf-gpu/kerf/hooks/oci"
	"github.com/kerf-gpu/kerf/internal/cdi"
	"github.com/kerf-gpu/kerf/internal/process"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/node/nodeserver"
)

const (
	// hookSocket is where kerf-hook asks; its name stands in the CDI specs.
	hookSocket = "hook.sock"
	// inventoryEvery is how often what kubelet and container runtimes are told of the GPUs is compared with
	// the runtime even if nothing was announced.
	inventoryEvery = 5 * time.Second
)

// containers is what the agent is for containers: the installed hook, its socket, and the CDI specs.
type containers struct {
	*agent
	known    *knownGPUs
	hookPath string
	listener net.Listener
	// tell is told of the node's GPUs once the specs are in place; nil where nobody asks.
	tell func([]deviceplugin.Unit)
	// said is the last error of the specs, so that it is logged once.
	said string
}

// newContainers installs the hook and opens its socket.
func newContainers(a *agent) (*containers, error) {
	boot, err := process.BootID()
	if err != nil {
		return nil, fmt.Errorf("boot id: %w", err)
	}
	c := &containers{agent: a, known: loadKnown(filepath.Join(a.dir, "inventory.json"), boot, a.log)}
	if c.hookPath, err = a.installHook(); err != nil {
		return nil, err
	}
	c.listener, err = a.listenHook()
	return c, err
}

// serveHook answers kerf-hook until ctx ends.
func (c *containers) serveHook(ctx context.Context) error {
	return oci.NewServer(c.runtime, c.log, version).Serve(ctx, c.listener)
}

// hook is where containers of no pod find what arms them.
func (c *containers) hook() nodeserver.Hook {
	return nodeserver.Hook{Path: c.hookPath, Socket: filepath.Join(c.dir, hookSocket), CDIDirs: []string{c.cdiDir}}
}

// listenHook opens the socket that kerf-hook asks on, for root alone.
func (a *agent) listenHook() (net.Listener, error) {
	path := filepath.Join(a.dir, hookSocket)
	l, err := listenUnix(path, os.Getegid())
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(fmt.Errorf("socket %s: %w", path, err), l.Close())
	}
	return l, nil
}

// installHook puts kerf-hook where the container runtime finds it on the host, under this version, and
// returns its path.
func (a *agent) installHook() (string, error) {
	binary := a.hookBinary
	if binary == "" {
		self, err := os.Executable()
		if err != nil {
			return "", fmt.Errorf("find this program: %w", err)
		}
		binary = filepath.Join(filepath.Dir(self), "kerf-hook")
	}
	if _, err := os.Stat(binary); errors.Is(err, fs.ErrNotExist) {
		return "", sharing.Invalid("--hook-binary", binary, "put kerf-hook beside kerf-agent, or name its path", "does not exist")
	}
	path, err := cdi.InstallHook(a.hookDir, version, binary)
	if err != nil {
		return "", fmt.Errorf("install kerf-hook: %w", err)
	}
	return path, nil
}

// followInventory keeps the CDI specs, and kubelet, told of the node's GPUs until ctx ends.
func (c *containers) followInventory(ctx context.Context) error {
	t := time.NewTicker(inventoryEvery)
	defer t.Stop()
	for {
		changed := c.runtime.Changed()
		c.tellInventory()
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		case <-t.C:
		}
	}
}

// tellInventory tells of the GPUs once the specs that name them are on the disk.
func (c *containers) tellInventory() {
	gpus := c.runtime.Inventory()
	if len(gpus) == 0 && len(c.known.units) == 0 {
		return // no driver yet: nothing is registered
	}
	units := c.known.take(gpus)
	if len(units) == 0 {
		c.runtime.SetPodBlocked("units", "no GPU of this node can be shared or given whole: all are in MIG mode")
		return
	}
	c.runtime.SetPodBlocked("units", "")
	err := c.writeSpecs(units, gpus)
	text := ""
	if err != nil {
		text = err.Error()
	}
	if text != c.said && err != nil {
		c.log.Error("CDI specs are not as containers need them", "error", text)
	}
	c.said = text
	c.runtime.SetPodBlocked("cdi", text)
	if err == nil && c.tell != nil {
		c.tell(units)
	}
}

// writeSpecs makes sure that every name which kubelet may be answered with, and every GPU, has its CDI
// device on the disk.
func (c *containers) writeSpecs(units []deviceplugin.Unit, gpus []sharing.GPU) error {
	dirs := strings.FieldsFunc(c.cdiSourceDirs, func(r rune) bool { return r == filepath.ListSeparator })
	if err := cdi.Conflicts(c.cdiDir, append([]string{c.cdiDir}, dirs...)); err != nil {
		return fmt.Errorf("foreign CDI specs: %w", err)
	}
	var m cdi.Maxima
	for _, u := range units {
		m.MemoryGiB += u.GiB
		m.Percent += int(sharing.FullGPU)
		m.GPUs++
		m.NUMANodes = max(m.NUMANodes, u.NUMA+1)
	}
	_, written, err := cdi.InstallStatic(c.cdiDir, m, cdi.Hook{Path: c.hookPath, Socket: filepath.Join(c.dir, hookSocket)})
	if err != nil {
		return err
	}
	from, err := cdi.Source(dirs)
	if err != nil {
		return err
	}
	derived, err := cdi.Derive(from, present(gpus))
	if err != nil {
		return err
	}
	if derived.File.Name != "" {
		more, err := cdi.Install(c.cdiDir, []cdi.File{derived.File})
		if err != nil {
			return err
		}
		written = append(written, more...)
	}
	if len(written) > 0 {
		c.log.Info("CDI specs written", "dir", c.cdiDir, "files", written)
	}
	var missing []error
	for id, why := range derived.Left {
		missing = append(missing, fmt.Errorf("GPU %s: %s: %w", id, why, sharing.ErrNotFound))
	}
	return errors.Join(missing...)
}

// present leaves out the GPUs that the driver does not show: they keep what the spec has for them only while
// they are there, and nothing can be made on them.
func present(gpus []sharing.GPU) []sharing.GPU {
	var out []sharing.GPU
	for _, g := range gpus {
		if !g.MIG && g.Health != sharing.HealthLost && g.Index >= 0 {
			out = append(out, g)
		}
	}
	return out
}
