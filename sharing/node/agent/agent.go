// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package agent is the node agent: it joins the node runtime with the driver, the container runtime, kubelet and the
// API server.
//
// It promises that SIGKILL at any moment loses no grant and takes no cap off, and that at most one agent manages a GPU.
// It needs root for cgroups and the driver's limits.
package agent

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path"
	"path/filepath"
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"golang.org/x/sync/errgroup"

	nodeapi "github.com/kerf-gpu/kerf/api/node/v1alpha1"
	"github.com/kerf-gpu/kerf/hooks/nri"
	"github.com/kerf-gpu/kerf/internal/cgroup"
	"github.com/kerf-gpu/kerf/internal/filelock"
	"github.com/kerf-gpu/kerf/internal/process"
	"github.com/kerf-gpu/kerf/internal/serve"
	"github.com/kerf-gpu/kerf/internal/serve/servemetrics"
	"github.com/kerf-gpu/kerf/internal/subuid"
	"github.com/kerf-gpu/kerf/internal/trusted"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/audit/file"
	"github.com/kerf-gpu/kerf/sharing/config"
	"github.com/kerf-gpu/kerf/sharing/node"
	"github.com/kerf-gpu/kerf/sharing/node/claims"
	"github.com/kerf-gpu/kerf/sharing/node/cluster"
	"github.com/kerf-gpu/kerf/sharing/node/conditions"
	"github.com/kerf-gpu/kerf/sharing/node/contextprobe"
	"github.com/kerf-gpu/kerf/sharing/node/lifecycle"
	"github.com/kerf-gpu/kerf/sharing/node/metrics"
	"github.com/kerf-gpu/kerf/sharing/node/nodeserver"
	"github.com/kerf-gpu/kerf/sharing/node/options"
	"github.com/kerf-gpu/kerf/sharing/node/session"
	"github.com/kerf-gpu/kerf/sharing/node/settings"
	"github.com/kerf-gpu/kerf/sharing/node/settings/applied"
)

// agent wires the parts together and owns every goroutine.
type agent struct {
	opt options.Options
	log *slog.Logger
	// state is the directory of what outlives a reboot.
	state   string
	runtime *node.Runtime
	events  *metrics.Events
	// audit is nil where none can be kept, and auditFault then says why.
	audit      *file.Log
	auditFault string
	source     *settings.Source
	cgroups    cgroup.Hierarchy
	// session uses the driver.
	session *session.Session
	// users says which UIDs are subordinate to which user.
	users subuid.File
	// shares bound the listeners, by name.
	shares map[string]*serve.Share
	// cgroupParent is the directory of our grants' cgroups, relative to the hierarchy's mount.
	cgroupParent string
}

// Run serves until ctx ends. Grants stay enforced after it. Errors: sharing.ErrDenied if the program does not run as
// root, sharing.ErrConflict if another agent has the directory or a GPU.
func Run(ctx context.Context, opt options.Options) error {
	a := &agent{opt: opt, log: opt.Log}
	ctx, stop := context.WithCancel(ctx)
	var bound sync.WaitGroup
	bound.Go(func() { boundMemory(ctx) }) // first, since an agent needs most memory when it starts
	defer bound.Wait()
	defer stop()
	return a.run(ctx)
}

func (a *agent) run(ctx context.Context) error {
	if os.Geteuid() != 0 {
		return fmt.Errorf("it must run as root, because cgroups and the driver's limits require it: %w",
			sharing.ErrDenied)
	}
	if a.opt.Cluster.Serve {
		if err := process.RestartInHostCgroups(a.log, a.opt.Again); err != nil {
			return err
		}
	}
	var err error
	if a.shares, err = planListeners(); err != nil {
		return err
	}
	if err := a.prepareDir(); err != nil {
		return err
	}
	lock, err := filelock.Take(ctx, filepath.Join(a.opt.Dirs.Dir, "agent.lock"), "the directory "+a.opt.Dirs.Dir,
		a.opt.Dirs.Dir)
	if err != nil {
		return err
	}
	defer lock.Release()
	if a.state, err = stateDirectory(a.opt.Dirs.Dir, a.opt.Dirs.State); err != nil {
		return err
	}
	if a.state != a.opt.Dirs.Dir {
		own, err := filelock.Take(ctx, filepath.Join(a.state, "agent.lock"), "the directory "+a.state, a.opt.Dirs.Dir)
		if err != nil {
			return err
		}
		defer own.Release()
		if err := takeState(a.opt.Dirs.Dir, a.state); err != nil {
			return err
		}
	}
	reg := prometheus.NewRegistry()
	if err := a.build(reg); err != nil {
		return err
	}
	stopAudit := a.runAudit(ctx)
	if err := a.runtime.Restore(ctx); err != nil {
		return errors.Join(fmt.Errorf("restore: %w", err), stopAudit())
	}
	err = a.serve(ctx, reg)
	a.leaveCgroups()
	return errors.Join(err, stopAudit())
}

