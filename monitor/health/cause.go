// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package health

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kerf-gpu/kerf/sharing"
)

// cause is one thing that keeps a GPU from being healthy. Those of a lower number are told first.
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

// text says what a cause is and what to do about it.
func (m *Machine) text(c cause) (reason, remedy string) {
	switch c {
	case causeLost:
		return m.lostWhy, remedyReset
	case causeFault, causeDrain:
		return describeAll(m.xids, c)
	case causeRemapFailed:
		return "a memory row is bad, and none is left to take its place", remedyReplace
	case causeRecovery:
		return "the driver asks for: " + m.action, "do what the driver asks for, once nothing uses the GPU"
	case causeMute, causeSilent:
		return "does not answer: " + m.silentWhy, remedyDriver
	case causeRemapPending:
		return "a memory row is to be remapped", remedyDrain
	case causeErrors:
		return "memory errors that could not be corrected were counted", "nothing, unless it comes again; then " + remedyReset
	case causeUnnamed:
		return fmt.Sprintf("XID %d of a GPU that the driver did not name", m.unnamed), "nothing if it goes by; the kernel's log may name the GPU"
	case causeLinks:
		return fmt.Sprintf("%d of %d NVLinks are up", m.links.N, m.mostLinks), "look after the link or its bridge; " + remedyReset
	case causeOverheat:
		return "the hardware slows itself down for heat, and goes on doing so", "look after the node's cooling"
	case causePowerBrake:
		return "the hardware slows itself down because its power supply says so, and goes on doing so", "look after the node's power supply"
	case causes:
	}
	return "", ""
}

// describeAll names the XIDs of a cause. The remedy is that of the first.
func describeAll(xids []uint64, c cause) (reason, remedy string) {
	of := slices.DeleteFunc(slices.Clone(xids), func(x uint64) bool { return (Classify(x) == Drain) != (c == causeDrain) })
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
