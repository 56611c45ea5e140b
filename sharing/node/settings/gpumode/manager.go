// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package gpumode

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"

	"github.com/kerf-gpu/kerf/internal/nvidiasmi"
	"github.com/kerf-gpu/kerf/internal/nvml"
	"github.com/kerf-gpu/kerf/sharing"
)

// Driver is how settings are read and made. Errors are of package sharing's vocabulary.
type Driver interface {
	ComputeMode(ctx context.Context, gpu sharing.GPUID) (sharing.ComputeMode, error)
	SetComputeMode(ctx context.Context, gpu sharing.GPUID, mode sharing.ComputeMode) error
	// TimeSlice is sharing.ErrUnsupported if it is unknown.
	TimeSlice(ctx context.Context, gpu sharing.GPUID) (sharing.TimeSlice, error)
	// SetTimeSlice is sharing.ErrUnsupported where it cannot be read back.
	SetTimeSlice(ctx context.Context, gpu sharing.GPUID, slice sharing.TimeSlice) error
	PowerLimit(ctx context.Context, gpu sharing.GPUID) (milliwatts uint32, err error)
	SetPowerLimit(ctx context.Context, gpu sharing.GPUID, milliwatts uint32) error
}

// Desired is what a GPU should have. The zero value wants nothing, and so what was there before.
type Desired struct {
	TimeSlice   sharing.TimeSlice
	ComputeMode sharing.ComputeMode
	// PowerLimit is in milliwatts; 0 for what was there before.
	PowerLimit uint32
}

// Manager makes settings and remembers what was there. It is for one goroutine at a time.
type Manager struct {
	path, boot string
	settings   []setting
	log        *slog.Logger
	memory     memory
}

// Open reads what was remembered in the file at path, whose directory exists; boot is the kernel's boot id.
func Open(path, boot string, driver Driver, log *slog.Logger) (*Manager, error) {
	k := &Manager{path: path, boot: boot, settings: settings(driver), log: log}
	if err := k.load(); err != nil {
		return nil, err
	}
	return k, nil
}

// Remembered are the GPUs of which the file at path says what they had before, sorted; none where there is no file. It
// needs no driver.
func Remembered(path, boot string, log *slog.Logger) ([]sharing.GPUID, error) {
	k := &Manager{path: path, boot: boot, log: log}
	if err := k.load(); err != nil {
		return nil, err
	}
	return slices.Sorted(maps.Keys(k.memory.GPUs)), nil
}

// setting is one of the three, as words.
type setting struct {
	name string
	// onMIG is true for one that a GPU in MIG mode has, too.
	cut  bool
	want func(Desired) string
	// get returns "" if the GPU has an unknown one.
	get func(ctx context.Context, id sharing.GPUID) (string, error)
	set func(ctx context.Context, id sharing.GPUID, word string) error
}

func settings(d Driver) []setting {
	return []setting{
		{
			name: "timeSlice",
			want: func(w Desired) string { return w.TimeSlice.String() },
			get: func(ctx context.Context, id sharing.GPUID) (string, error) {
				s, err := d.TimeSlice(ctx, id)
				if errors.Is(err, sharing.ErrUnsupported) {
					return "", nil
				}
				return s.String(), err
			},
			set: func(ctx context.Context, id sharing.GPUID, word string) error {
				s, err := sharing.ParseTimeSlice("timeSlice", word)
				if err != nil {
					return err
				}
				return d.SetTimeSlice(ctx, id, s)
			},
		},
		{
			name: "computeMode",
			want: func(w Desired) string { return w.ComputeMode.String() },
			get: func(ctx context.Context, id sharing.GPUID) (string, error) {
				m, err := d.ComputeMode(ctx, id)
				return m.String(), err
			},
			set: func(ctx context.Context, id sharing.GPUID, word string) error {
				m, err := sharing.ParseComputeMode("computeMode", word)
				if err != nil {
					return err
				}
				if err := d.SetComputeMode(ctx, id, m); err != nil {
					return err
				}
				got, err := d.ComputeMode(ctx, id)
				if err == nil && got != m {
					err = fmt.Errorf("compute mode reads back as %s, not %s: %w", got, m, sharing.ErrConflict)
				}
				return err
			},
		},
		{
			name: "powerLimit", cut: true,
			want: func(w Desired) string {
				if w.PowerLimit == 0 {
					return ""
				}
				return strconv.FormatUint(uint64(w.PowerLimit), 10)
			},
			get: func(ctx context.Context, id sharing.GPUID) (string, error) {
				mw, err := d.PowerLimit(ctx, id)
				return strconv.FormatUint(uint64(mw), 10), err
			},
			set: func(ctx context.Context, id sharing.GPUID, word string) error {
				mw, err := strconv.ParseUint(word, 10, 32)
				if err != nil {
					return fmt.Errorf("power limit %q: %w", word, sharing.ErrInvalid)
				}
				if err := d.SetPowerLimit(ctx, id, uint32(mw)); err != nil {
					return err
				}
				got, err := d.PowerLimit(ctx, id)
				if err == nil && uint64(got) != mw {
					err = fmt.Errorf("power limit reads back as %d mW, not %d: %w", got, mw, sharing.ErrConflict)
				}
				return err
			},
		},
	}
}

