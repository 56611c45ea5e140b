// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package machine_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// What befalls the clients, the server and the daemon of one trust domain is nothing to a program of another: it keeps
// its context, and has more memory for the asking. The domain itself shows that nothing holds it, and its daemon comes
// back.
func TestMPSFaultsStayInTheirDomain(t *testing.T) {
	t.Parallel()
	m := newMPSUsers(t, "")
	shut := m.canBeKeptDown()
	// The first user's domain stays while this does, which has no context itself, and then tells the daemon to end.
	gate := filepath.Join(m.work, "quit")
	told := m.starts(ann, "informed", []string{"sh", "-c", `echo "$CUDA_MPS_PIPE_DIRECTORY"; until [ -e ` + gate +
		` ]; do sleep 0.05; done; echo quit | nvidia-cuda-mps-control; echo informed; exec sleep 3600`})
	pipe := told.lines(1)[0]
	other := m.holds(bob, "bob")

	client := m.holds(ann, "userspace")
	client.end()
	other.goesOn("a client was killed")

	client = m.holds(ann, "next")
	server := m.serverOf(pipe)
	if err := syscall.Kill(server, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "end of the server", func() error {
		if dead(server) {
			return nil
		}
		return errors.New("still there")
	})
	other.goesOn("the server was killed")
	client.end()
	client = m.holds(ann, "third") // by another server
	if now := m.serverOf(pipe); now == server {
		t.Errorf("the server is %d still", now)
	}
	other.goesOn("there was another server")

	// The daemon is not started again before there was time to look.
	if err := os.WriteFile(shut, []byte(pipe), 0o644); err != nil {
		t.Fatal(err)
	}
	touch(t, gate)
	told.lines(2)
	m.wantLevel("informed", "unknown", "MPS daemon does not serve")
	other.goesOn("the daemon was asked to quit")
	m.wantLevel("bob", "userspace", "")
	if err := os.Remove(shut); err != nil {
		t.Fatal(err)
	}
	client.end()
	m.wantLevel("informed", "userspace", "")
	m.holds(ann, "last")
	other.goesOn("the daemon was back")
	if n := m.killed(); n != 0 {
		t.Errorf("%d were killed by the reactive backend, and none was over a cap", n)
	}
}

// The work of one client raises a page fault. That ends all clients of the domain, and its server takes no new ones.
// The agent starts the daemon again, which takes the server's faulty clients along.
func TestMPSFaultOfAClient(t *testing.T) {
	t.Parallel()
	m := newMPSUsers(t, "")
	faulty, second, other := m.holds(ann, "faulty"), m.holds(ann, "second"), m.holds(bob, "bob")
	m.set("gpu=0", fmt.Sprintf("fault.%d=31", faulty.cmd.Process.Pid))
	if got := second.more(); !strings.Contains(got.err(), "ILLEGAL_ADDRESS") {
		t.Errorf("another client of the domain: %+v", got)
	}
	other.goesOn("a fault in another domain")
	eventually(t, "another daemon", func() error {
		if said := m.machine.kerf("metrics").out; !strings.Contains(said, "\nkerf_mps_restarts_total 1\n") {
			return errors.New("no restart is counted")
		}
		return nil
	})
	if log := m.agent.stderr(); !strings.Contains(log, "has status FAULT") {
		t.Errorf("the log does not say why:\n%s", tail(log))
	}
	m.wantLevel("second", "userspace", "")
	m.holds(ann, "next").goesOn("the daemon was back")
	other.goesOn("the daemon of the other domain was back")
	m.wantLevel("bob", "userspace", "")
}

// canBeKeptDown stands in front of the control daemon's program, which then starts no daemon of the pipe directory that
// is written into the file.
func (m mpsUsers) canBeKeptDown() (file string) {
	m.t.Helper()
	file = filepath.Join(m.work, "shut")
	bin, behind := m.sim+"/bin", m.sim+"/behind"
	script := `#!/bin/sh
if [ "$1" = -d ] && [ "$(cat ` + file + ` 2>/dev/null)" = "$CUDA_MPS_PIPE_DIRECTORY" ]; then
	echo "it is kept down" >&2
	exit 1
fi
exec ` + behind + `/nvidia-cuda-mps-control "$@"
`
	err := os.Rename(bin, behind)
	if err == nil {
		err = os.Mkdir(bin, 0o755)
	}
	if err == nil {
		err = writeProgram(bin+"/nvidia-cuda-mps-control", strings.NewReader(script))
	}
	if err != nil {
		m.t.Fatal(err)
	}
	return file
}

// serverOf is the server of the daemon behind a pipe directory.
func (m mpsUsers) serverOf(pipe string) (server int) {
	m.t.Helper()
	eventually(m.t, "the server of "+pipe, func() error {
		server = 0
		all := m.daemons()
		for _, pid := range all {
			env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
			if err != nil || !strings.Contains(string(env), "CUDA_MPS_PIPE_DIRECTORY="+pipe+"\x00") {
				continue
			}
			line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
			if err == nil && strings.Contains(string(line), "nvidia-cuda-mps-server") {
				server = pid
			}
		}
		if server == 0 {
			return fmt.Errorf("of %v none", all)
		}
		return nil
	})
	return server
}
