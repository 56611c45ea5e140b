// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kerf-gpu/kerf/test/benchline"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var (
	benchPods   = flag.Int("bench-pods", 0, "measure so many pods that start at once; 0: measure nothing")
	benchRounds = flag.Int("bench-rounds", 1, "how often to start them")
)

// benchTime bounds the start of all pods of one round.
const benchTime = 15 * time.Minute

// measured are the agent's histograms that are on the way of a container's start.
func measured() []string {
	return []string{"kerf_allocate_duration_seconds", "kerf_inject_duration_seconds",
		"kerf_grant_activation_duration_seconds"}
}

// What a container's start costs when many start at once. It judges nothing: the figures depend on the machine.
func TestBenchManyPods(t *testing.T) {
	if *benchPods == 0 {
		t.Skip("it measures, with -bench-pods=N")
	}
	var report strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&report, "\n  "+format, args...) }
	for round := range *benchRounds {
		var plain time.Duration
		t.Run(fmt.Sprintf("plain-%d", round), func(t *testing.T) {
			e := beginWithAgent(t)
			plain = e.startMany(*benchPods, nil)
			line("%s", benchline.Line("pods.plain", plain.Seconds(), "s"))
		})
		t.Run(fmt.Sprintf("capped-%d", round), func(t *testing.T) {
			e := beginWithAgent(t)
			with := e.measureStarts(line, "", "pods.shared-cpu")
			line("%s", benchline.Line("pods.capped", with.Seconds(), "s"))
			line("round %d: %d pods of one container, from the first creation to all running: %v with "+
				"kerf.dev/gpu-memory-gib: 1, %v without (%+.1f %%)",
				round+1, *benchPods, with.Round(10*time.Millisecond), plain.Round(10*time.Millisecond),
				100*(with.Seconds()/plain.Seconds()-1))
			took := e.timeHook(200)
			line("%s", benchline.Durations("hook", took))
			line("kerf-hook, as a process, for a container that is armed already (no work for the agent): p50 %v  "+
				"p99 %v; a container has two of them, guard and ask",
				took[len(took)/2].Round(time.Microsecond), took[len(took)*99/100].Round(time.Microsecond))
		})
		t.Run(fmt.Sprintf("starved-%d", round), func(t *testing.T) {
			e := beginWithAgent(t)
			watched := e.watchPods()
			e.startMany(*benchPods, gibs(1))
			line("round %d, once more, with an eye on the kernel: the cgroup of all pods was ready and not served "+
				"for up to %v", round+1, watched())
		})
		t.Run(fmt.Sprintf("own-cpu-%d", round), func(t *testing.T) {
			e := beginWithAgent(t)
			cpu := e.reserveCPU()
			took := e.measureStarts(line, cpu, "pods.own-cpu")
			line("round %d, agent and simulated driver alone on one of %d CPUs, with the questions of an activation: "+
				"all running after %v", round+1, runtime.NumCPU(), took.Round(10*time.Millisecond))
		})
	}
	t.Logf("measured:%s", report.String())
}

// measureStarts starts the pods, with a grant each, and writes down what the agent has counted. The concurrent requests
// to the agent come from the named CPU; "" allows any.
func (e *testCase) measureStarts(line func(string, ...any), cpu, key string) time.Duration {
	e.Helper()
	agent, before, queued := e.agentInstances(), e.histograms(), e.queued()
	logged := len(e.startTimes())
	machine := e.timeMachine(cpu)
	took := e.startMany(*benchPods, gibs(1))
	floor := machine()
	after, queued := e.histograms(), e.queued()-queued
	if now := e.agentInstances(); now != agent {
		e.Fatalf("the agent was %s, and is %s: its metrics started again", agent, now)
	}
	for _, name := range measured() {
		h := after[name].since(before[name])
		line("%-32s p50 %9v  p99 %9v  (%d values)", name, h.quantile(0.5).Round(time.Microsecond),
			h.quantile(0.99).Round(time.Microsecond), h.count())
		if h.count() < uint64(*benchPods) {
			e.Errorf("%s has counted %d of %d pods", name, h.count(), *benchPods)
		}
	}
	both := e.startTimes()[logged:]
	if len(both) < *benchPods {
		e.Errorf("the agent's log has %d of %d starts", len(both), *benchPods)
	}
	slices.Sort(both)
	line("%s", benchline.Durations(key, both))
	line("%-32s p50 %9v  p99 %9v  (%d values)", "inject and arm of a container",
		both[len(both)/2].Round(time.Microsecond), both[len(both)*99/100].Round(time.Microsecond), len(both))
	line("%-32s p50 %9v  p99 %9v  (%d values)", "the questions of an activation, by themselves",
		floor[len(floor)/2].Round(time.Microsecond), floor[len(floor)*99/100].Round(time.Microsecond), len(floor))
	line("resident with %d grants: %s", len(e.picture().Grants), e.resident(agentName))
	line("%s", benchline.Line(key+".agent.resident", e.residentMiB(agentName, "VmHWM:"), "MiB"))
	line("meanwhile, the threads of agent and simulated driver together waited for a CPU: %v for each pod",
		(queued / time.Duration(*benchPods)).Round(time.Microsecond))
	return took
}

