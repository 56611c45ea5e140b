// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/kerf-gpu/kerf/test/benchline"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var (
	benchNodes = flag.Int("bench-nodes", 0,
		"measure the scheduler on so many hollow nodes of 8 GPUs; 0: measure nothing")
	benchBound = flag.Int("bench-bound", 5000, "how many pods it binds")
)

// bindTime bounds the binding of all pods of one round.
const bindTime = 30 * time.Minute

// Compares kerf-scheduler with kube-scheduler, which counts one opaque resource: pods bound per second, and memory.
// Both have the same nodes and as many pods, one after the other. The pods exist when a scheduler starts, and the time
// runs from the first binding to the last. Then the test measures how soon kerf-scheduler binds a pending pod. It
// judges nothing: the figures depend on the machine.
func TestBenchScheduler(t *testing.T) {
	if *benchNodes == 0 {
		t.Skip("it measures, with -bench-nodes=N")
	}
	var report strings.Builder
	var rates, sizes []float64
	for round := range 2 * *benchRounds {
		name := []string{"kube-scheduler", schedulerName}[round%2]
		t.Run(fmt.Sprintf("%s-%d", name, round/2), func(t *testing.T) {
			h := begin(t).hollowNodes(*benchNodes, 8)
			program, config, limits := h.node.program(schedulerName), h.kerfScheduler(), percent(25)
			if name != schedulerName {
				program, config, limits = h.node.env["BIN"]+"/kube-scheduler", h.stockScheduler(),
					map[string]string{opaque: "1"}
			}
			h.manyPods(*benchBound, limits)
			var args []string
			look, profiled := func() {}, (*served)(nil)
			if *benchProfiles != "" {
				profiled, args = serving(t)
			}
			began := time.Now()
			s := h.runScheduler(program, config, args...)
			if profiled != nil {
				look = profiled.profile(filepath.Base(program) + "-" + strconv.Itoa(round/2))
			}
			first, last := h.allBound(*benchBound)
			look()
			used, err := s.used()
			if err != nil {
				t.Fatal(err)
			}
			peak, err := s.peak()
			if err != nil {
				t.Fatal(err)
			}
			cpu := used / time.Duration(*benchBound)
			rate := float64(*benchBound-1) / last.Sub(first).Seconds()
			rates, sizes = append(rates, rate), append(sizes, float64(peak))
			said := fmt.Sprintf("%-15s %d pods on %d nodes: %.0f bound in a second, the first %v after its start; %v "+
				"of CPU time for each, at most %d MiB resident",
				name, *benchBound, *benchNodes, rate, first.Sub(began).Round(10*time.Millisecond),
				cpu.Round(10*time.Microsecond), peak/mib)
			t.Log(said) // at once: what comes may fail
			t.Log(strings.Join([]string{benchline.Line(name+".rate", rate, "pods/s"),
				benchline.Line(name+".cpu", float64(cpu.Microseconds())/1000, "ms"),
				benchline.Line(name+".resident", float64(peak/mib), "MiB")}, "\n"))
			fmt.Fprintf(&report, "\n  %s", said)
			if name == schedulerName {
				next := h.nextPod()
				t.Log(benchline.Durations("scheduler.next", next))
				fmt.Fprintf(&report, "\n  %s", saidOf(next))
			}
			s.end()
		})
		if t.Failed() {
			return
		}
		if round%2 == 1 {
			n := len(rates)
			fmt.Fprintf(&report, "\n  %s is %.2f times as fast, and takes %.2f times the memory", schedulerName,
				rates[n-1]/rates[n-2], sizes[n-1]/sizes[n-2])
			t.Log(benchline.Line("scheduler.faster", rates[n-1]/rates[n-2], "times"), "\n"+
				benchline.Line("scheduler.memory", sizes[n-1]/sizes[n-2], "times"))
		}
	}
	t.Logf("measured:%s", report.String())
}

// stockScheduler is kube-scheduler as it comes, for pods of this test alone.
func (h *hollow) stockScheduler() string {
	return "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nleaderElection: " +
		"{leaderElect: false}\n" +
		"clientConnection: {kubeconfig: KUBECONFIG, qps: 1000, burst: 2000}\nprofiles:\n- schedulerName: " +
		h.scheduler() + "\n"
}

// manyPods makes pods that hollow nodes take. The test ends with all of them at once.
func (h *hollow) manyPods(n int, limits map[string]string) {
	h.Helper()
	errs, next := make(chan error), make(chan int)
	const workers = 16
	for range workers {
		go func() {
			var failed error
			for i := range next {
				if failed != nil {
					continue
				}
				s := one("many-"+strconv.Itoa(i), limits, hold)
				s.edit = func(p *corev1.Pod) { h.confine(p, -1) }
				failed = h.make(s)
			}
			errs <- failed
		}()
	}
	for i := range n {
		next <- i
	}
	close(next)
	var failed error
	for range workers {
		failed = errors.Join(failed, <-errs)
	}
	if failed != nil {
		h.Fatal(failed)
	}
}

// make makes one pod.
func (h *hollow) make(s podSpec) error {
	return poll("creation of pod "+s.name, func() error {
		_, err := h.client.CoreV1().Pods(h.namespace).Create(background(), s.object(h.namespace),
			metav1.CreateOptions{})
		if err != nil && !strings.Contains(err.Error(), "serviceaccount") {
			return final("%w", err)
		}
		return err
	})
}

// allBound waits until that many pods are bound, and says when the first and the last one was, as far as it was seen.
func (h *hollow) allBound(n int) (first, last time.Time) {
	h.Helper()
	seen := map[string]bool{}
	for end := time.Now().Add(bindTime); len(seen) < n; {
		// The client ends a watch after a while; the next one tells of all again.
		watch, err := h.client.CoreV1().Pods(h.namespace).Watch(background(),
			metav1.ListOptions{FieldSelector: "spec.nodeName!="})
		if err != nil {
			h.Fatal(err)
		}
		for e := range watch.ResultChan() {
			o, ok := e.Object.(*corev1.Pod)
			if !ok || seen[o.Name] {
				continue
			}
			if last = time.Now(); len(seen) == 0 {
				first = last
			}
			if seen[o.Name] = true; len(seen) == n {
				break
			}
		}
		watch.Stop()
		if time.Now().After(end) {
			h.Fatalf("%d of %d pods are bound after %v", len(seen), n, bindTime)
		}
	}
	return first, last
}

// used is the CPU time that the process has had.
func (s *started) used() (time.Duration, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", s.Process.Pid))
	if err != nil {
		return 0, err
	}
	// Its name, in parentheses, may have spaces. Behind it come the state and eleven more before the time.
	_, rest, _ := strings.Cut(string(text), ") ")
	f := strings.Fields(rest)
	if len(f) < 13 {
		return 0, fmt.Errorf("the kernel says of it: %q", text)
	}
	var ticks time.Duration
	for _, field := range f[11:13] {
		n, err := strconv.ParseUint(field, 10, 32)
		if err != nil {
			return 0, err
		}
		ticks += time.Duration(n)
	}
	return ticks * time.Second / 100, nil
}

// peak is the most memory that the process has had resident, in bytes.
func (s *started) peak() (uint64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.Process.Pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) == 3 && f[0] == "VmHWM:" {
			n, err := strconv.ParseUint(f[1], 10, 64)
			return n << 10, err
		}
	}
	return 0, errors.New("the kernel does not tell of its memory")
}
