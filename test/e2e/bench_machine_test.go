// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
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
// It all happens on the CPU that is named, "" for any.
func (e *testCase) timeMachine(cpu string) func() []time.Duration {
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
		enter := []string{"-t", e.node.env["NODE_INIT"], "-m", "-u", "-i", "-n", "-C", "--", "bash", "-c", joinCPU, "_",
			pid, "env", "GOMAXPROCS=16", program}
		if cpu != "" {
			enter = slices.Insert(enter, len(enter)-1, "taskset", "-c", cpu)
		}
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
		for _, l := range lines[:len(lines)-1] { // the last is incomplete
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

// reserve keeps the last CPU for the processes that $1 names, and all other cgroups of the node, with those that are
// made in them later, from it, as kubelet's static CPU manager does; "" gives everybody all of them back. Affinities
// alone would not last: runc gives what it starts all CPUs of its cgroup.
const reserve = `set -o pipefail
last=$(($(nproc --all) - 1))
root=/sys/fs/cgroup key=:
[ -f $root/cgroup.procs ] || root=$root/cpuset key=:cpuset:
own=" "
for p in $1; do
	dir=$(grep -m 1 "$key" "/proc/$("$2" pidof "$p")/cgroup" | cut -d: -f3) || exit
	own="$own$dir "
done
put() { [ ! -f "$root$1/cpuset.cpus" ] || echo "$2" >"$root$1/cpuset.cpus" || exit; }
if [ -z "$1" ]; then
	find $root -mindepth 1 -type d -printf '/%P\n' | while read -r dir; do put "$dir" "0-$last"; done || exit
	exit
fi
find $root -mindepth 1 -depth -type d -printf '/%P\n' | while read -r dir; do
	case "$own" in
	*" $dir "*) put "$dir" "$last" ;;
	*" $dir/"*) ;; # it holds one of them
	*) put "$dir" "0-$((last - 1))" ;;
	esac
done || exit
echo "$last"`

// reserveCPU gives agent and simulated driver a CPU of their own until the test ends, as they have one when they need
// it on a node of many, and returns its number. It skips the test on a machine of one.
func (e *testCase) reserveCPU() string {
	e.Helper()
	last := runtime.NumCPU() - 1
	if last == 0 {
		e.Skip("there is but one CPU")
	}
	e.asks("0-" + strconv.Itoa(last-1))
	e.Cleanup(func() {
		e.asks("0-" + strconv.Itoa(last))
		if r := e.node.in("bash", "-c", reserve, "_", "", e.node.busybox()); r.err != nil {
			e.Errorf("give the CPUs back: %v", r)
		}
	})
	r := e.node.in("bash", "-c", reserve, "_", agentName+" gpusim", e.node.busybox())
	if r.err != nil {
		e.Fatalf("reserve a CPU: %v", r)
	}
	return strings.TrimSpace(r.out)
}

// asks puts this test, whose looks at the pods cost CPU time as well, on the CPUs that are named.
func (e *testCase) asks(cpus string) {
	e.Helper()
	if out, err := exec.Command("taskset", "-acp", cpus, strconv.Itoa(os.Getpid())).CombinedOutput(); err != nil {
		e.Fatalf("put the test on CPUs %s: %v: %s", cpus, err, out)
	}
}
