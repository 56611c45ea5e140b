// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"slices"

	"github.com/kerf-gpu/kerf/deviceplugin"
	"github.com/kerf-gpu/kerf/internal/atomicfile"
	"github.com/kerf-gpu/kerf/sharing"
)

// knownGPUs remembers every GPU that this boot has had, so that what a node offers does not change because a
// GPU was lost, not even over a restart of the agent.
type knownGPUs struct {
	file  string
	boot  string
	log   *slog.Logger
	units map[sharing.GPUID]deviceplugin.Unit
}

// knownFile is the form on disk.
type knownFile struct {
	BootID string      `json:"boot_id"`
	Units  []knownUnit `json:"units"`
}

type knownUnit struct {
	UUID sharing.GPUID `json:"uuid"`
	NUMA int           `json:"numa"`
	GiB  int           `json:"gib"`
}

// loadKnown reads what was remembered. A file that cannot be read, or is of another boot, is none: what the
// driver shows then counts.
func loadKnown(file, boot string, log *slog.Logger) *knownGPUs {
	k := &knownGPUs{file: file, boot: boot, log: log, units: map[sharing.GPUID]deviceplugin.Unit{}}
	data, err := os.ReadFile(file)
	var f knownFile
	if err == nil {
		err = json.Unmarshal(data, &f)
	}
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			log.Warn("GPUs of before not remembered", "file", file, "error", err.Error())
		}
		return k
	}
	if f.BootID != boot {
		return k
	}
	for _, u := range f.Units {
		k.units[u.UUID] = deviceplugin.Unit{UUID: u.UUID, NUMA: u.NUMA, GiB: u.GiB, Lost: true}
	}
	return k
}

// take takes in what the runtime shows and returns all units, in the order of their UUIDs. A GPU in MIG mode
// is neither shared nor given whole, so it is not counted.
func (k *knownGPUs) take(gpus []sharing.GPU) []deviceplugin.Unit {
	for id, u := range k.units {
		u.Lost = true
		k.units[id] = u
	}
	grown := false
	for _, g := range gpus {
		_, known := k.units[g.UUID]
		lost := g.Health == sharing.HealthLost || g.Health == sharing.HealthUnhealthy ||
			g.Health == sharing.HealthUnknown && g.HealthReason != "" // there is no driver any more; before the first probe there is no reason
		switch {
		case g.MIG:
			delete(k.units, g.UUID)
		case g.Memory > 0:
			u := deviceplugin.Unit{UUID: g.UUID, NUMA: g.NUMA, GiB: int(g.Usable() / sharing.GiB), Lost: lost} //nolint:gosec // far below 2^31 GiB
			k.units[g.UUID] = u
			grown = grown || !known
		}
	}
	if grown {
		k.save()
	}
	return k.sorted()
}

func (k *knownGPUs) sorted() []deviceplugin.Unit {
	out := make([]deviceplugin.Unit, 0, len(k.units))
	for _, u := range k.units {
		out = append(out, u)
	}
	slices.SortFunc(out, func(a, b deviceplugin.Unit) int { return cmp.Compare(a.UUID, b.UUID) })
	return out
}

func (k *knownGPUs) save() {
	f := knownFile{BootID: k.boot}
	for _, u := range k.sorted() {
		f.Units = append(f.Units, knownUnit{UUID: u.UUID, NUMA: u.NUMA, GiB: u.GiB})
	}
	data, err := json.Marshal(f)
	if err == nil {
		err = atomicfile.Write(k.file, data, 0o600)
	}
	if err != nil {
		k.log.Warn("GPUs not remembered over a restart", "file", k.file, "error", err.Error())
	}
}
