// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package deviceplugin

import (
	"cmp"
	"maps"
	"slices"

	"github.com/kerf-gpu/kerf/sharing"
)

// view is what the health of one resource's ids is decided from.
type view struct {
	resource string
	inv      Inventory
	// held are the ids of this resource that each container holds; known is false until kubelet answers. The keys
	// have no PodUID, because podresources has none.
	held  map[sharing.ContainerRef][]string
	known bool
	// on are the GPUs of each container that holds a grant; keys as those of held.
	on map[sharing.ContainerRef][]sharing.GPURef
	// was is the list that kubelet has, nil at first: what need not change does not.
	was *list
}

// decide says which ids there are and which of them are healthy. It is a pure function.
//
//   - There is an id for every unit of the inventory, and one for each that a container still has from a larger
//     inventory. Kubelet does not restart a container whose ids are gone.
//   - Of a container on a lost GPU, the ids of that GPU are unhealthy. That is all of them, or a part if the container
//     has several GPUs.
//   - Free ids are unhealthy for the rest of what was lost and withdrawn. For whole GPUs, ids of the lost GPU's NUMA
//     node come first. Then those that were unhealthy before, so that the choice is stable while containers come and
//     go.
//   - An id that is held otherwise is healthy, and so is every id once nothing is lost.
//
// While the owners of ids are unknown, any id may belong to a container that runs well. Then none is unhealthy unless
// all units are lost.
func decide(v view) *list {
	devices, missing, lost := v.devices()
	if !v.known {
		for i := range devices {
			devices[i].healthy = lost < len(devices) || lost == 0
		}
		return newList(v.resource, devices)
	}
	l := newList(v.resource, devices)
	free := v.strike(l, missing)

	// What is still to be taken from the free ids: first per NUMA node, then from any.
	rest := lost + v.withdrawn(l)
	for _, d := range l.devices {
		if !d.healthy {
			missing[d.numa]--
			rest--
		}
	}
	slices.SortStableFunc(free, func(a, b int) int {
		return cmp.Or(order(v.was.unhealthy(l.devices[a].id), v.was.unhealthy(l.devices[b].id)),
			cmp.Compare(l.devices[b].number, l.devices[a].number))
	})
	for _, near := range []bool{true, false} {
		for _, i := range free {
			d := &l.devices[i]
			if rest <= 0 || !d.healthy || near && missing[d.numa] <= 0 {
				continue
			}
			d.healthy = false
			missing[d.numa]--
			rest--
		}
	}
	return l
}

// order sorts true before false.
func order(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}

// devices lists all ids as healthy, and counts those that are lost, per NUMA node and in all.
func (v view) devices() (all []device, missing map[int]int, lost int) {
	missing = make(map[int]int)
	if v.inv.advertises(v.resource) {
		all = make([]device, 0, v.inv.total(v.resource))
		for _, u := range v.inv.Units {
			numa := NoNUMA
			if v.resource == sharing.ResourceGPU {
				numa = u.NUMA
			}
			for range u.ids(v.resource) {
				n := len(all) + 1
				all = append(all, device{number: n, id: id(v.resource, n), numa: numa, healthy: true})
			}
			if u.Lost {
				missing[numa] += u.ids(v.resource)
				lost += u.ids(v.resource)
			}
		}
	}
	units := len(all)
	old := make(map[int]bool)
	for _, ids := range v.held {
		for _, s := range ids {
			if n, ok := number(v.resource, s); ok && n > units {
				old[n] = true
			}
		}
	}
	for _, n := range slices.Sorted(maps.Keys(old)) {
		all = append(all, device{number: n, id: id(v.resource, n), numa: NoNUMA, healthy: true})
	}
	return all, missing, lost
}

// withdrawn counts the ids that are listed only because they are held.
func (v view) withdrawn(l *list) int {
	if !v.inv.advertises(v.resource) {
		return len(l.devices)
	}
	return len(l.devices) - v.inv.total(v.resource)
}

// strike marks the ids of containers on lost GPUs, and returns the places of unused ids.
func (v view) strike(l *list, missing map[int]int) (free []int) {
	gone := make(map[sharing.GPURef]bool)
	for _, u := range v.inv.Units {
		gone[u.GPU] = u.Lost
	}
	held := make([]bool, len(l.devices))
	left := maps.Clone(missing)
	refs := slices.SortedFunc(maps.Keys(v.held),
		func(a, b sharing.ContainerRef) int { return cmp.Compare(a.String(), b.String()) })
	for _, ref := range refs {
		var mine []int
		for _, s := range v.held[ref] {
			if i, ok := l.at[s]; ok && !held[i] {
				held[i] = true
				mine = append(mine, i)
			}
		}
		gpus, bad := v.on[ref], 0
		for _, g := range gpus {
			if gone[g] {
				bad++
			}
		}
		if bad == 0 || len(mine) == 0 {
			continue
		}
		// Amounts divide evenly over a container's GPUs; a part of an id counts as one.
		part := (len(mine)*bad + len(gpus) - 1) / len(gpus)
		slices.SortFunc(mine, func(a, b int) int {
			da, db := l.devices[a], l.devices[b]
			return cmp.Or(order(left[da.numa] > 0, left[db.numa] > 0), cmp.Compare(da.number, db.number))
		})
		for _, i := range mine[:part] {
			l.devices[i].healthy = false
			left[l.devices[i].numa]--
		}
	}
	for i := range l.devices {
		if !held[i] {
			free = append(free, i)
		}
	}
	return free
}
