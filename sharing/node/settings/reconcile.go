// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package settings

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/kerf-gpu/kerf/internal/nvidiasmi"
	"github.com/kerf-gpu/kerf/internal/nvml"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/node"
	"github.com/kerf-gpu/kerf/sharing/node/conditions"
	"github.com/kerf-gpu/kerf/sharing/node/options"
	"github.com/kerf-gpu/kerf/sharing/node/settings/gpumode"
)

// ErrRescan says that the session must take in the GPUs again.
var ErrRescan = errors.New("the inventory has changed")

const (
	// modesRetry is the time until the next attempt after a failure: another program may have the GPU meanwhile.
	modesRetry = 30 * time.Second
	// modesDeadline bounds the settings of all GPUs. modesLast bounds their restoration at the end.
	modesDeadline = 2 * time.Minute
	modesLast     = 20 * time.Second
)

// Reconciler gives the GPUs of one driver the settings that they should have. Each change of config, inventory or users
// wakes it.
type Reconciler struct {
	Log     *slog.Logger
	Options *options.Options
	Runtime *node.Runtime
	Boot    string
	Library *nvml.Library
	// GPUs are those in use.
	GPUs []sharing.GPU
	// MPSChanged reports whether MPS has changed the compute mode of a GPU.
	MPSChanged func() bool
}

// Run reconciles until ctx ends. It returns ErrRescan when a GPU is left to others, or no longer is: its lock and its
// health belong to the session.
func (r *Reconciler) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return r.settle(ctx) })
	if r.Options.ReadOnly() {
		g.Go(func() error { return r.leaveModes(ctx) })
	} else {
		g.Go(func() error { return r.applyModes(ctx) })
	}
	return g.Wait() //nolint:wrapcheck // it is ErrRescan
}

// settle changes what can be granted. It does not wait for the driver.
func (r *Reconciler) settle(ctx context.Context) error {
	for {
		changed := r.Runtime.Changed()
		r.Runtime.Settings().Settle()
		if !slices.EqualFunc(r.Runtime.Settings().Used(), r.GPUs,
			func(a, b sharing.GPU) bool { return a.UUID == b.UUID }) {
			return fmt.Errorf("the rules for the node's GPUs have changed: %w", ErrRescan)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		}
	}
}

// wanted are the time slice, compute mode and power limit that the GPUs should have.
func (r *Reconciler) wanted() map[sharing.GPUID]gpumode.Desired {
	want := make(map[sharing.GPUID]gpumode.Desired, len(r.GPUs))
	for _, g := range r.GPUs {
		s := r.Runtime.Settings().Has(g.UUID)
		watts := uint32(s.PowerLimitWatts) //nolint:gosec // at most config.MaxPowerWatts
		want[g.UUID] = gpumode.Desired{TimeSlice: s.TimeSlice, ComputeMode: s.ComputeMode, PowerLimit: watts * 1000}
	}
	return want
}

// applyModes sets what wanted returns, and restores what there was before when the agent stops using the GPUs.
func (r *Reconciler) applyModes(ctx context.Context) error {
	smi := nvidiasmi.Options{Path: nvidiasmi.Find(r.Options.Driver.NVIDIASMI, r.Options.Driver.DevRoot),
		Libraries: r.Options.Driver.Folders}
	k, err := gpumode.Open(r.modesFile(), r.Boot, gpumode.NVIDIA{Library: r.Library, Program: nvidiasmi.New(smi)},
		r.Log)
	if err != nil {
		r.Runtime.Conditions.Set(conditions.GPUModes, "time slice, compute mode and power limit are left as they are: "+
			err.Error())
		return nil
	}
	defer func() {
		if errors.Is(context.Cause(ctx), ErrRescan) {
			return // the next session has the GPUs at once
		}
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), modesLast)
		defer cancel()
		if err := k.Restore(last); err != nil {
			r.Log.Warn("failed to restore GPU settings, will retry at next start", "error", err.Error())
		}
	}()
	var done map[sharing.GPUID]gpumode.Desired
	retry := time.NewTimer(0) // an earlier agent may have left settings
	defer retry.Stop()
	for due := false; ; {
		changed := r.Runtime.Changed()
		if want := r.wanted(); due || !maps.Equal(want, done) {
			retry.Stop()
			if err := r.makeModes(ctx, k, want); err != nil {
				retry.Reset(modesRetry)
			}
			done = want
		}
		due = false
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		case <-retry.C:
			due = true
		}
	}
}

func (r *Reconciler) modesFile() string { return filepath.Join(r.Options.Dirs.Dir, gpumode.File) }

// makeModes shows what failed in the node's warnings.
func (r *Reconciler) makeModes(ctx context.Context, k *gpumode.Manager, want map[sharing.GPUID]gpumode.Desired) error {
	ctx, cancel := context.WithTimeout(ctx, modesDeadline)
	defer cancel()
	err := k.Apply(ctx, r.GPUs, func(id sharing.GPUID) gpumode.Desired { return want[id] })
	sentence := ""
	if err != nil && !errors.Is(err, context.Canceled) {
		sentence = "time slice, compute mode or power limit is not as the pool says: " + err.Error()
		r.Log.Warn("failed to apply GPU settings", "error", err.Error())
	}
	r.Runtime.Conditions.Set(conditions.GPUModes, sentence)
	return err
}

// leaveModes changes nothing, and shows in the node's warnings what differs for that reason.
func (r *Reconciler) leaveModes(ctx context.Context) error {
	had, err := gpumode.Remembered(r.modesFile(), r.Boot, r.Log)
	if err != nil {
		r.Log.Warn("failed to read the settings that GPUs had before Kerf", "error", err.Error())
	}
	for {
		changed := r.Runtime.Changed()
		var why []string
		for _, want := range r.wanted() {
			if want != (gpumode.Desired{}) {
				why = []string{"time slice, compute mode and power limit are not set as the pool says"}
			}
		}
		if len(had) > 0 || r.MPSChanged() {
			why = append(why, "settings that Kerf made before are not restored")
		}
		sentence := ""
		if len(why) > 0 {
			sentence = strings.Join(why, ", and ") + ": " + sharing.ReadOnlySettings
		}
		r.Runtime.Conditions.Set(conditions.GPUModes, sentence)
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		}
	}
}
