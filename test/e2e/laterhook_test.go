// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// failingUntil is a CDI spec with a device that brings no GPU. Its hook runs after Kerf's, and fails until the file is
// there.
func (e *testCase) failingUntil(file string) string {
	e.Helper()
	bb := e.node.busybox()
	out, err := json.Marshal(map[string]any{
		"cdiVersion": "0.5.0", "kind": otherResource,
		"devices": []any{map[string]any{"name": "later", "containerEdits": map[string]any{"hooks": []any{map[string]any{
			"hookName": "createContainer", "path": bb, "args": []string{"test", "-e", file},
			"env": []string{"TMPDIR=/tmp"},
		}}}}},
	})
	if err != nil {
		e.Fatal(err)
	}
	return string(out)
}

// A hook that fails after Kerf's hook has set the cap: the container does not start, and its attachment ends. The grant
// stays with the pod, whose next container gets the cap.
func TestLaterHookFails(t *testing.T) {
	e := beginWithAgent(t)
	const file = "/run/e2e-later-hook"
	t.Cleanup(func() { _ = os.Remove(e.node.path(file)) })
	e.replaceSpec(foreignSpec, e.failingUntil(file))
	e.startOtherPlugin("later")
	limits := gibs(2)
	limits[otherResource] = "1"
	s := one("later", limits, hold)
	s.restart = corev1.RestartPolicyAlways
	p := e.create(s)
	p.event("Failed", "createContainer hook")
	var waits grant
	eventually(e, "the end of the attachment", func() error {
		waits = e.grantOf(p, "main")
		if waits.State != "Reserved" {
			return fmt.Errorf("it has %+v", waits)
		}
		return nil
	})
	if waits.Memory != 2*gib || len(waits.PIDs) > 0 || len(e.grantsOf(p)) != 1 {
		t.Errorf("while it waits it has %+v", waits)
	}
	if err := os.WriteFile(e.node.path(file), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	p.running()
	g := e.wantHeld(p, "main", share(2*gib, 0))
	if caps := p.caps("main"); g.ID != waits.ID || caps[g.Shares[0].GPU] != 2*gib {
		t.Errorf("it runs with %+v and caps %v, before it had %+v", g, caps, waits)
	}
	p.delete()
	p.released()
}