// Apply gives each of the GPUs the settings of want, and restores those that are not desired any more, also on other
// GPUs. It goes on after an error and joins all. GPUs in MIG mode have a power limit alone.
func (k *Manager) Apply(ctx context.Context, gpus []sharing.GPU, want func(sharing.GPUID) Desired) error {
	type one struct {
		gpu     sharing.GPUID
		setting string
	}
	var errs []error
	kept := map[one]bool{}
	for _, g := range gpus {
		for _, s := range k.settings {
			if g.MIG && !s.cut {
				continue
			}
			kept[one{g.UUID, s.name}] = true
			word := s.want(want(g.UUID))
			if word == "" {
				errs = append(errs, k.restore(ctx, g.UUID, s))
				continue
			}
			if err := k.give(ctx, g.UUID, s, word); err != nil {
				errs = append(errs, fmt.Errorf("%s of gpu %q: %w", s.name, string(g.UUID), err))
			}
		}
	}
	for _, id := range slices.Sorted(maps.Keys(k.memory.GPUs)) {
		for _, s := range k.settings {
			if !kept[one{id, s.name}] {
				errs = append(errs, k.restore(ctx, id, s))
			}
		}
	}
	return errors.Join(errs...)
}

// Restore puts back everything. What cannot be put back stays remembered.
func (k *Manager) Restore(ctx context.Context) error { return k.Apply(ctx, nil, nil) }

// give makes one setting of one GPU.
func (k *Manager) give(ctx context.Context, id sharing.GPUID, s setting, want string) error {
	now, err := s.get(ctx, id)
	if err != nil {
		return err
	}
	if now == want {
		return nil
	}
	before := now
	if before == "" {
		before = sharing.TimeSliceDefault.String()
	}
	if k.memory.note(id, s.name, before, want) {
		if err := k.save(); err != nil {
			return err // without a note nothing is changed
		}
	}
	if err := s.set(ctx, id, want); err != nil {
		return err
	}
	k.log.Info("changed GPU setting", "gpu", string(id), "setting", s.name, "before", before, "set", want)
	return nil
}

// restore restores one setting of one GPU, if it was changed here and no other program has changed it since.
func (k *Manager) restore(ctx context.Context, id sharing.GPUID, s setting) error {
	c := k.memory.of(id, s.name)
	if c == nil {
		return nil
	}
	now, err := s.get(ctx, id)
	switch {
	case err != nil:
	case now == c.Before:
	case now != "" && !slices.Contains(c.SetByKerf, now):
		k.log.Warn("kept GPU setting that another program changed", "gpu", string(id), "setting", s.name, "now", now,
			"before", c.Before)
	default:
		err = s.set(ctx, id, c.Before)
		if now == "" && errors.Is(err, sharing.ErrUnsupported) {
			err = nil // it cannot be read back any more than before
		}
		k.log.Info("restored GPU setting", "gpu", string(id), "setting", s.name, "to", c.Before, "error", err)
	}
	if err != nil {
		return fmt.Errorf("put back %s of gpu %q: %w", s.name, string(id), err)
	}
	k.memory.forget(id, s.name)
	return k.save()
}

// File is the name of the file in the agent's folder that has what GPUs had before.
const File = "gpu-modes.json"

// NVIDIA is the driver: NVML, and nvidia-smi for the time slice, which NVML lacks.
type NVIDIA struct {
	Library *nvml.Library
	Program *nvidiasmi.Program
}

var _ Driver = NVIDIA{}

// ComputeMode implements Driver.
func (d NVIDIA) ComputeMode(ctx context.Context, gpu sharing.GPUID) (sharing.ComputeMode, error) {
	return d.Library.ComputeMode(ctx, gpu)
}

// SetComputeMode implements Driver.
func (d NVIDIA) SetComputeMode(ctx context.Context, gpu sharing.GPUID, mode sharing.ComputeMode) error {
	return d.Library.SetComputeMode(ctx, gpu, mode)
}

// TimeSlice implements Driver.
func (d NVIDIA) TimeSlice(ctx context.Context, gpu sharing.GPUID) (sharing.TimeSlice, error) {
	return d.Program.TimeSlice(ctx, gpu)
}

// SetTimeSlice implements Driver.
func (d NVIDIA) SetTimeSlice(ctx context.Context, gpu sharing.GPUID, slice sharing.TimeSlice) error {
	return d.Program.SetTimeSlice(ctx, gpu, slice)
}

// PowerLimit implements Driver.
func (d NVIDIA) PowerLimit(ctx context.Context, gpu sharing.GPUID) (milliwatts uint32, err error) {
	limit, err := d.Library.PowerLimit(ctx, gpu)
	return limit.Now, err
}

// SetPowerLimit implements Driver.
func (d NVIDIA) SetPowerLimit(ctx context.Context, gpu sharing.GPUID, milliwatts uint32) error {
	return d.Library.SetPowerLimit(ctx, gpu, milliwatts)
}
