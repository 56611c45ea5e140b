// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package uninstall removes what the agent has put on a node. That is settings of GPUs, CDI specs, hooks, sockets,
// state, cgroups, and the labels of the node.
//
// It promises to wait until no agent runs and no process has a grant.
package uninstall

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

	"github.com/kerf-gpu/kerf/internal/cdi"
	"github.com/kerf-gpu/kerf/internal/cgroup"
	"github.com/kerf-gpu/kerf/internal/filelock"
	"github.com/kerf-gpu/kerf/internal/kube"
	"github.com/kerf-gpu/kerf/internal/libkerf"
	"github.com/kerf-gpu/kerf/internal/mountns"
	"github.com/kerf-gpu/kerf/internal/mps"
	"github.com/kerf-gpu/kerf/internal/process"
	"github.com/kerf-gpu/kerf/internal/sleep"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/node/checkpoint"
	"github.com/kerf-gpu/kerf/sharing/node/record"
)

// removeAgain is how long it is until a node on which something is in use is looked at again.
const removeAgain = 3 * time.Second

// settingsDeadline bounds putting back the settings of all GPUs.
const settingsDeadline = 2 * time.Minute

// Removal removes what the agent has put on a machine. Its folders and paths are those of the agent's flags of the same
// name; one that is empty is left alone.
type Removal struct {
	Dir, CDIDir, HookDir, KubeletDir, AuditDir, StateDir string
	// NodeName is the node's name in Kubernetes; empty for none.
	NodeName, Kubeconfig string
	// LeaveSettings leaves GPUs the settings that Kerf made.
	LeaveSettings            bool
	DevRoot, NVIDIASMI       string
	Libraries, DriverFolders []string
	// Again starts this program again in its place; it returns only an error.
	Again func() error
	Log   *slog.Logger
}

// Run ends when all is gone. It waits for the end of an agent and of all processes with a grant.
func (r *Removal) Run(ctx context.Context) error {
	if r.NodeName != "" { // in a pod, as the agent
		if err := process.RestartInHostCgroups(r.Log, r.Again); err != nil {
			return err
		}
	}
	return r.run(ctx)
}

func (r *Removal) run(ctx context.Context) error {
	l, err := r.alone(ctx)
	if err != nil {
		return err
	}
	defer l.Release()
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
	r.Log.Info("removed Kerf from the node", "dir", r.Dir, "hooks", r.HookDir, "specs", r.CDIDir)
	return r.groups(groups)
}

// alone waits for the end of an agent that runs here, and keeps the next one out.
func (r *Removal) alone(ctx context.Context) (*filelock.Lock, error) {
	for said := false; ; said = true {
		l, err := filelock.Take(ctx, filepath.Join(r.Dir, "agent.lock"), "the directory "+r.Dir, "kerf-agent uninstall")
		if err == nil || !errors.Is(err, sharing.ErrConflict) {
			return l, err
		}
		if !said {
			r.Log.Info("started to wait for the end of the agent", "reason", err.Error())
		}
		if !sleep.For(ctx, removeAgain) {
			return nil, err
		}
	}
}

// unused waits until nothing runs with a grant.
func (r *Removal) unused(ctx context.Context, groups cgroup.Hierarchy) error {
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
		found, err := checkpoint.Read(filepath.Join(r.Dir, "record.json"))
		if err != nil {
			return fmt.Errorf("%w; it lists the users of GPUs: remove it if there are none", err)
		}
		if len(found.Damaged) > 0 { // the one before may lack who uses a GPU now
			return fmt.Errorf("read the checkpoint, which lists the users of GPUs; remove it if there are none: %w",
				found.Damaged[0].Err)
		}
		users := inUse(found.Record, boot, runs)
		if len(users) == 0 {
			return nil
		}
		if now := strings.Join(users, ", "); now != last {
			r.Log.Info("started to wait for the end of GPU containers, which cannot restart without Kerf",
				"users", now)
			last = now
		}
		if !sleep.For(ctx, removeAgain) {
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
func (r *Removal) unmark(ctx context.Context) error {
	if r.NodeName == "" {
		return nil
	}
	api, err := kube.Open(kube.Options{Kubeconfig: r.Kubeconfig, Node: r.NodeName, Log: r.Log})
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
func (r *Removal) files() error {
	errs := []error{r.unmount(), cdi.Remove(r.CDIDir)}
	if r.KubeletDir != "" {
		names, err := filepath.Glob(filepath.Join(r.KubeletDir, "device-plugins", "kerf-*.sock"))
		errs = append(errs, err)
		for _, name := range names {
			errs = append(errs, os.Remove(name))
		}
	}
	for _, dir := range []string{r.HookDir, r.AuditDir, r.StateDir, r.Dir} {
		if dir != "" {
			errs = append(errs, emptied(dir))
		}
	}
	return errors.Join(errs...)
}

// unmount takes away what agents have mounted below the directory: the folders of grants, and the volumes of MPS
// daemons.
func (r *Removal) unmount() error {
	errs := []error{libkerf.RemoveFolders(filepath.Join(r.Dir, "client"), func(string) bool { return false })}
	volumes, err1 := filepath.Glob(filepath.Join(r.Dir, "mps", "*", "*", "*"))
	for _, dir := range volumes {
		errs = append(errs, mps.UnmountVolume(dir))
	}
	folders, err2 := filepath.Glob(filepath.Join(r.Dir, "mps", "*", "*"))
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
func (r *Removal) groups(h cgroup.Hierarchy) error {
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
