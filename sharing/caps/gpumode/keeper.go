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

	"github.com/kerf-gpu/kerf/sharing"
)

// Driver is how settings are read and made. Errors are of package sharing's vocabulary.
type Driver interface {
	ComputeMode(ctx context.Context, gpu sharing.GPUID) (sharing.ComputeMode, error)
	SetComputeMode(ctx context.Context, gpu sharing.GPUID, mode sharing.ComputeMode) error
	// TimeSlice is sharing.ErrUnsupported where it cannot be told.
	TimeSlice(ctx context.Context, gpu sharing.GPUID) (sharing.TimeSlice, error)
	// SetTimeSlice is sharing.ErrUnsupported where it cannot be read back.
	SetTimeSlice(ctx context.Context, gpu sharing.GPUID, slice sharing.TimeSlice) error
}

// Want is what GPUs should have. The zero value wants nothing, and so what was there before.
type Want struct {
	TimeSlice   sharing.TimeSlice
	ComputeMode sharing.ComputeMode
}

// Keeper makes settings and remembers what was there. It is for one goroutine at a time.
type Keeper struct {
	path, boot string
	settings   []setting
	log        *slog.Logger
	memory     memory
}

// Open reads what was remembered in the file at path, whose directory exists; boot is the kernel's boot id.
func Open(path, boot string, driver Driver, log *slog.Logger) (*Keeper, error) {
	k := &Keeper{path: path, boot: boot, settings: settings(driver), log: log}
	if err := k.load(); err != nil {
		return nil, err
	}
	return k, nil
}

// setting is one of the two, as words.
type setting struct {
	name string
	want func(Want) string
	// get returns "" where the GPU has one that cannot be told.
	get func(ctx context.Context, id sharing.GPUID) (string, error)
	set func(ctx context.Context, id sharing.GPUID, word string) error
}

func settings(d Driver) []setting {
	return []setting{
		{
			name: "timeSlice",
			want: func(w Want) string { return w.TimeSlice.String() },
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
			want: func(w Want) string { return w.ComputeMode.String() },
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
	}
}

// Apply gives all the GPUs what is wanted, and puts back what is not wanted any more, also on GPUs that are not
// among them. It goes on after an error; all are joined. MIG GPUs have no time slices, and are left alone.
func (k *Keeper) Apply(ctx context.Context, gpus []sharing.GPU, want Want) error {
	var errs []error
	kept := map[sharing.GPUID]bool{}
	for _, g := range gpus {
		if g.MIG {
			continue
		}
		kept[g.UUID] = true
		for _, s := range k.settings {
			word := s.want(want)
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
			if !kept[id] {
				errs = append(errs, k.restore(ctx, id, s))
			}
		}
	}
	return errors.Join(errs...)
}

// Restore puts back everything. What cannot be put back stays remembered.
func (k *Keeper) Restore(ctx context.Context) error { return k.Apply(ctx, nil, Want{}) }

// give makes one setting of one GPU.
func (k *Keeper) give(ctx context.Context, id sharing.GPUID, s setting, want string) error {
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
	err = s.set(ctx, id, want)
	k.log.Info("gpu setting", "gpu", string(id), "setting", s.name, "before", before, "set", want, "error", err)
	return err
}

// restore puts one setting of one GPU back, if it was changed here and nobody else has changed it since.
func (k *Keeper) restore(ctx context.Context, id sharing.GPUID, s setting) error {
	c := k.memory.of(id, s.name)
	if c == nil {
		return nil
	}
	now, err := s.get(ctx, id)
	switch {
	case err != nil:
	case now == c.Before:
	case now != "" && !slices.Contains(c.Ours, now):
		k.log.Warn("gpu setting was changed by others and stays", "gpu", string(id), "setting", s.name, "now", now, "before", c.Before)
	default:
		err = s.set(ctx, id, c.Before)
		if now == "" && errors.Is(err, sharing.ErrUnsupported) {
			err = nil // it cannot be read back any more than before
		}
		k.log.Info("gpu setting put back", "gpu", string(id), "setting", s.name, "to", c.Before, "error", err)
	}
	if err != nil {
		return fmt.Errorf("put back %s of gpu %q: %w", s.name, string(id), err)
	}
	k.memory.forget(id, s.name)
	return k.save()
}
