// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package gpunode

import (
	"fmt"
	"strings"

	api "github.com/kerf-gpu/kerf/api/gpunode"
	"github.com/kerf-gpu/kerf/sharing/node/status"
)

// conditionsOf are the conditions without times.
func conditionsOf(b status.LedgerState) []api.Condition {
	return []api.Condition{readyOf(b), driverOf(b), appliedOf(b)}
}

func readyOf(b status.LedgerState) api.Condition {
	if len(b.PodsNotReady) == 0 {
		return condition(api.ConditionReady, api.True, "AgentReady", "")
	}
	return condition(api.ConditionReady, api.False, "NotReady",
		strings.Join(b.PodsNotReady[:min(len(b.PodsNotReady), mostReasons)], "\n"))
}

func driverOf(b status.LedgerState) api.Condition {
	switch {
	case b.DriverReleased:
		return condition(api.ConditionDriverReady, api.False, api.ReasonReleased,
			"kerf-agent and kerf-monitor have released the NVIDIA driver")
	case b.DriverVersion == "":
		return condition(api.ConditionDriverReady, api.False, "NoDriver", "the NVIDIA driver does not answer")
	}
	return condition(api.ConditionDriverReady, api.True, "DriverAnswers", "driver "+b.DriverVersion)
}

// appliedOf is false while a newer config is rejected or settings of GPUs wait; the status has the details in config.
func appliedOf(b status.LedgerState) api.Condition {
	switch {
	case len(b.ConfigErrors) > 0:
		return condition(api.ConditionConfigApplied, api.False, "Rejected",
			strings.Join(b.ConfigErrors[:min(len(b.ConfigErrors), mostReasons)], "\n"))
	case len(b.Waiting) > 0:
		return condition(api.ConditionConfigApplied, api.False, "Pending",
			fmt.Sprintf("settings of %d GPUs wait until the GPUs are idle", len(b.Waiting)))
	}
	return condition(api.ConditionConfigApplied, api.True, "Applied", "")
}

func condition(kind, status, reason, message string) api.Condition {
	return api.Condition{Type: kind, Status: status, Reason: reason, Message: message}
}
