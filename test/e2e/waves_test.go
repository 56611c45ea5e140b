// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// remains is what pods could leave on the node, by name and number.
type remains map[string]int

// shims lists those of containerd, apart from each other by what they still have: one whose bundle is deleted and that
// has no child keeps nothing of a container.
const shims = `for p in /proc/[0-9]*; do
	[ "$(cat $p/comm 2>/dev/null)" = containerd-shim ] || continue
	case "$(readlink $p/cwd)" in *"(deleted)") [ -n "$(cat $p/task/*/children)" ] || { echo "` + emptyShim +
	`"; continue; } ;; esac
	echo "of a container"
done`

// mostThreads are those that the agent may have. Go keeps each that it has ever needed at once, which a wave of pods
// decides: some for its own work, and one for each driver call that waits. What would keep more of them, wave after
// wave, is a goroutine that does not end, and those are counted one by one.
const mostThreads = "64"

// perKind is how many pods of each kind the waves have. The agent has goroutines that come and go on their own, such as
// those of a sample of each GPU. In the quietest of some readings they are fewer than that. If each pod of a kind
// leaves one, they are more.
const perKind = 10

// emptyShim is how a shim is listed that has neither a bundle nor a child.
const emptyShim = "without bundle or child"

// remains counts everything that comes and goes with pods.
func (e *testCase) remains() (remains, error) {
	s, err := e.status()
	if err != nil {
		return nil, err
	}
	r := remains{"grants": len(s.Grants), "driver's limits": len(e.node.limits(e.T)),
		"driver's processes": len(e.node.processes(e.T))}
	for _, w := range s.Warnings {
		r["warning: "+w]++
	}
	for _, g := range s.GPUs {
		r["granted bytes"] += int(g.Granted)
		r["used bytes"] += int(g.Used)
	}
	if r[goroutines], err = e.goroutines(); err != nil {
		return nil, err
	}
	agent := strings.TrimSpace(e.node.in(e.node.busybox(), "pidof", agentName).out)
	for what, command := range map[string]string{
		"agent's descriptor": `for f in /proc/` + agent + `/fd/*; do readlink $f; done | sed 's/:.*//'`,
		"agent's threads":    `n=$(ls /proc/` + agent + `/task | wc -l); [ $n -le ` + mostThreads + ` ] || echo $n`,
		"agent's mount":      `cut -d' ' -f5 /proc/` + agent + `/mountinfo`,
		"node's mount":       `cut -d' ' -f5 /proc/1/mountinfo`,
		"node's cgroup":      `find /sys/fs/cgroup -depth -type d -path '*kubepods*'`,
		"Kerf's file":        `find /etc/cdi /var/run/cdi /run/kerf /opt/kerf /var/lib/kubelet/device-plugins`,
		"containerd's shim":  shims,
	} {
		out := e.node.in("/bin/sh", "-c", command)
		if out.err != nil {
			return nil, fmt.Errorf("%s: %v", what, out)
		}
		for line := range strings.Lines(out.out) {
			r[what+" "+strings.TrimSpace(line)]++
		}
	}
	return r, nil
}

// goroutines is how remains calls those of the agent.
const goroutines = "agent's goroutines"

// goroutines are the fewest of the agent in some readings.
func (e *testCase) goroutines() (int, error) {
	fewest := math.MaxInt
	for range 5 {
		metrics := e.node.in(e.node.program("kerf"), "metrics")
		_, text, ok := strings.Cut(metrics.out, "\ngo_goroutines ")
		if !ok {
			return 0, fmt.Errorf("%s: %v", goroutines, metrics)
		}
		line, _, _ := strings.Cut(text, "\n")
		n, err := strconv.Atoi(line)
		if err != nil {
			return 0, fmt.Errorf("%s: %w", goroutines, err)
		}
		fewest = min(fewest, n)
	}
	return fewest, nil
}

// more is what is there now and was not before. What goes only later, such as the cgroup of a pod that ended before,
// has its own name.
func (now remains) more(before remains) string {
	var b strings.Builder
	for _, what := range slices.Sorted(maps.Keys(now)) {
		if before[what] < now[what] {
			fmt.Fprintf(&b, "\n%s: %d, before %d", what, now[what], before[what])
		}
	}
	return b.String()
}

