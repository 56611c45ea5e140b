// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"encoding/json"
	"errors"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"slices"

	"github.com/kerf-gpu/kerf/deviceplugin"
	"github.com/kerf-gpu/kerf/internal/atomicfile"
	"github.com/kerf-gpu/kerf/mig"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/config"
)

// knownGPUs remembers every GPU that this boot has had. So a lost GPU does not change what a node advertises, not even
// over a restart of the agent.
type knownGPUs struct {
	file  string
	boot  string
	log   *slog.Logger
	units map[sharing.GPURef]deviceplugin.Unit
}

// knownFile is the form on disk.
type knownFile struct {
	BootID string      `json:"boot_id"`
	Units  []knownUnit `json:"units"`
}

type knownUnit struct {
	UUID      string                   `json:"uuid"`
	NUMA      int                      `json:"numa"`
	GiB       int                      `json:"gib"`
	Percent   int                      `json:"percent,omitempty"`
	NoShare   bool                     `json:"no_share,omitempty"`
	InMIGMode bool                     `json:"cut,omitempty"`
	MIG       []deviceplugin.Instances `json:"mig,omitempty"`
}

// cutRules say how GPUs in MIG mode are counted.
type cutRules struct {
	// most is how many instances of each profile a GPU can have, by the profiles' names. A profile is missing while
	// that is unknown.
	most map[sharing.GPUID]map[string]int
	// gives is what a GPU gives; nil where all give what the node offers.
	gives func(sharing.GPU) config.Mode
	// excluded are left to others: they are not counted.
	excluded []sharing.GPU
	// memory is true where memory may be asked for that an instance gives.
	memory bool
	// turns are the GPUs whose MIG mode demand may change: they count with all that they give in either mode, whichever
	// they are in. It is nil while that is not known.
	turns map[sharing.GPUID]bool
	// shared are the GPUs whose instances are shared, and count each by itself.
	shared map[sharing.GPUID]bool
}

// rulesOf are the rules that follow from what the MIG manager knows. known is false without one.
func rulesOf(states []mig.State, known bool) cutRules {
	if !known {
		return cutRules{}
	}
	r := cutRules{most: map[sharing.GPUID]map[string]int{}, turns: map[sharing.GPUID]bool{},
		shared: map[sharing.GPUID]bool{}}
	for _, s := range states {
		r.most[s.GPU], r.turns[s.GPU], r.shared[s.GPU] = s.MaxInstances, s.ModeSwitchable, s.Shared
	}
	return r
}

// loadKnown reads what was remembered. A file that cannot be read, or is of another boot, is none: what the
// driver shows then counts.
func loadKnown(file, boot string, log *slog.Logger) *knownGPUs {
	k := &knownGPUs{file: file, boot: boot, log: log, units: map[sharing.GPURef]deviceplugin.Unit{}}
	data, err := os.ReadFile(file)
	var f knownFile
	if err == nil {
		err = json.Unmarshal(data, &f)
	}
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			log.Warn("failed to read the GPUs of the last run", "file", file, "error", err.Error())
		}
		return k
	}
	if f.BootID != boot {
		return k
	}
	for _, u := range f.Units {
		ref, err := sharing.ParseGPURef(u.UUID)
		if err != nil {
			log.Warn("failed to read a GPU of the last run", "file", file, "error", err.Error())
			continue
		}
		k.units[ref] = deviceplugin.Unit{GPU: ref, NUMA: u.NUMA, GiB: u.GiB, Percent: u.Percent, Lost: true,
			NoShare: u.NoShare, InMIGMode: u.InMIGMode, MIG: u.MIG}
	}
	return k
}