// histograms reads those of measured from the agent.
func (e *testCase) histograms() map[string]histogram {
	e.Helper()
	r := e.node.in(e.node.program("kerf"), "metrics")
	if r.err != nil {
		e.Fatalf("kerf metrics: %v", r)
	}
	all := map[string]histogram{}
	for _, name := range measured() {
		h, err := histogramOf(r.out, name)
		if err != nil {
			e.Fatal(err)
		}
		all[name] = h
	}
	return all
}

// startTimes are what inject and arm took together, for each container that the agent's log tells of, in that order.
func (e *testCase) startTimes() []time.Duration {
	e.Helper()
	var all []time.Duration
	for l := range strings.Lines(e.agentLog(false)) {
		if !strings.Contains(l, "msg=\"activated grant\"") {
			continue
		}
		var sum time.Duration
		for _, key := range []string{" took=", " inject_took="} {
			_, rest, found := strings.Cut(l, key)
			word, _, _ := strings.Cut(strings.TrimSpace(rest), " ")
			d, err := time.ParseDuration(word)
			if !found || err != nil {
				e.Fatalf("the agent's log: %s in %q: %v", key, l, err)
			}
			sum += d
		}
		all = append(all, sum)
	}
	return all
}

// queued is how long the threads of the agent and of the simulated driver have been ready and had no CPU: what a
// machine with more of them would not add. A thread that has ended no longer counts.
func (e *testCase) queued() time.Duration {
	e.Helper()
	busybox := e.node.busybox()
	r := e.node.in("/bin/sh", "-c", "for p in $("+busybox+
		" pidof kerf-agent gpusim); do cat /proc/$p/task/*/schedstat; done")
	if r.err != nil {
		e.Fatalf("time in the run queue: %v", r)
	}
	var all time.Duration
	for l := range strings.Lines(r.out) {
		f := strings.Fields(l) // on the CPU, waiting for it (both in ns), how often
		if len(f) != 3 {
			e.Fatalf("schedstat: %q", l)
		}
		n, err := strconv.ParseInt(f[1], 10, 64)
		if err != nil {
			e.Fatalf("schedstat: %v", err)
		}
		all += time.Duration(n)
	}
	return all
}

// resident is how much memory a program of the node has, and what of it is files: its own code, which the kernel can
// free.
func (e *testCase) resident(program string) string {
	e.Helper()
	var parts []string
	for _, key := range []string{"VmHWM:", "VmRSS:", "RssAnon:", "RssFile:"} {
		parts = append(parts, fmt.Sprintf("%s %.1f MiB", strings.TrimSuffix(key, ":"), e.residentMiB(program, key)))
	}
	return program + " " + strings.Join(parts, ", ")
}

// residentMiB is a line of /proc/PID/status of a program of the node, in MiB.
func (e *testCase) residentMiB(program, key string) float64 {
	e.Helper()
	r := e.node.in("/bin/sh", "-c", "cat /proc/$("+e.node.busybox()+" pidof "+program+")/status")
	if r.err != nil {
		e.Fatalf("memory of %s: %v", program, r)
	}
	for l := range strings.Lines(r.out) {
		rest, ok := strings.CutPrefix(l, key)
		if !ok {
			continue
		}
		kib, err := strconv.Atoi(strings.Fields(rest)[0])
		if err != nil {
			e.Fatalf("memory of %s: %q", program, l)
		}
		return float64(kib) / 1024
	}
	e.Fatalf("memory of %s: no %s in %s", program, key, r.out)
	return 0
}

