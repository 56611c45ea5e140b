// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/kerf-gpu/kerf/hooks/nri"
	"github.com/kerf-gpu/kerf/sharing"
)

// A warning stands for as long as there is such a container, and each has one event.
func TestMissedNews(t *testing.T) {
	var warning string
	var events []string
	n := &missedNews{
		warn: func(sentence string) { warning = sentence },
		event: func(_ context.Context, ref sharing.ContainerRef, reason, message string, bad bool) {
			events = append(events, fmt.Sprint(ref.Pod, " ", reason, " ", bad, " ", message))
		},
	}
	of := func(pods ...string) (all []nri.Missed) {
		for _, p := range pods {
			all = append(all, nri.Missed{Ref: sharing.ContainerRef{Namespace: "ns", Pod: p, Container: "main"},
				Reason: `host path "/run/kerf" reaches GPUs past Kerf`})
		}
		return all
	}
	n.tell(t.Context(), of("a", "b"))
	n.tell(t.Context(), of("a", "b", "c", "d", "e", "f", "g"))
	if !strings.HasSuffix(warning, ", and 2 more") ||
		!strings.Contains(warning, `(host path "/run/kerf" reaches GPUs past Kerf)`) {
		t.Errorf("warning %q", warning)
	}
	if len(events) != 7 || !strings.HasPrefix(events[0], "a StartedPastKerf true created while kerf-agent was away") {
		t.Errorf("events %q", events)
	}
	n.tell(t.Context(), of("b"))
	if strings.Contains(warning, "ns/a") || !strings.Contains(warning, "ns/b") || len(events) != 7 {
		t.Errorf("warning %q, %d events", warning, len(events))
	}
	n.tell(t.Context(), nil)
	if warning != "" {
		t.Errorf("warning %q", warning)
	}
}
