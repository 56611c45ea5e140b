// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
)

// specs is what lies in the node's folder of CDI specs under Kerf's names, and the hook: a checksum of each.
func (e *testCase) specs() string {
	e.Helper()
	return e.node.in("sh", "-c",
		`sha256sum /etc/cdi/kerf.dev-*.json /opt/kerf/*/kerf-hook; stat -c '%n %F %a %u' /etc/cdi/kerf.dev-*.json /opt/kerf/*/kerf-hook`).out
}

// spoil does a command on the node again and again, so that what is made meanwhile meets it, until the function that
// it returns is called.
func (e *testCase) spoil(command string) (end func()) {
	mark := e.node.env["E2E_DIR"] + "/node/spoil" // a file that the node sees, too
	if err := os.WriteFile(mark, nil, 0o600); err != nil {
		e.Fatal(err)
	}
	done := make(chan result, 1)
	go func() { done <- e.node.in("sh", "-c", "while [ -e "+mark+" ]; do "+command+"; sleep 0.01; done") }()
	end = sync.OnceFunc(func() {
		if err := os.Remove(mark); err != nil {
			e.Error(err)
		}
		if r := <-done; r.err != nil {
			e.Errorf("%s: %v", command, r)
		}
	})
	e.Cleanup(end)
	return end
}

// failedOrRuns waits until a start of the pod's container has failed, which it reports, or the container runs.
func (p *pod) failedOrRuns() (failed bool) {
	p.e.Helper()
	eventually(p.e, "first start of "+p.name, func() error {
		events, err := p.events()
		failed = slices.ContainsFunc(events, func(text string) bool { return strings.HasPrefix(text, "Failed") })
		o, podErr := p.fetch()
		if err := errors.Join(err, podErr); err != nil || failed || runs(o) {
			return err
		}
		return errors.New(describe(o))
	})
	return failed
}

// meets creates pairs of pods until the start of one has met what is spoilt, and returns that pair. The agent restores
// specs and hook at once, so that a start may find them whole.
func (e *testCase) meets(spoilt string) (never, always *pod) {
	e.Helper()
	for try := range 20 {
		never, always = e.pair(fmt.Sprint(spoilt, "-", try), 5, "exec gpuload --json --alloc 4GiB --hold 1h")
		met := false
		for _, p := range []*pod{never, always} {
			if p.failedOrRuns() {
				met = true
				continue
			}
			e.wantHeld(p, "main", share(5*gib, 0)) // it found what the agent had put back
		}
		if met {
			return never, always
		}
		never.delete()
		always.delete()
	}
	e.Fatalf("%s spoilt: no start of 20 pairs met it", spoilt)
	return nil, nil
}

// putBack waits until specs and hook are as they were.
func (e *testCase) putBack(right string) {
	e.Helper()
	eventually(e, "specs and hook as they were", func() error {
		if now := e.specs(); now != right {
			return fmt.Errorf("they are\n%s\nthey were\n%s", now, right)
		}
		return nil
	})
}

// Kerf restores specs and hook that a user removes, breaks or edits. While a name does not resolve, or the hook is
// missing, no container runs; and then it does. A start that the missing hook fails is final for a pod with
// restartPolicy Never, and its message says so.
func TestSpecsByHand(t *testing.T) {
	e := beginWithAgent(t)
	bystander := e.create(one("bystander", gibs(10), "exec gpuload --json --alloc 9GiB --hold 1h"))
	bystander.running()
	before, right, hook := e.heldBy(bystander), e.specs(), e.hookPath()
	for _, spoilt := range []struct{ name, command, failure string }{
		{"specs", `rm -f /etc/cdi/kerf.dev-*.json`, ""},
		{"hook", `rm -f ` + hook, "no such file or directory"},
	} {
		end := e.spoil(spoilt.command)
		never, always := e.meets(spoilt.name)
		end()
		e.putBack(right)
		o := never.settled()
		if runs(o) {
			e.wantHeld(never, "main", share(5*gib, 0))
		} else if spoilt.failure == "" || !strings.Contains(describe(o), spoilt.failure) {
			t.Errorf("%s spoilt: restartPolicy Never: %s", spoilt.name, describe(o))
		}
		always.running()
		e.wantHeld(always, "main", share(5*gib, 0))
		never.startDeletion()
		always.startDeletion()
	}
	for _, command := range []string{
		// No JSON, no devices, a link, another program.
		`echo '{' >` + guardSpec +
			`; echo '{"cdiVersion": "0.3.0", "kind": "kerf.dev/ask", "devices": []}' >/etc/cdi/kerf.dev-ask.json
		ln -sf /dev/null /etc/cdi/kerf.dev-gpu.json; echo '#!/bin/true' >` + hook,
		// Others may write.
		`chmod 0666 /etc/cdi/kerf.dev-*.json ` + hook,
	} {
		if r := e.node.in("sh", "-c", command); r.err != nil {
			t.Fatalf("%s: %v", command, r)
		}
		e.putBack(right)
	}
	e.waitForAgent()
	e.wantSame(before, bystander)
}
