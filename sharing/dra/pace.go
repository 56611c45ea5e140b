// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"reflect"
	"time"
)

// MinInterval is the least time between two publications of a pool.
const MinInterval = time.Second

// PublishLimiter decides when a node publishes its devices. The zero value has published nothing.
type PublishLimiter struct {
	published []Device
	at        time.Time
	any       bool
}

// Next says whether the devices are to be published now. If not, it returns how long the caller waits before it asks
// again; 0 means that nothing has changed.
func (p *PublishLimiter) Next(devices []Device, now time.Time) (publish bool, wait time.Duration) {
	switch since := now.Sub(p.at); {
	case p.any && reflect.DeepEqual(devices, p.published):
		return false, 0
	case p.any && since >= 0 && since < MinInterval:
		return false, MinInterval - since
	}
	return true, 0
}

// Published records what was published and when.
func (p *PublishLimiter) Published(devices []Device, now time.Time) {
	p.published, p.at, p.any = devices, now, true
}
