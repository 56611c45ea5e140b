// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// warns waits until a warning of the node's status has these words, or with want set to false until none has.
func (e *testCase) warns(want bool, words ...string) {
	e.Helper()
	eventually(e, fmt.Sprintf("a warning with %q: %t", words, want), func() error {
		s, err := e.status()
		if err != nil {
			return err
		}
		has := slices.ContainsFunc(s.Warnings, func(w string) bool {
			return !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(w, word) })
		})
		if has != want {
			return fmt.Errorf("the warnings are %q", s.Warnings)
		}
		return nil
	})
}

// The API server admits a pod without a share that mounts a path to GPUs, because Kerf may not manage its node. On a
// node of Kerf's the agent refuses its container, unless the namespace is labelled. The agent reports containers that
// were created while it was away afterwards.
func TestOthersHostPaths(t *testing.T) {
	e := beginWithAgent(t)
	label := func(value string) {
		t.Helper()
		if r := e.kubectl("", "label", "namespace", e.namespace, "--overwrite", "kerf.dev/allow-host-paths"+
			value); r.err != nil {
			t.Fatal(r)
		}
	}
	for i, path := range []string{"/var/run/kerf", "/etc/cdi", "/var/lib/kubelet/device-plugins"} {
		s := mounting(path, nil)
		s.name = fmt.Sprint("mounts-", i)
		p := e.create(s)
		p.event("Failed", "reaches GPUs past Kerf", "kerf.dev/allow-host-paths=true")
		if o := p.get(); runs(o) {
			t.Errorf("%s: it runs: %s", path, describe(o))
		}
		p.delete()
	}
	label("=true")
	allowed := e.create(mounting("/var/run/kerf", nil))
	allowed.running()
	allowed.delete()
	label("-")

	e.sendAway()
	s := mounting("/var/run/kerf", nil)
	s.name = "meanwhile"
	p := e.create(s)
	p.running()
	e.bringBack()
	p.event("StartedPastKerf", "Created while kerf-agent was away", "/run/kerf")
	e.warns(true, "were created while kerf-agent was away", e.namespace+"/meanwhile/main")
	if o := p.get(); !runs(o) {
		t.Errorf("the pod was not ended for it: %s", describe(o))
	}
	p.delete()
	e.warns(false, "were created while kerf-agent was away", e.namespace+"/meanwhile/main")
}
