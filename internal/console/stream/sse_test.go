// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package stream

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/kerf-gpu/kerf/internal/console/model"
)

// The scheduler's reason has the reasons of cordons, which can name pods that the viewer may not see.
func TestReasonsNameNoPodOfOthers(t *testing.T) {
	body, err := json.Marshal(model.Pod{Namespace: "mine", Name: "new", Reason: "0/3 nodes are available: 1 GPUs " +
		"cordoned: kept for pod secret/secret-pod (kerf-defrag)."})
	if err != nil {
		t.Fatal(err)
	}
	item := model.Item{Key: "pod/mine/u1", Body: body}
	for _, c := range []struct {
		scope        model.Scope
		seen, secret bool
	}{{model.Scope{All: true}, true, true}, {model.Scope{Namespaces: map[string]bool{"mine": true}}, true, false},
		{model.Scope{Namespaces: map[string]bool{"other": true}}, false, false}} {
		got, err := seen(item, c.scope)
		if text := string(got); err != nil || strings.Contains(text, "0/3 nodes are") != c.seen ||
			strings.Contains(text, "secret") != c.secret {
			t.Errorf("scope %+v sees %s: %v", c.scope, text, err)
		}
	}
}