// leaveCgroups removes the directory of our grants' cgroups if there is none.
func (a *agent) leaveCgroups() {
	session.LeaveMPSGroup(a.cgroups, a.cgroupParent)
	names, err := a.cgroups.Children(a.cgroupParent)
	if err != nil || len(names) > 0 {
		return
	}
	parent, err := a.cgroups.Open(filepath.Join(a.cgroups.Mount, a.cgroupParent), 0)
	if err == nil {
		err = parent.Remove()
	}
	if err != nil {
		a.log.Warn("failed to remove empty cgroup", "cgroup", a.cgroupParent, "error", err.Error())
	}
}

// prepareDir makes the directory, and refuses one into which others may write: enforcement reads from it.
func (a *agent) prepareDir() error { return ownDirectory("--run-dir", a.opt.Dirs.Dir, 0o755) }

// ownDirectory makes the directory that a flag names, and refuses one that other users can write to or replace.
func ownDirectory(flag, dir string, mode os.FileMode) error {
	if err := os.MkdirAll(dir, mode); err != nil {
		return fmt.Errorf("%s %q: %w", flag, dir, err)
	}
	err := trusted.Dir(dir)
	if errors.Is(err, sharing.ErrDenied) {
		return sharing.Invalid(flag, dir, "name a directory that only root can write to, as each one above it",
			"cannot be trusted: %s", sharing.Plain(err))
	}
	return err
}

