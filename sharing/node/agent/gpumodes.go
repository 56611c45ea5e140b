// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/kerf-gpu/kerf/internal/nvidiasmi"
	"github.com/kerf-gpu/kerf/internal/nvml"
	"github.com/kerf-gpu/kerf/internal/process"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/caps/gpumode"
)

const (
	// modesEvery is how often a changed pool is looked for, modesRetry how long after a failure it is tried again.
	modesEvery = 2 * time.Second
	modesRetry = 30 * time.Second
	// modesDeadline bounds settings on all GPUs, modesLast putting them back at the end.
	modesDeadline = 2 * time.Minute
	modesLast     = 20 * time.Second
)

// keepModes gives the GPUs the time slice, compute mode and power limit that are in force for them, and puts back what there
// was when the agent stops using them.
func (a *agent) keepModes(ctx context.Context, lib *nvml.Library, gpus []sharing.GPU) error {
	boot, err := process.BootID()
	if err != nil {
		return err
	}
	if a.opt.ReadOnly() {
		return a.leaveModes(ctx, boot, gpus)
	}
	door := gpumode.NVIDIA{Library: lib, Program: nvidiasmi.New(nvidiasmi.Options{Path: nvidiasmi.Find(a.opt.Driver.NVIDIASMI, a.opt.Driver.DevRoot), Libraries: a.opt.Driver.Folders})}
	k, err := gpumode.Open(filepath.Join(a.opt.Dirs.Dir, gpumode.File), boot, door, a.log)
	if err != nil {
		a.runtime.SetWarning("gpu-modes", "time slice, compute mode and power limit are left as they are: "+err.Error())
		return nil
	}
	defer func() {
		if errors.Is(context.Cause(ctx), errRescan) {
			return // they are in use again at once
		}
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), modesLast)
		defer cancel()
		if err := k.Restore(last); err != nil {
			a.log.Warn("gpu settings not put back; the next start of the agent tries again", "error", err.Error())
		}
	}()
	var done map[sharing.GPUID]gpumode.Want
	var tried time.Time
	failed := true // what an earlier agent left is looked at once, whatever is wanted
	t := time.NewTicker(modesEvery)
	defer t.Stop()
	for {
		want := map[sharing.GPUID]gpumode.Want{}
		for _, g := range gpus {
			want[g.UUID] = a.modes(g.UUID)
		}
		if !maps.Equal(want, done) || failed && time.Since(tried) >= modesRetry {
			err := a.applyModes(ctx, k, gpus, want)
			done, tried, failed = want, time.Now(), err != nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-t.C:
		}
	}
}

// leaveModes changes nothing, and says in the node's warnings what differs for that reason.
func (a *agent) leaveModes(ctx context.Context, boot string, gpus []sharing.GPU) error {
	had, err := gpumode.Remembered(filepath.Join(a.opt.Dirs.Dir, gpumode.File), boot, a.log)
	if err != nil {
		a.log.Warn("failed to read the settings that GPUs had before Kerf", "error", err.Error())
	}
	t := time.NewTicker(modesEvery)
	defer t.Stop()
	for {
		var why []string
		if slices.ContainsFunc(gpus, func(g sharing.GPU) bool { return a.modes(g.UUID) != gpumode.Want{} }) {
			why = append(why, "time slice, compute mode and power limit are not set as the pool says")
		}
		if len(had) > 0 || a.mps.changedModes() {
			why = append(why, "settings that Kerf made before are not restored")
		}
		sentence := ""
		if len(why) > 0 {
			sentence = strings.Join(why, ", and ") + ": " + sharing.ReadOnlySettings
		}
		a.runtime.SetWarning("gpu-modes", sentence)
		select {
		case <-ctx.Done():
			return nil
		case <-t.C:
		}
	}
}

// applyModes tells in the node's warnings what could not be done.
func (a *agent) applyModes(ctx context.Context, k *gpumode.Keeper, gpus []sharing.GPU, want map[sharing.GPUID]gpumode.Want) error {
	ctx, cancel := context.WithTimeout(ctx, modesDeadline)
	defer cancel()
	err := k.Apply(ctx, gpus, func(id sharing.GPUID) gpumode.Want { return want[id] })
	sentence := ""
	if err != nil && !errors.Is(err, context.Canceled) {
		sentence = "time slice, compute mode or power limit is not as the pool says: " + err.Error()
		a.log.Warn("gpu settings not made", "error", err.Error())
	}
	a.runtime.SetWarning("gpu-modes", sentence)
	return err
}
