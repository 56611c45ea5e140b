// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package deviceplugin

import (
	"slices"
)

// device is one id of a list.
type device struct {
	number  int
	id      string
	numa    int
	healthy bool
}

// list is what kubelet is told of one resource. It never changes once made.
type list struct {
	resource string
	// devices are ordered by number.
	devices []device
	// at is the place of an id in devices.
	at map[string]int
}

func newList(resource string, devices []device) *list {
	l := &list{resource: resource, devices: devices, at: make(map[string]int, len(devices))}
	for i, d := range devices {
		l.at[d.id] = i
	}
	return l
}

// unhealthy reports whether id is on the list and not healthy.
func (l *list) unhealthy(id string) bool {
	if l == nil {
		return false
	}
	i, ok := l.at[id]
	return ok && !l.devices[i].healthy
}

func (l *list) equal(o *list) bool {
	return o != nil && l.resource == o.resource && slices.Equal(l.devices, o.devices)
}

// healthy counts the ids that kubelet may give out.
func (l *list) healthy() int {
	n := 0
	for _, d := range l.devices {
		if d.healthy {
			n++
		}
	}
	return n
}
