// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package settings

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
	"github.com/kerf-gpu/kerf/sharing/node/conditions"
	"github.com/kerf-gpu/kerf/sharing/node/settings/gpumode"
)

const (
	// modesEvery is how often a changed pool is looked for, modesRetry how long after a failure it is tried again.
	modesEvery = 2 * time.Second
	modesRetry = 30 * time.Second
	// modesDeadline bounds settings on all GPUs, modesLast putting them back at the end.
	modesDeadline = 2 * time.Minute
	modesLast     = 20 * time.Second
)

// KeepModes gives the GPUs the time slice, compute mode and power limit that are in force for them, and puts back what there
// was when the agent stops using them.
func (r *Rules) KeepModes(ctx context.Context, lib *nvml.Library, gpus []sharing.GPU, mpsChanged func() bool) error {
	boot, err := process.BootID()
	if err != nil {
		return err
	}
	if r.Options.ReadOnly() {
		return r.leaveModes(ctx, boot, gpus, mpsChanged)
	}
	door := gpumode.NVIDIA{Library: lib, Program: nvidiasmi.New(nvidiasmi.Options{Path: nvidiasmi.Find(r.Options.Driver.NVIDIASMI, r.Options.Driver.DevRoot), Libraries: r.Options.Driver.Folders})}
	k, err := gpumode.Open(filepath.Join(r.Options.Dirs.Dir, gpumode.File), boot, door, r.Log)
	if err != nil {
		r.Runtime.Conditions().Set(conditions.GPUModes, "time slice, compute mode and power limit are left as they are: "+err.Error())
		return nil
	}
	defer func() {
		if errors.Is(context.Cause(ctx), ErrRescan) {
			return // they are in use again at once
		}
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), modesLast)
		defer cancel()
		if err := k.Restore(last); err != nil {
			r.Log.Warn("gpu settings not put back; the next start of the agent tries again", "error", err.Error())
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
			want[g.UUID] = r.modes(g.UUID)
		}
		if !maps.Equal(want, done) || failed && time.Since(tried) >= modesRetry {
			err := r.applyModes(ctx, k, gpus, want)
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
func (r *Rules) leaveModes(ctx context.Context, boot string, gpus []sharing.GPU, mpsChanged func() bool) error {
	had, err := gpumode.Remembered(filepath.Join(r.Options.Dirs.Dir, gpumode.File), boot, r.Log)
	if err != nil {
		r.Log.Warn("failed to read the settings that GPUs had before Kerf", "error", err.Error())
	}
	t := time.NewTicker(modesEvery)
	defer t.Stop()
	for {
		var why []string
		if slices.ContainsFunc(gpus, func(g sharing.GPU) bool { return r.modes(g.UUID) != gpumode.Want{} }) {
			why = append(why, "time slice, compute mode and power limit are not set as the pool says")
		}
		if len(had) > 0 || mpsChanged() {
			why = append(why, "settings that Kerf made before are not restored")
		}
		sentence := ""
		if len(why) > 0 {
			sentence = strings.Join(why, ", and ") + ": " + sharing.ReadOnlySettings
		}
		r.Runtime.Conditions().Set(conditions.GPUModes, sentence)
		select {
		case <-ctx.Done():
			return nil
		case <-t.C:
		}
	}
}

// applyModes tells in the node's warnings what could not be done.
func (r *Rules) applyModes(ctx context.Context, k *gpumode.Keeper, gpus []sharing.GPU, want map[sharing.GPUID]gpumode.Want) error {
	ctx, cancel := context.WithTimeout(ctx, modesDeadline)
	defer cancel()
	err := k.Apply(ctx, gpus, func(id sharing.GPUID) gpumode.Want { return want[id] })
	sentence := ""
	if err != nil && !errors.Is(err, context.Canceled) {
		sentence = "time slice, compute mode or power limit is not as the pool says: " + err.Error()
		r.Log.Warn("gpu settings not made", "error", err.Error())
	}
	r.Runtime.Conditions().Set(conditions.GPUModes, sentence)
	return err
}
