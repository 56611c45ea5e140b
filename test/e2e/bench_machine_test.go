// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// joinCPU lets a shell go where the process $1 is, as far as the CPU is shared out, and then be the rest.
const joinCPU = `path=$(sed -nE 's/^[0-9]+:(cpu|cpu,cpuacct):(.*)/\1\2/p; s/^0::(.*)/\1/p' /proc/$1/cgroup | head -n 1)
echo 0 >"/sys/fs/cgroup/$path/cgroup.procs" || exit
shift
exec "$@"`

// timeMachine measures, until the function that it returns is called, what as many questions take as an arm has for the
// simulated driver, asked from the agent's cgroup of a process in the driver's that answers at once. It is what this
// machine makes of an arm on which Kerf spends no time. What took how long comes sorted.
func (e *testCase) timeMachine() func() []time.Duration {
	e.Helper()
	dir := e.TempDir() // the node sees this machine's /tmp
	program, socket := filepath.Join(dir, "roundtrip"), filepath.Join(dir, "socket")
	build := exec.CommandContext(e.Context(), "go", "build", "-o", program, "./roundtrip")
	if out, err := build.CombinedOutput(); err != nil {
		e.Fatalf("build roundtrip: %v: %s", err, out)
	}
	at := func(daemon string, args ...string) *exec.Cmd {
		pid := strings.TrimSpace(e.node.in(e.node.busybox(), "pidof", daemon).out)
		if strings.ContainsAny(pid, " \n") || pid == "" {
			e.Fatalf("processes of %s: %q, want one", daemon, pid)
		}
		// Not into its pid namespace: that takes a process more, which a kill would not reach.
		enter := []string{"-t", e.node.env["NODE_INIT"], "-m", "-u", "-i", "-n", "-C", "--", "bash", "-c", joinCPU, "_", pid, "env", "GOMAXPROCS=16", program}
		return exec.CommandContext(e.Context(), "nsenter", append(enter, args...)...)
	}
	// Both end with the test's context, if nothing ends them before.
	server := at("gpusim", "serve", socket)
	if err := server.Start(); err != nil {
		e.Fatal(err)
	}
	eventually(e, "the process that answers", func() error { return exec.Command("test", "-S", socket).Run() })
	var out, errOut strings.Builder
	asker := at(agentName, "ask", socket, "1h")
	asker.Stdout, asker.Stderr = &out, &errOut
	if err := asker.Start(); err != nil {
		e.Fatal(err)
	}
	return func() []time.Duration {
		e.Helper()
		_, _ = asker.Process.Kill(), asker.Wait()
		_, _ = server.Process.Kill(), server.Wait()
		var all []time.Duration
		lines := strings.Split(out.String(), "\n")
		for _, l := range lines[:len(lines)-1] { // the last is cut off
			n, err := strconv.ParseInt(l, 10, 64)
			if err != nil {
				e.Fatalf("roundtrip: %v", err)
			}
			all = append(all, time.Duration(n))
		}
		if len(all) == 0 {
			e.Fatalf("roundtrip measured nothing: %s", errOut.String())
		}
		slices.Sort(all)
		return all
	}
}
