// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package machine_test

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/kerf-gpu/kerf/internal/process"
)

// pidSpace is the number of the pid namespace that the tests and the simulated driver are in.
func pidSpace(t *testing.T) string {
	t.Helper()
	n, err := process.PIDSpace(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprint(n)
}

// agentChild waits for the program that a wrapper of the agent started, and is its pid.
func (m *machine) agentChild() (pid string) {
	m.t.Helper()
	own := m.agent.cmd.Process.Pid
	eventually(m.t, "the wrapped agent", func() error {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", own, own))
		if pid = strings.TrimSpace(string(text)); err == nil && pid == "" {
			err = errors.New("it has no child")
		}
		return err
	})
	return pid
}

// An agent in a separate PID namespace does not see the processes of the machine in the driver's lists. It says so, and
// grants no share that only the reactive backend would enforce.
func TestAgentInAnotherPIDNamespace(t *testing.T) {
	t.Parallel()
	m := newMachine(t, setup{hardware: "t4x4", driver: "r580", noAgent: true})
	m.agentFlags = []string{"--config", m.write(watched(", minEnforcement: reactive"))}
	m.wrap = []string{"unshare", "--pid", "--fork", "--kill-child", "--mount-proc"}
	m.startAgent()
	inside := func(args ...string) result {
		kerf := append([]string{"--target", m.agentChild(), "--pid", "--mount", program("kerf"), "--run-dir", m.dir},
			args...)
		return call(t, m.env, "nsenter", kerf...)
	}
	inside("status", "--wait", "ready")
	text := inside("status", "-o", "wide").out
	for _, want := range []string{"the agent is in a private PID namespace", "hostPID: true"} {
		if !strings.Contains(text, want) {
			t.Errorf("status does not say %q:\n%s", want, text)
		}
	}
	if got := inside("run", "--memory", "1GiB", "--", "true"); got.code != 125 ||
		!strings.Contains(got.err, "pid namespace") {
		t.Errorf("a share that only the reactive backend would hold: %v", got)
	}

	m.killAgent()
	m.wrap = nil
	m.startAgent()
	m.ready()
	r := m.run(flags("--memory 1GiB --name here"), load("--alloc 512MiB --hold 1h"))
	r.loads(1)
	if g := m.grant("here"); g.Level != "reactive" {
		t.Errorf("in the machine's: %+v", g)
	}
}
