// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"
)

// specs is what lies in the node's folder of CDI specs under Kerf's names, and the hook: a checksum of each.
func (e *testCase) specs() string {
	e.Helper()
	return e.node.in("sh", "-c", `sha256sum /etc/cdi/kerf.dev-*.json /opt/kerf/*/kerf-hook; stat -c '%n %F %a %u' /etc/cdi/kerf.dev-*.json /opt/kerf/*/kerf-hook`).out
}

// spoil does a command on the node again and again, so that what is made meanwhile meets it, until the function that
// it returns is called.
func (e *testCase) spoil(command string) (end func()) {
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			_ = e.node.in("sh", "-c", command) // whether it works shows in what it is to hold up
			select {
			case <-stop:
				return
			case <-time.After(50 * time.Millisecond):
			}
		}
	}()
	end = sync.OnceFunc(func() {
		close(stop)
		<-done
	})
	e.Cleanup(end)
	return end
}

// putBack waits until specs and hook are as they were.
func (e *testCase) putBack(right string) {
	e.Helper()
	eventually(e.T, "specs and hook as they were", func() error {
		if now := e.specs(); now != right {
			return fmt.Errorf("they are\n%s\nthey were\n%s", now, right)
		}
		return nil
	})
}

// Specs and hook that somebody removes, spoils or edits are put back. While a name does not resolve, or the hook is
// not there, no container runs; and then it does. A start that the missing hook has failed is final for who gets
// no second one, and says so.
func TestSpecsByHand(t *testing.T) {
	e := beginWithAgent(t)
	bystander := e.create(one("bystander", gibs(10), "exec gpuload --json --alloc 9GiB --hold 1h"))
	bystander.running()
	before, right, hook := e.holdings(bystander), e.specs(), e.hookPath()
	for _, spoilt := range []struct{ name, command, failure string }{
		{"specs", `rm -f /etc/cdi/kerf.dev-*.json`, ""},
		{"hook", `rm -f ` + hook, "no such file or directory"},
	} {
		end := e.spoil(spoilt.command)
		never, always := e.pair(spoilt.name, 5, "exec gpuload --json --alloc 4GiB --hold 1h")
		for _, p := range []*pod{never, always} {
			p.event("Failed")
			p.notRunning("main")
		}
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
		`echo '{' >` + guardSpec + `; echo '{"cdiVersion": "0.3.0", "kind": "kerf.dev/ask", "devices": []}' >/etc/cdi/kerf.dev-ask.json
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