// take takes in what the runtime shows and returns all units, in the order of their UUIDs. A GPU in MIG mode
// is neither shared nor given whole: it counts with the instances that it can have.
func (k *knownGPUs) take(gpus []sharing.GPU, rules cutRules) []deviceplugin.Unit {
	for id, u := range k.units {
		u.Lost = true
		k.units[id] = u
		if id.IsInstance() && !slices.ContainsFunc(gpus, func(g sharing.GPU) bool { return g.Ref() == id }) {
			delete(k.units, id) // it was removed with the layout, and has no share
		}
	}
	grown := false
	for _, g := range rules.excluded {
		_, known := k.units[g.Ref()]
		grown = grown || known
		delete(k.units, g.Ref())
	}
	for _, g := range gpus {
		old, known := k.units[g.Ref()]
		lost := g.Health == sharing.HealthLost || g.Health == sharing.HealthUnhealthy ||
			// there is no driver any more; before the first probe there is no reason
			g.Health == sharing.HealthUnknown && g.HealthReason != ""
		if g.Memory == 0 && !g.SystemMemory {
			continue
		}
		turns := rules.turns[g.UUID] && !g.Ref().IsInstance() || rules.turns == nil && turned(old)
		u := deviceplugin.Unit{GPU: g.Ref(), NUMA: g.NUMA, GiB: int(g.Bookable() / sharing.GiB), Lost: lost, InMIGMode: g.MIG && !turns || g.Ref().IsInstance()} //nolint:gosec // far below 2^31 GiB
		if p := g.BookablePercent(); p > sharing.FullGPU {
			u.Percent = int(p)
		}
		if rules.gives != nil && !g.Ref().IsInstance() {
			mode := rules.gives(g)
			u.NoShare, u.NoWhole = !mode.Shared(), !mode.Whole()
		}
		u.NoShare = u.NoShare || g.SystemMemory
		most := rules.most[g.UUID]
		if g.MIG || turns {
			if u.MIG = instancesOf(most); most == nil && (old.InMIGMode || turned(old)) {
				u.MIG = old.MIG
			}
		}
		switch {
		case turns && g.MIG && turned(old):
			u.GiB, u.Percent = old.GiB, old.Percent // as outside of MIG mode
		case g.MIG && !turns:
			if !rules.memory || rules.shared[g.UUID] || most != nil && u.MIG == nil {
				u.GiB = 0
			}
			if rules.shared[g.UUID] {
				u.MIG = nil
			}
		}
		k.units[g.Ref()] = u
		grown = grown || !known || old.InMIGMode != u.InMIGMode || old.GiB != u.GiB || old.Percent != u.Percent ||
			old.NoShare != u.NoShare ||
			!slices.Equal(old.MIG, u.MIG)
	}
	if grown {
		k.save()
	}
	return k.sorted()
}

// turned reports whether a unit counted with both modes.
func turned(u deviceplugin.Unit) bool { return !u.InMIGMode && len(u.MIG) > 0 }

// instancesOf names the profiles as resources; nil for none.
func instancesOf(most map[string]int) []deviceplugin.Instances {
	var out []deviceplugin.Instances
	for _, name := range slices.Sorted(maps.Keys(most)) {
		if resource, ok := sharing.MIGResource(name); ok && most[name] > 0 {
			out = append(out, deviceplugin.Instances{Resource: resource, Count: most[name]})
		}
	}
	return out
}

func (k *knownGPUs) sorted() []deviceplugin.Unit {
	out := make([]deviceplugin.Unit, 0, len(k.units))
	for _, u := range k.units {
		out = append(out, u)
	}
	slices.SortFunc(out, func(a, b deviceplugin.Unit) int { return a.GPU.Compare(b.GPU) })
	return out
}

func (k *knownGPUs) save() {
	f := knownFile{BootID: k.boot}
	for _, u := range k.sorted() {
		f.Units = append(f.Units, knownUnit{UUID: u.GPU.String(), NUMA: u.NUMA, GiB: u.GiB, Percent: u.Percent,
			NoShare: u.NoShare, InMIGMode: u.InMIGMode, MIG: u.MIG})
	}
	data, err := json.Marshal(f)
	if err == nil {
		err = atomicfile.Write(k.file, data, 0o600)
	}
	if err != nil {
		k.log.Warn("failed to save the list of GPUs", "file", k.file, "error", err.Error())
	}
}
