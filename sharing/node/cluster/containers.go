// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package cluster is the agent's part for containers and for a node of a Kubernetes cluster. It has the device plugin,
// NRI plugin, hook socket, CDI specs, the node's object and the GPUNode.
package cluster

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/kerf-gpu/kerf/deviceplugin"
	"github.com/kerf-gpu/kerf/hooks/oci"
	"github.com/kerf-gpu/kerf/internal/cdi"
	"github.com/kerf-gpu/kerf/internal/process"
	"github.com/kerf-gpu/kerf/internal/serve"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/config"
	"github.com/kerf-gpu/kerf/sharing/node"
	"github.com/kerf-gpu/kerf/sharing/node/conditions"
	"github.com/kerf-gpu/kerf/sharing/node/instances"
	"github.com/kerf-gpu/kerf/sharing/node/nodeserver"
	"github.com/kerf-gpu/kerf/sharing/node/options"
	"github.com/kerf-gpu/kerf/sharing/node/startcheck"
)

const (
	// hookSocket is where kerf-hook asks; its name stands in the CDI specs.
	hookSocket = "hook.sock"
	// inventoryEvery is how often the GPUs that kubelet and container runtimes know are compared with the agent's,
	// even without a change.
	inventoryEvery = 5 * time.Second
)

// Deps are what this package needs of the agent.
type Deps struct {
	Log     *slog.Logger
	Options *options.Options
	Runtime *node.Runtime
	// State is the folder of what outlives a reboot.
	State string
	// Hook and Kubelet bound the listeners for kerf-hook and for kubelet.
	Hook, Kubelet *serve.Share
	// Allocated is called with the time that each answer of the device plugin took. ClaimsPrepared is the same for the
	// claims of a pod.
	Allocated, ClaimsPrepared func(took time.Duration)
}

// Containers is the agent's part for containers: the installed hook, its socket, and the CDI specs.
type Containers struct {
	Deps
	known *knownGPUs
	// writing is held while specs are written.
	writing sync.Mutex
	specs   *cdi.Manager
	// hookPath is the installed hook, hookSum its content, and hookVersion its version at the last comparison.
	hookPath    string
	hookSum     [sha256.Size]byte
	hookVersion string
	listener    net.Listener
	// Starts reads limits back as containers start.
	Starts *startcheck.Checker
	// tell receives the node's GPUs once the specs are in place; nil for no receiver.
	tell func([]deviceplugin.Unit)
	// said is the last error of the specs, so that it is logged once.
	said string
}

// NewContainers installs the hook and opens its socket.
func NewContainers(a Deps) (*Containers, error) {
	boot, err := process.BootID()
	if err != nil {
		return nil, fmt.Errorf("boot id: %w", err)
	}
	c := &Containers{Deps: a, Starts: startcheck.New(a.Runtime, a.Log),
		known: loadKnown(filepath.Join(a.Options.Dirs.Dir, "inventory.json"), boot, a.Log)}
	if c.hookPath, err = c.installHook(); err != nil {
		return nil, err
	}
	if c.hookSum, err = cdi.HookSum(c.hookPath); err != nil {
		return nil, fmt.Errorf("installed hook: %w", err)
	}
	a.Runtime.Instances.ShowTo(c.showMIG)
	c.specs = cdi.NewManager(a.Options.Containers.CDI, filepath.SplitList(a.Options.Containers.CDISources),
		cdi.Hook{Path: c.hookPath, Socket: filepath.Join(a.Options.Dirs.Dir, hookSocket)})
	c.listener, err = c.listenHook()
	return c, err
}

// ServeHook answers kerf-hook until ctx ends.
func (c *Containers) ServeHook(ctx context.Context) error {
	return oci.NewServer(c, c.Log, c.Options.Version).Serve(ctx,
		c.Deps.Hook.Listen(c.listener, serve.Rules{Wait: true}))
}

// ActivateContainer implements oci.Activator. NRI reports the starts of pods' containers. One that is no pod's is
// checked again from here.
func (c *Containers) ActivateContainer(ctx context.Context, call sharing.HookCall) error {
	err := c.Runtime.ActivateContainer(ctx, call)
	if err == nil && call.Grant != "" {
		c.Starts.Again(call.ContainerID)
	}
	return err
}

// Hook is where containers of no pod find what activates them.
func (c *Containers) Hook() nodeserver.Hook {
	return nodeserver.Hook{Path: c.hookPath, Socket: filepath.Join(c.Options.Dirs.Dir, hookSocket),
		CDIDirs: []string{c.Options.Containers.CDI}}
}

