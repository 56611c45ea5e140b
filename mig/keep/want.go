// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package keep

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/config"
)

// Want is what a pool wants of one GPU.
type Want struct {
	// Leave is true where the pool says nothing of its MIG mode.
	Leave bool
	// Auto is true where the mode is demand's to change: nothing else says what it is to be.
	Auto bool
	// On is the MIG mode that is wanted, if not Leave.
	On bool
	// Fixed are all the instances that the GPU has; nil where they are cut on demand.
	Fixed []config.MIGCount
	// Shared is true where the instances are shared, and none is given whole.
	Shared bool
}

// wanted is what the pool in force wants of the GPU. Demand changes no mode where settings are read-only.
func (d *deps) wanted(g sharing.GPU) Want {
	w := Wanted(d.opt.Pool(), g)
	w.Auto = w.Auto && !d.opt.ReadOnly
	return w
}

// mayChange rejects a change where settings are read-only.
func (d *deps) mayChange(what string) error {
	if d.opt.ReadOnly {
		return &sharing.ReadOnlyError{Change: what}
	}
	return nil
}

// Wanted is what the pool wants of the GPU. Of several layouts that mean it the last one holds; where none does, a pool
// of MIG instances wants the mode of GPUs that can do it, and one that offers everything leaves it to demand, unless it says otherwise.
func Wanted(pool config.Pool, g sharing.GPU) Want {
	for _, l := range slices.Backward(pool.MIG) {
		if !means(l, g) {
			continue
		}
		w := Want{On: l.Enabled, Shared: l.Shared}
		for _, n := range l.Instances {
			if n.Count > 0 {
				w.Fixed = append(w.Fixed, n)
			}
		}
		return w
	}
	switch cmp.Or(pool.Of(g).Mode, pool.Mode) {
	case config.ModeMIG:
		return Want{On: true}
	case config.ModeAuto:
		return Want{Leave: true, Auto: pool.FollowsDemand() && !pool.Of(g).Exclude}
	case config.ModeShared, config.ModeWhole:
	}
	return Want{Leave: true}
}

func means(l config.MIGLayout, g sharing.GPU) bool {
	if len(l.GPUs) > 0 && !slices.Contains(l.GPUs, g.Index) {
		return false
	}
	product := config.PCIName(g.Product)
	board := product + ":" + config.PCIName(g.Board)
	return len(l.PCI) == 0 || slices.ContainsFunc(l.PCI, func(id string) bool {
		return strings.EqualFold(id, product) || strings.EqualFold(id, board)
	})
}

// String says it in a few words.
func (w Want) String() string {
	switch {
	case w.Auto:
		return "as demand asks"
	case w.Leave:
		return "as it is"
	case !w.On:
		return "off"
	case len(w.Fixed) == 0:
		return "on, cut on demand"
	}
	var pieces []string
	for _, n := range w.Fixed {
		pieces = append(pieces, fmt.Sprintf("%s: %d", n.Profile, n.Count))
	}
	text := "{" + strings.Join(pieces, ", ") + "}"
	if w.Shared {
		text += ", shared"
	}
	return text
}

func (w Want) equal(v Want) bool {
	return w.Leave == v.Leave && w.Auto == v.Auto && w.On == v.On && w.Shared == v.Shared && slices.Equal(w.Fixed, v.Fixed)
}
