// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package health

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kerf-gpu/kerf/sharing"
)

// cause is one thing that keeps a GPU from being healthy. Lower numbers are reported first.
type cause uint8

const (
	causeLost cause = iota
	causeFault
	causeRemapFailed
	causeRecovery
	causeMute
	causeSilent
	causeDrain
	causeRemapPending
	causeErrors
	causeUnnamed
	causeLinks
	causeOverheat
	causePowerBrake
	causes
)

// health is what a cause makes of a GPU: suspect takes no new grants, and what runs goes on.
func (c cause) health() sharing.Health {
	switch c {
	case causeLost:
		return sharing.HealthLost
	case causeFault, causeRemapFailed, causeRecovery, causeMute:
		return sharing.HealthUnhealthy
	default:
		return sharing.HealthSuspect
	}
}

// mostXIDs is how many XIDs a cause names. Further ones change no state.
const mostXIDs = 8

// standing are the causes that were seen since the GPU was healthy last, with what their texts need.
type standing struct {
	stand [causes]bool
	// xids are the critical and draining ones since then.
	xids []uint64
	// unnamed is the last XID of a GPU that the driver did not name.
	unnamed                    uint64
	lostWhy, silentWhy, action string
}

func (s *standing) add(all ...cause) {
	for _, c := range all {
		s.stand[c] = true
	}
}

// xid takes one XID; false for one that only concerns an application.
func (s *standing) xid(xid uint64) bool {
	switch Classify(xid) {
	case Application:
		return false
	case OffBus:
		s.add(causeLost)
		s.lostWhy, _ = describe(xid)
		return true
	case Drain:
		s.add(causeDrain)
	case Critical:
		s.add(causeFault)
	}
	if len(s.xids) < mostXIDs && !slices.Contains(s.xids, xid) {
		s.xids = append(s.xids, xid)
	}
	return true
}

// state is what the first cause makes of the GPU.
func (s *standing) state(last readings) State {
	for c := range causes {
		if s.stand[c] {
			reason, remedy := s.text(c, last)
			return State{c.health(), reason, remedy}
		}
	}
	return State{Health: sharing.HealthOK}
}

// text says what a cause is and what to do about it.
func (s *standing) text(c cause, last readings) (reason, remedy string) {
	switch c {
	case causeLost:
		return s.lostWhy, remedyReset
	case causeFault, causeDrain:
		return describeAll(s.xids, c)
	case causeRemapFailed:
		return "a memory row is bad, and none is left to take its place", remedyReplace
	case causeRecovery:
		return "the driver requires: " + s.action, "do what the driver requires, once nothing uses the GPU"
	case causeMute, causeSilent:
		return "does not answer: " + s.silentWhy, remedyDriver
	case causeRemapPending:
		return "a memory row is to be remapped", remedyDrain
	case causeErrors:
		return "memory errors that could not be corrected were counted", "nothing, unless it comes again; then " +
			remedyReset
	case causeUnnamed:
		return fmt.Sprintf("XID %d of a GPU that the driver did not name", s.unnamed),
			"nothing if it goes by; the kernel's log may name the GPU"
	case causeLinks:
		return fmt.Sprintf("%d of %d NVLinks are up", last.links.N, last.mostLinks),
			"look after the link or its bridge; " + remedyReset
	case causeOverheat:
		return "the hardware slows itself down for heat, and goes on doing so", "look after the node's cooling"
	case causePowerBrake:
		return "the hardware slows itself down because its power supply says so, and goes on doing so",
			"look after the node's power supply"
	case causes:
	}
	return "", ""
}

// describeAll names the XIDs of a cause. The remedy is that of the first.
func describeAll(xids []uint64, c cause) (reason, remedy string) {
	of := slices.DeleteFunc(slices.Clone(xids),
		func(x uint64) bool { return (Classify(x) == Drain) != (c == causeDrain) })
	var more []string
	for i, x := range of {
		if i == 0 {
			reason, remedy = describe(x)
			continue
		}
		more = append(more, fmt.Sprint(x))
	}
	if len(more) > 0 {
		reason += ", and XID " + strings.Join(more, ", ")
	}
	return reason, remedy
}
