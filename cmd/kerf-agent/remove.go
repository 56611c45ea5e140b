// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kerf-gpu/kerf/internal/cgroup"
	"github.com/kerf-gpu/kerf/internal/kube"
	"github.com/kerf-gpu/kerf/internal/libkerf"
	"github.com/kerf-gpu/kerf/internal/mountns"
	"github.com/kerf-gpu/kerf/internal/mps"
	"github.com/kerf-gpu/kerf/internal/nvml"
	"github.com/kerf-gpu/kerf/internal/process"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/node/checkpoint"
	"github.com/kerf-gpu/kerf/sharing/node/record"
)

// removeAgain is how long it is until a node on which something is in use is looked at again.
const removeAgain = 3 * time.Second

// removal takes what the agent has put on a machine off again.
type removal struct {
	dir, cdiDir, hookDir, kubeletDir, auditDir, stateDir string
	nodeName, kubeconfig                                 string
	stay, leaveSettings                                  bool
	devRoot, nvidiaSMI                                   string
	libraries, driverFolders                             []string
	log                                                  *slog.Logger
}

func removeCommand(env environment) *cobra.Command {
	r := removal{}
	c := &cobra.Command{
		Use:   "remove",
		Short: "Take everything that Kerf has put on this machine off again: settings of GPUs, CDI specs, hooks, sockets, records, labels of its node",
		Long: `What an agent that was killed has set on GPUs (power limit, time slice, compute mode) gets back what was there before, which takes the driver.
MPS daemons that it has left end.
It waits until no agent runs here and no process uses a GPU by a grant: a grant's limit ends with its cgroup. It may be run again,
and says what it waits for. What it empties may be a mount of its container: then the empty folder stays.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			log, err := logger(c.ErrOrStderr(), "info")
			if err != nil {
				return err
			}
			r.log, r.libraries, r.driverFolders = log, nvml.DefaultLibraryPaths(env.libraryPath), nvml.DriverFolders(env.libraryPath)
			if r.nodeName != "" { // in a pod, as the agent
				if err := joinHost(log, env.again); err != nil {
					return err
				}
			}
			if err := r.run(c.Context()); err != nil {
				return err
			}
			if r.stay {
				<-c.Context().Done()
			}
			return nil
		},
	}
	f := c.Flags()
	f.StringVar(&r.dir, "dir", or(env.dir, "/run/kerf"), "the agent's --dir")
	f.StringVar(&r.cdiDir, "cdi-dir", "/etc/cdi", "the agent's --cdi-dir, of which Kerf's specs alone are taken")
	f.StringVar(&r.hookDir, "hook-dir", "/opt/kerf", "the agent's --hook-dir")
	f.StringVar(&r.kubeletDir, "kubelet-dir", "", "the agent's --kubelet-dir, of whose device-plugins Kerf's sockets alone are taken; empty for none")
	f.StringVar(&r.auditDir, "audit-dir", "", "the agent's --audit-dir; empty keeps the audit log")
	f.StringVar(&r.stateDir, "state-dir", "", "the agent's --state-dir; empty where it has none")
	f.StringVar(&r.nodeName, "node-name", env.nodeName, "this node's name in Kubernetes, whose labels are taken off; empty for none")
	f.StringVar(&r.kubeconfig, "kubeconfig", "", "file to reach the API server with; empty for the service account of the pod")
	f.StringVar(&r.devRoot, "dev-root", or(env.devRoot, "/"), "the agent's --dev-root")
	f.StringVar(&r.nvidiaSMI, "nvidia-smi", "", "the driver's nvidia-smi, which sets time slices; empty to look for it")
	f.BoolVar(&r.leaveSettings, "leave-gpu-settings", false, "leave GPUs the settings that Kerf made, where the driver is not there to put them back")
	f.BoolVar(&r.stay, "stay", false, "when all is gone, stay until a signal comes, as a DaemonSet's container must")
	return c
}

// run ends when all is gone.
func (r *removal) run(ctx context.Context) error {
	l, err := r.alone(ctx)
	if err != nil {
		return err
	}
	defer l.release()
	groups, err := cgroup.Default()
	if err != nil && !errors.Is(err, sharing.ErrUnsupported) {
		return fmt.Errorf("find the cgroup v2 hierarchy: %w", err)
	}
	if err := r.unused(ctx, groups); err != nil {
		return err
	}
	if err := r.endMPS(ctx); err != nil {
		return err
	}
	if err := r.restored(ctx); err != nil { // before the files: one of them says what was there
		return err
	}
	if err := r.unmark(ctx); err != nil {
		return err
	}
	if err := r.files(); err != nil {
		return err
	}
	r.log.Info("removed", "dir", r.dir, "hooks", r.hookDir, "specs", r.cdiDir)
	return r.groups(groups)
}

// alone waits for the end of an agent that runs here, and keeps the next one out.
func (r *removal) alone(ctx context.Context) (*lock, error) {
	for said := false; ; said = true {
		l, err := takeLock(ctx, filepath.Join(r.dir, "agent.lock"), "the directory "+r.dir, "kerf-agent remove")
		if err == nil || !errors.Is(err, sharing.ErrConflict) {
			return l, err
		}
		if !said {
			r.log.Info("waiting for the end of the agent", "why", err.Error())
		}
		if !sleep(ctx, removeAgain) {
			return nil, err
		}
	}
}

// unused waits until nothing runs with a grant.
func (r *removal) unused(ctx context.Context, groups cgroup.Hierarchy) error {
	boot, err := process.BootID()
	if err != nil {
		return fmt.Errorf("boot id: %w", err)
	}
	runs := func(dir string, inode uint64) bool {
		g, err := groups.Open(dir, inode)
		if err != nil {
			return false // it is gone, or another has its name
		}
		populated, err := g.Populated()
		return populated || err != nil
	}
	for last := ""; ; {
		found, err := checkpoint.Read(filepath.Join(r.dir, "record.json"))
		if err != nil {
			return fmt.Errorf("%w; it says who uses a GPU: remove it if nobody does", err)
		}
		if len(found.Damaged) > 0 { // the one before may lack who uses a GPU now
			return fmt.Errorf("read the record, which says who uses a GPU; remove it if nobody does: %w", found.Damaged[0].Err)
		}
		users := inUse(found.Record, boot, runs)
		if len(users) == 0 {
			return nil
		}
		if now := strings.Join(users, ", "); now != last {
			r.log.Info("waiting for the end of what uses GPUs; its containers could not start again without Kerf", "users", now)
			last = now
		}
		if !sleep(ctx, removeAgain) {
			return fmt.Errorf("%s use GPUs of this node: %w", last, sharing.ErrConflict)
		}
	}
}

// inUse are the grants of a record whose cgroups have processes, for people.
func inUse(rec record.Record, boot string, runs func(dir string, inode uint64) bool) []string {
	var users []string
	for _, g := range rec.Grants {
		if rec.BootID != boot || g.Cgroup == "" || !runs(g.Cgroup, g.Inode) {
			continue
		}
		who := "grant " + g.ID
		if g.PodName != "" {
			who = "pod " + g.Namespace + "/" + g.PodName
		}
		users = append(users, who)
	}
	slices.Sort(users)
	return slices.Compact(users)
}

// unmark takes labels, condition and taint off the node's object. Without the right to them there is none of ours.
func (r *removal) unmark(ctx context.Context) error {
	if r.nodeName == "" {
		return nil
	}
	api, err := kube.Open(kube.Options{Kubeconfig: r.kubeconfig, Node: r.nodeName, Log: r.log})
	if err != nil {
		return fmt.Errorf("API server: %w", err)
	}
	for _, err := range []error{api.LabelNode(ctx, kube.NodeLabels{}), api.MarkNode(ctx, kube.NodeMark{Clear: true})} {
		if err != nil && !errors.Is(err, sharing.ErrDenied) {
			return err
		}
	}
	return nil
}

// files removes what lies on the machine.
func (r *removal) files() error {
	errs := []error{r.unmount()}
	for _, pattern := range []string{filepath.Join(r.cdiDir, "kerf.dev-*.json"), filepath.Join(r.kubeletDir, "device-plugins", "kerf-*.sock")} {
		if r.kubeletDir == "" && strings.HasSuffix(pattern, ".sock") {
			continue
		}
		names, err := filepath.Glob(pattern)
		errs = append(errs, err)
		for _, name := range names {
			errs = append(errs, os.Remove(name))
		}
	}
	for _, dir := range []string{r.hookDir, r.auditDir, r.stateDir, r.dir} {
		if dir != "" {
			errs = append(errs, emptied(dir))
		}
	}
	return errors.Join(errs...)
}

// unmount takes away what agents have mounted below the directory: the folders of grants, and the volumes of MPS daemons.
func (r *removal) unmount() error {
	errs := []error{libkerf.RemoveFolders(filepath.Join(r.dir, "client"), func(string) bool { return false })}
	volumes, err1 := filepath.Glob(filepath.Join(r.dir, "mps", "*", "*", "*"))
	for _, dir := range volumes {
		errs = append(errs, mps.UnmountVolume(dir))
	}
	folders, err2 := filepath.Glob(filepath.Join(r.dir, "mps", "*", "*"))
	for _, dir := range folders {
		errs = append(errs, mountns.Unmount(dir))
	}
	return errors.Join(append(errs, err1, err2)...)
}

// emptied removes all that is in dir, and dir if it is not a mount.
func emptied(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
			return err
		}
	}
	_ = os.Remove(dir) // a mount stays
	return nil
}

// groups removes the cgroups of grants that have ended.
func (r *removal) groups(h cgroup.Hierarchy) error {
	if h.Mount == "" {
		return nil
	}
	ours := filepath.Join(h.Mount, "kerf")
	var left []string
	err := filepath.WalkDir(ours, func(name string, e fs.DirEntry, err error) error {
		if err == nil && e.IsDir() {
			left = append(left, name)
		}
		return err
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	slices.Reverse(left) // what is below goes before what it is in
	for _, name := range left {
		if err := os.Remove(name); err != nil {
			return fmt.Errorf("remove cgroup %q: %w", name, err)
		}
	}
	return nil
}
