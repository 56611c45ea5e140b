// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"flag"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kerf-gpu/kerf/test/benchline"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var benchMIGPods = flag.Int("bench-mig-pods", 0,
	"measure so many MIG instances that are cut for pods, one after the other; 0: measure nothing")

// atOnce is how many pods request an instance at the same moment: as many as fit on the two GPUs in MIG mode.
const atOnce = 14

// The time from the request for a pod's Binding until the agent logs that it created the pod's instance. The test
// judges nothing. The simulated driver's calls take no time: a real driver's calls add to this.
func TestBenchMIG(t *testing.T) {
	if *benchMIGPods == 0 {
		t.Skip("it measures, with -bench-mig-pods=N")
	}
	e := beginWithAgent(t)
	e.cutNode()
	var single, many []time.Duration
	profiles := []string{"1g.10gb", "2g.20gb", "3g.40gb"}
	for i := range *benchMIGPods + 1 {
		took := e.cutPods([]string{profiles[i%len(profiles)]}, fmt.Sprintf("one-%d", i))
		if i > 0 { // the first finds nothing warm: the namespace's service account, the image
			single = append(single, took...)
		}
	}
	for i := 0; len(many) < *benchMIGPods; i++ {
		many = append(many, e.cutPods(slices.Repeat([]string{"1g.10gb"}, atOnce), fmt.Sprintf("many-%d", i))...)
	}
	r := e.kerf("metrics")
	cut, err := histogramOf(r.out, "kerf_mig_instance_create_duration_seconds")
	if err != nil {
		t.Fatalf("%v: %v", err, r.errOut)
	}
	line := func(what string, all []time.Duration) string {
		slices.Sort(all)
		return fmt.Sprintf("\n  %-44s p50 %6v  p99 %6v  (%d pods)", what, all[len(all)/2].Round(time.Millisecond),
			all[len(all)*99/100].Round(time.Millisecond), len(all))
	}
	t.Log(benchline.Durations("mig.single", single) + "\n" + benchline.Durations("mig.many", many) + "\n" +
		benchline.Line("mig.create.p50", cut.quantile(0.5).Seconds(), "s") + "\n" +
		benchline.Line("mig.create.p99", cut.quantile(0.99).Seconds(), "s"))
	t.Logf("measured:%s%s\n  %-44s p50 %6v  p99 %6v  (%d cuts)", line("pod bound to instance ready, one at a time",
		single), line(fmt.Sprintf("the same, %d pods at once on two GPUs", atOnce), many),
		"of that the cut, by the agent's own count", cut.quantile(0.5).Round(time.Millisecond),
		cut.quantile(0.99).Round(time.Millisecond), cut.count())
}

// cutPods binds a pod for each profile at once, and returns what each waited for its instance, which the agent must
// create. It leaves nothing.
func (e *testCase) cutPods(profiles []string, name string) []time.Duration {
	e.Helper()
	var pods []*pod
	for i, profile := range profiles {
		s := one(fmt.Sprintf("%s-%d", name, i), instance(profile), hold)
		s.edit = func(p *corev1.Pod) { p.Spec.SchedulerName = "no-one" }
		pods = append(pods, e.create(s))
	}
	bound := make([]time.Time, len(pods))
	var group sync.WaitGroup
	for i, p := range pods {
		group.Go(func() {
			bound[i] = time.Now()
			err := e.client.CoreV1().Pods(p.namespace).Bind(background(), &corev1.Binding{
				ObjectMeta: metav1.ObjectMeta{Name: p.name, Namespace: p.namespace},
				Target:     corev1.ObjectReference{Kind: "Node", Name: e.node.env["NODE_NAME"]},
			}, metav1.CreateOptions{})
			if err != nil {
				e.T.Errorf("bind %s: %v", p.name, err)
			}
		})
	}
	group.Wait()
	for _, p := range pods {
		p.running()
	}
	cut := e.cutTimes()
	var took []time.Duration
	for i, p := range pods {
		at, ok := cut["pod "+p.namespace+"/"+p.name]
		if !ok {
			e.Fatalf("the agent's log has no cut for %s: %v", p.name, cut)
		}
		took = append(took, at.Sub(bound[i]))
		p.startDeletion()
	}
	for _, p := range pods {
		eventually(e, "end of "+p.name, p.goneError)
	}
	e.pods = slices.DeleteFunc(e.pods, func(p *pod) bool { return slices.Contains(pods, p) })
	eventually(e, "no instance", func() error { return e.cutAsBooked(0) })
	return took
}

// cutTimes are the moments at which instances were created, by pod, from the agent's log.
func (e *testCase) cutTimes() map[string]time.Time {
	e.Helper()
	all := map[string]time.Time{}
	for l := range strings.Lines(e.agentLog(false)) {
		_, rest, found := strings.Cut(l, ` for="`)
		who, _, closed := strings.Cut(rest, `"`)
		if !found || !closed || !strings.Contains(l, `msg="created MIG instance"`) {
			continue
		}
		_, rest, _ = strings.Cut(l, "time=")
		text, _, _ := strings.Cut(rest, " ")
		at, err := time.Parse(time.RFC3339Nano, text)
		if err != nil {
			e.Fatalf("the agent's log: %q: %v", l, err)
		}
		all[who] = at
	}
	return all
}