// build makes the runtime and what it needs of this machine.
func (a *agent) build(reg *prometheus.Registry) error {
	if err := a.findCgroups(); err != nil {
		return err
	}
	boot, err := process.BootID()
	if err != nil {
		return fmt.Errorf("boot id: %w", err)
	}
	conf := config.Default()
	pool, err := conf.PoolFor(a.opt.Source.Labels)
	if err != nil {
		return fmt.Errorf("built-in configuration: %w", err)
	}
	a.events = metrics.NewEvents(reg)
	a.readUsers("")
	noPods := session.NoMPSForPods()
	a.openAudit()
	contexts := contextprobe.Load(filepath.Join(a.opt.Dirs.Dir, "contexts.json"), a.log)
	a.session, err = session.New(session.Deps{
		Log: a.log, Options: &a.opt, Events: a.events, State: a.state, Boot: boot, Cgroups: a.cgroups,
		Parent:   a.cgroupParent,
		Contexts: contexts, Audit: a.auditTo(), NewID: newID,
	})
	if err != nil {
		return err
	}
	a.runtime = node.New(node.Options{
		Host: node.Host{
			Cgroups: a.cgroups, Parent: a.cgroupParent, BootID: boot, OwnerOf: a.users.OwnerOf,
			DevRoot: a.opt.Driver.DevRoot, CapsRoot: a.opt.Driver.CapsRoot,
		},
		Log: a.log, RecordPath: filepath.Join(a.opt.Dirs.Dir, "record.json"), NewID: newID, Version: a.opt.Version,
		GPUSettings: a.opt.Driver.Settings, Config: conf, Pool: pool,
		Observer: a.events, Failpoints: a.opt.Failpoints, MPS: a.session.MPS(), NoMPSForPods: noPods,
		Client:   a.session.Client(),
		Contexts: contexts,
		Audit:    a.auditTo(),
	})
	a.runtime.Conditions.Set(conditions.Audit, a.auditFault)
	a.runtime.Settings().Load(filepath.Join(a.opt.Dirs.Dir, applied.File), boot)
	a.source = settings.NewSource(settings.Deps{
		Log: a.log, Options: &a.opt, Runtime: a.runtime, Events: a.events, State: a.state, NoMPSForPods: noPods,
	})
	a.session.Served = session.Served{Runtime: a.runtime, Source: a.source}
	reg.MustRegister(
		metrics.NewCollector(func(ctx context.Context) *nodeapi.GetNodeResponse {
			return nodeserver.Message(a.runtime.State(ctx))
		}),
		servemetrics.New(a.shares), collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	return nil
}

// findCgroups finds the hierarchy, and makes sure that grants can have groups there.
func (a *agent) findCgroups() error {
	groups, err := cgroup.Default()
	if err != nil {
		return fmt.Errorf("find the cgroup v2 hierarchy: %w", err)
	}
	sum := sha256.Sum256([]byte(a.opt.Dirs.Dir))
	a.cgroups, a.cgroupParent = groups, path.Join("kerf", hex.EncodeToString(sum[:4]))
	if err := groups.Probe(path.Join(a.cgroupParent, "probe-"+newID())); err != nil {
		return fmt.Errorf("no grant can have a cgroup: %w; %s", err, cmp.Or(groups.Remedy(err), "see kerf doctor"))
	}
	return nil
}

func (a *agent) serve(ctx context.Context, reg *prometheus.Registry) error {
	gid := a.socketGroup()
	node, err := serve.ListenUnix(filepath.Join(a.opt.Dirs.Dir, "kerf.sock"), gid)
	if err != nil {
		return err
	}
	grpcListener := a.shares[shareNode].Listen(node, serve.Rules{Root: a.shares[shareRoot]})
	httpListeners, err := a.httpListeners(gid)
	if err != nil {
		// If nothing listens on the socket, clients assume that the agent restarts. This agent ends, so it removes the
		// socket.
		return errors.Join(err, grpcListener.Close(), os.Remove(filepath.Join(a.opt.Dirs.Dir, "kerf.sock")))
	}
	api := nodeserver.New(a.runtime, a.log)
	api.ServeMIG(a.session)
	var c *cluster.Containers
	var k *cluster.Kubernetes
	if a.opt.Containers.Serve || a.opt.Cluster.Serve {
		if c, err = cluster.NewContainers(a.clusterDeps()); err == nil && a.opt.Cluster.Serve {
			k, err = cluster.NewKubernetes(c)
		}
		if err != nil {
			return errors.Join(err, closeAll(append(httpListeners, grpcListener)))
		}
		api.ServeContainers(a.runtime, c.Hook())
	}
	var tell probes
	if k != nil {
		tell = probes{unready: k.Unregistered, stuck: k.Stuck}
	}
	if a.audit != nil {
		tell.usage = newUsageLog(a.log, a.auditPath(), a.source.Prices)
	}
	if k != nil {
		a.session.Seen = k.Seen
		a.source.FirstLabels(ctx, k.API().OwnLabels)
	}
	first := a.source.First()
	if a.opt.ReadOnly() {
		a.log.Info("started with read-only GPU settings", "unchanged", sharing.GPUSettingsNames)
	}
	a.log.Info("started serving", "dir", a.opt.Dirs.Dir, "version", a.opt.Version, "containers", c != nil, "kubernetes",
		k != nil)
	g, ctx := errgroup.WithContext(ctx)
	if c != nil {
		g.Go(func() error { return c.ServeHook(ctx) })
		g.Go(func() error { return c.Starts.Run(ctx) })
		g.Go(func() error { return c.WatchInventory(ctx) })
	}
	if k != nil {
		api := k.API()
		a.session.Announce(func(reason, message string) {
			api.Event(ctx, sharing.ContainerRef{}, reason, message,
				true)
		})
		a.source.Announce(ctx, api)
		g.Go(func() error { a.source.WatchConfigMap(ctx, api); return nil })
		g.Go(func() error { a.source.WatchLabels(ctx, api.OwnLabels); return nil })
		g.Go(func() error { return k.Run(ctx) })
	}
	g.Go(func() error { a.followUsers(ctx); return nil })
	g.Go(func() error { return a.runtime.Run(ctx) })
	g.Go(func() error { return api.Serve(ctx, grpcListener) })
	for _, l := range httpListeners {
		g.Go(func() error { return serveHTTP(ctx, l, a.runtime, reg, tell) })
	}
	g.Go(func() error { return a.source.Watch(ctx, first) })
	g.Go(func() error { return a.session.Run(ctx) })
	g.Go(func() error { a.session.RunMPS(ctx); return nil })
	err = g.Wait()
	a.log.Info("stopped; active grants stay enforced")
	return err
}

// clusterDeps are what serves containers and kubelet needs of the agent.
func (a *agent) clusterDeps() cluster.Deps {
	return cluster.Deps{
		Log: a.log, Options: &a.opt, Runtime: a.runtime, State: a.state, Hook: a.shares[shareHook],
		Kubelet:   a.shares[shareKubelet],
		Allocated: a.events.Allocated, ClaimsPrepared: a.events.ClaimsPrepared,
	}
}

func closeAll(listeners []*serve.Listener) error {
	var errs []error
	for _, l := range listeners {
		errs = append(errs, l.Close())
	}
	return errors.Join(errs...)
}

// newID makes a grant's id: "k-" and 40 random bits. The ledger refuses one that is taken.
func newID() string {
	var b [5]byte
	_, _ = rand.Read(b[:]) // never fails: crypto/rand ends the program instead
	return "k-" + hex.EncodeToString(b[:])
}

// Failpoints are the names of all failpoints of the agent.
func Failpoints() []string {
	return slices.Concat(lifecycle.Failpoints(), nri.Failpoints(), session.Failpoints(), claims.Failpoints())
}