// static makes a pod from a file on the node, and returns it and what takes the file away again.
func (e *testCase) static(s podSpec) (*pod, func()) {
	e.Helper()
	object := s.object(e.namespace)
	object.APIVersion, object.Kind = "v1", "Pod"
	text, err := json.Marshal(object)
	if err != nil {
		e.Fatal(err)
	}
	file := e.node.path("/etc/kubernetes/manifests/" + s.name + ".json")
	if err := os.WriteFile(file, text, 0o644); err != nil {
		e.Fatal(err)
	}
	remove := func() { _ = os.Remove(file) }
	e.Cleanup(remove)
	p := &pod{e: e, name: s.name + "-" + e.node.env["NODE_NAME"], namespace: e.namespace}
	eventually(e, "mirror of the static pod", func() error {
		_, err := p.fetch()
		return err
	})
	return p, remove
}

// Fifty pods of all kinds, ten at a time, and a static one leave nothing: no grant, limit, cgroup, mount or file on the
// node, and no descriptor in the agent.
func TestFiftyPodsLeaveNothing(t *testing.T) {
	e := beginWithAgent(t)
	warm := e.create(one("warm", gibs(1), "gpuload --json")) // whatever is there once is there from now on
	warm.phase(corev1.PodSucceeded)
	warm.delete()
	warm.released()
	before, err := e.remains()
	if err != nil {
		t.Fatal(err)
	}
	before[goroutines] += perKind - 1
	specs := e.specFiles()
	static, removeStatic := e.static(one("static", gibs(2), hold))
	static.running()
	e.wantHeld(static, "main", share(2*gib, 0))
	removeStatic() // the agent looks for such only now and then
	for wave := range 5 {
		var pods []*pod
		for i := range 10 {
			name := fmt.Sprintf("wave-%d-%d", wave, i)
			s := one(name, gibs(1+i), "gpuload --json --alloc 256MiB")
			switch i % 5 {
			case 1:
				s.containers[0].run = "exec gpuload --json --alloc 256MiB --hold 1h"
			case 2:
				s.containers[0].run = "gpuload --json --alloc 100GiB; exit 1"
			case 3:
				s.init = []container{{name: "before", run: "gpuload --json", limits: gibs(2)}}
				s.containers = append(s.containers, container{name: "second", run: "gpuload --json",
					limits: percent(5)})
			case 4:
				s.restart = corev1.RestartPolicyAlways
			}
			pods = append(pods, e.create(s))
		}
		for i, p := range pods {
			switch i % 5 {
			case 0, 3:
				p.phase(corev1.PodSucceeded)
			case 1:
				p.running()
			case 2:
				p.phase(corev1.PodFailed)
			case 4:
				p.until("ended once", func(o *corev1.Pod) error {
					if s := o.Status.ContainerStatuses; len(s) == 0 || s[0].RestartCount == 0 &&
						s[0].State.Terminated == nil {
						return fmt.Errorf("%s", describe(o))
					}
					return nil
				})
			}
			p.startDeletion()
		}
		for _, p := range pods {
			eventually(t, "end of "+p.name, p.goneError)
		}
	}
	err = pollFor(3*time.Minute, "a node as before", func() error {
		now, err := e.remains()
		if err != nil {
			return err
		}
		if d := now.more(before); d != "" {
			return fmt.Errorf("there is more: %s", d)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	if now := e.specFiles(); now != specs {
		t.Errorf("CDI specs and hook were\n%s\nand are\n%s", specs, now)
	}
}

// specFiles are all CDI specs of the node and what the runtime runs of Kerf's, with checksums: pods neither add nor
// take away nor change any.
func (e *testCase) specFiles() string {
	e.Helper()
	r := e.node.in("sh", "-c", `find /etc/cdi /var/run/cdi /opt/kerf -type f | sort | xargs sha256sum`)
	if r.err != nil || strings.Count(r.out, "/etc/cdi/kerf.dev-") < 2 || !strings.Contains(r.out, "/kerf-hook") {
		e.Fatalf("CDI specs and hook of the node: %v", r)
	}
	return r.out
}
