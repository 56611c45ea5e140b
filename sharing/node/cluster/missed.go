// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"strings"

	"github.com/kerf-gpu/kerf/hooks/nri"
	"github.com/kerf-gpu/kerf/sharing"
)

// startedPastKerfReason of a pod: a container of it that reaches GPUs past Kerf was created while the agent was away.
const startedPastKerfReason = "StartedPastKerf"

// maxMissed is how many containers a warning names.
const maxMissed = 5

// missedNews reports containers that were created while the agent was away and that it would have rejected. One
// goroutine at a time calls tell.
type missedNews struct {
	warn  func(sentence string)
	event func(ctx context.Context, ref sharing.ContainerRef, reason, message string, warning bool)
	// reported are those that have an event.
	reported map[nri.Missed]bool
}

// tell shows all that there are in the status, and writes an event of each new one.
func (n *missedNews) tell(ctx context.Context, all []nri.Missed) {
	told := make(map[nri.Missed]bool, len(all))
	var names []string
	for i, m := range all {
		told[m] = true
		if i < maxMissed {
			names = append(names, fmt.Sprintf("%s (%s)", m.Ref, m.Reason))
		}
		if !n.reported[m] {
			n.event(ctx, m.Ref, startedPastKerfReason,
				"created while kerf-agent was away, which would have refused it: "+m.Reason+"; delete the pod", true)
		}
	}
	n.reported = told
	if len(all) == 0 {
		n.warn("")
		return
	}
	if more := len(all) - len(names); more > 0 {
		names = append(names, fmt.Sprintf("and %d more", more))
	}
	n.warn("containers that reach GPUs past Kerf were created while kerf-agent was away; delete their pods: " +
		strings.Join(names, ", "))
}