// listenHook opens the socket that kerf-hook asks on, for root alone.
func (c *Containers) listenHook() (net.Listener, error) {
	path := filepath.Join(c.Options.Dirs.Dir, hookSocket)
	l, err := serve.ListenUnix(path, os.Getegid())
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
func (c *Containers) installHook() (string, error) {
	binary := c.Options.Containers.Hook
	if binary == "" {
		self, err := os.Executable()
		if err != nil {
			return "", fmt.Errorf("find this program: %w", err)
		}
		binary = filepath.Join(filepath.Dir(self), "kerf-hook")
	}
	if _, err := os.Stat(binary); errors.Is(err, fs.ErrNotExist) {
		return "", sharing.Invalid("--hook-binary", binary, "put kerf-hook next to kerf-agent, or name its path",
			"does not exist")
	}
	path, err := cdi.InstallHook(c.Options.Containers.Hooks, c.Options.Version, binary)
	if err != nil {
		return "", fmt.Errorf("install kerf-hook: %w", err)
	}
	return path, nil
}

// WatchInventory updates the CDI specs, and kubelet, with the node's GPUs until ctx ends.
func (c *Containers) WatchInventory(ctx context.Context) error {
	t := time.NewTicker(inventoryEvery)
	defer t.Stop()
	for {
		changed := c.Runtime.Changed()
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
func (c *Containers) tellInventory() {
	if !c.Runtime.DriverSeen() {
		// Nothing is registered yet: what is only remembered would be offered as lost, and kubelet refuses for
		// good the pods that are bound meanwhile.
		return
	}
	gpus := c.Runtime.Inventory()
	pool := c.Runtime.Settings().Pool()
	rules := rulesOf(c.Runtime.Instances.States())
	rules.memory, rules.gives, rules.excluded = hardwareMemory(pool), givesOf(pool), c.Runtime.Settings().Excluded()
	units := c.known.take(gpus, rules)
	if len(units) == 0 {
		c.Runtime.Conditions.Set(conditions.Units, "no GPU of this node can be given: the driver shows none, or the "+
			"pool's rules leave them all to others; kerf status shows what is there")
		return
	}
	c.Runtime.Conditions.Set(conditions.Units, "")
	err := c.writeSpecs(units, gpus)
	text := ""
	if err != nil {
		text = err.Error()
	}
	if text != c.said && err != nil {
		c.Log.Error("failed to write CDI specs", "error", text)
	}
	c.said = text
	c.Runtime.Conditions.Set(conditions.CDI, text)
	if err == nil && c.tell != nil {
		c.tell(units)
	}
}

// givesOf is what each GPU of the pool gives; nil where no rule says anything of that.
func givesOf(p config.Pool) func(sharing.GPU) config.Mode {
	if !slices.ContainsFunc(p.GPURules, func(r config.GPURule) bool { return r.Settings.Mode != config.ModeAuto }) {
		return nil
	}
	return func(g sharing.GPU) config.Mode { return cmp.Or(p.Of(g).Mode, p.Mode) }
}

// hardwareMemory reports whether pods of the pool may ask for memory and get a MIG instance that has it.
func hardwareMemory(p config.Pool) bool {
	return p.Mode == config.ModeAuto || p.Mode == config.ModeMIG && p.MinLevel == sharing.LevelHardware
}

// showMIG writes the CDI devices of containers' MIG instances.
func (c *Containers) showMIG(_ context.Context, devices []instances.Shown) error {
	list := make([]cdi.Instance, len(devices))
	for i, d := range devices {
		list[i] = cdi.Instance{UUID: d.Device.UUID, GPU: d.GPU}
		for _, n := range d.Capabilities {
			list[i].Caps = append(list[i].Caps, cdi.Cap{Path: n.Path, Host: n.Host, Major: n.Major, Minor: n.Minor})
		}
	}
	c.writing.Lock()
	defer c.writing.Unlock()
	written, err := c.specs.Instances(list)
	if written {
		c.Log.Info("wrote CDI spec of MIG instances", "dir", c.Options.Containers.CDI, "instances", len(list))
	}
	return err
}

// writeSpecs makes sure that the CDI devices of all names for kubelet, and of all GPUs, are on the disk. The hook that
// they name is there as it was installed.
func (c *Containers) writeSpecs(units []deviceplugin.Unit, gpus []sharing.GPU) error {
	if version := cdi.HookVersion(c.hookPath); version == "" || version != c.hookVersion {
		if cdi.VerifyHook(c.hookPath, c.hookSum) != nil {
			if _, err := c.installHook(); err != nil {
				return err
			}
			c.Log.Warn("restored modified kerf-hook", "path", c.hookPath)
			version = "" // written just now: compare again next time
		}
		c.hookVersion = version
	}
	var m cdi.Maxima
	for _, u := range units {
		m.MemoryGiB += u.GiB
		m.Percent += int(sharing.FullGPU)
		m.GPUs++
		m.NUMANodes = max(m.NUMANodes, u.NUMA+1)
		for _, in := range u.MIG {
			m = m.With(in.Resource, in.Count)
		}
	}
	c.writing.Lock()
	defer c.writing.Unlock()
	kept, err := c.specs.Reconcile(m, present(gpus))
	if len(kept.Written) > 0 {
		c.Log.Info("wrote CDI specs", "dir", c.Options.Containers.CDI, "files", kept.Written)
	}
	errs := []error{err}
	for _, id := range slices.Sorted(maps.Keys(kept.Left)) {
		errs = append(errs, fmt.Errorf("GPU %s has no CDI device: %s: %w", id, kept.Left[id], sharing.ErrNotFound))
	}
	return errors.Join(errs...)
}

// present leaves out the GPUs that the driver does not show. They keep their CDI spec only while they are there, and
// nothing can be made on them.
func present(gpus []sharing.GPU) []sharing.GPU {
	var out []sharing.GPU
	for _, g := range gpus {
		if !g.MIG && !g.Ref().IsInstance() && g.Health != sharing.HealthLost && g.Index >= 0 {
			out = append(out, g)
		}
	}
	return out
}