// startMany creates n pods at once and returns how long it took until all of them ran.
func (e *testCase) startMany(n int, limits map[string]string) time.Duration {
	e.Helper()
	spec := func(name string) podSpec { return one(name, limits, hold) }
	e.warmUp(spec)
	return e.startSpecs(n, spec)
}

// warmUp starts one pod and deletes it: the namespace's first pod waits for its service account.
func (e *testCase) warmUp(spec func(name string) podSpec) {
	e.Helper()
	warm := e.create(spec("warm"))
	warm.running()
	warm.delete()
}

// startSpecs creates n pods at once and returns how long it took until all of them ran.
func (e *testCase) startSpecs(n int, spec func(name string) podSpec) time.Duration {
	e.Helper()
	var objects []*corev1.Pod
	for i := range n {
		s := spec(fmt.Sprintf("many-%03d", i))
		objects = append(objects, s.object(e.namespace))
		e.pods = append(e.pods, &pod{e: e, name: s.name, namespace: e.namespace})
	}
	began := time.Now()
	var group sync.WaitGroup
	for _, o := range objects {
		group.Go(func() {
			if _, err := e.client.CoreV1().Pods(e.namespace).Create(background(), o,
				metav1.CreateOptions{}); err != nil {
				e.Errorf("create pod %s: %v", o.Name, err)
			}
		})
	}
	group.Wait()
	if e.Failed() {
		e.FailNow()
	}
	err := pollFor(benchTime, fmt.Sprintf("%d running pods", n), func() error {
		list, err := e.client.CoreV1().Pods(e.namespace).List(background(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		running := 0
		for _, o := range list.Items {
			if runs(&o) {
				running++
			}
			if o.Status.Phase == corev1.PodFailed {
				return final("%s: %s", o.Name, describe(&o))
			}
		}
		if running < n {
			return fmt.Errorf("%d of %d run", running, n)
		}
		return nil
	})
	took := time.Since(began)
	if err != nil {
		e.Fatal(err)
	}
	for _, g := range e.picture().Grants {
		if g.Namespace == e.namespace && g.Level != "driver" {
			e.Errorf("%s: %+v", g.Pod, g)
		}
	}
	return took
}

// timeHook runs kerf-hook so often, on the node, for a container that is armed already, and returns what each took
// from the fork to its end, sorted. All that the agent does is to look the container up, so that this is what the
// hook adds by being a process.
func (e *testCase) timeHook(times int) []time.Duration {
	e.Helper()
	p := e.create(one("hooked", gibs(1), hold))
	p.running()
	g := e.grantUsed(p, "main")
	state := filepath.Join(e.TempDir(), "state.json") // the node sees this machine's /tmp
	text := fmt.Sprintf(`{"ociVersion":"1.2.0","id":%q,"status":"creating","pid":%d,"bundle":"/"}`, g.ContainerID,
		g.PIDs[0])
	if err := os.WriteFile(state, []byte(text), 0o644); err != nil {
		e.Fatal(err)
	}
	const loop = `for ((i = 0; i < $1; i++)); do
		began=$EPOCHREALTIME
		"$2" activate --socket /run/kerf/hook.sock --request gpu-memory-gib:1 <"$3" || exit
		ended=$EPOCHREALTIME
		echo $((${ended/[.,]/} - ${began/[.,]/}))
	done`
	r := e.node.in("bash", "-c", loop, "_", strconv.Itoa(times), e.node.program("kerf-hook"), state)
	if r.err != nil {
		e.Fatalf("kerf-hook: %v", r)
	}
	var all []time.Duration
	for word := range strings.FieldsSeq(r.out) {
		n, err := strconv.Atoi(word)
		if err != nil {
			e.Fatal(err)
		}
		all = append(all, time.Duration(n)*time.Microsecond)
	}
	slices.Sort(all)
	return all
}
