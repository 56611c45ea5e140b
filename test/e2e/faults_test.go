// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kerf-gpu/kerf/test/benchline"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	gpusHealthy = "kerf.dev/GPUsHealthy"
	faultTaint  = "kerf.dev/gpu-unhealthy"
	// deaf is a program that says when it is asked to end, and goes on.
	deaf = `trap 'echo asked' TERM; gpuload --json --alloc 1GiB; while :; do sleep 0.1; done`
)

// withHealth gives the pool rules for faults until the test ends.
func (e *testCase) withHealth(health string) {
	e.Helper()
	rules := e.readRules()
	e.Cleanup(func() { e.writeRules(rules) })
	const pool = "- name: default\n"
	before, _, _ := strings.Cut(rules, pool)
	if strings.Count(rules, pool) != 1 {
		e.Fatalf("the rules have not one %q: %q", pool, rules)
	}
	indent := before[strings.LastIndex(before, "\n")+1:]
	e.writeRules(strings.Replace(rules, pool, pool+indent+"  health: "+health+"\n", 1))
}

// variant applies a file of deploy/variants until the test ends.
func (e *testCase) variant(name string) {
	e.Helper()
	text, err := os.ReadFile(filepath.Join(e.node.env["REPO"], "deploy/variants", name))
	if err != nil {
		e.Fatal(err)
	}
	e.Cleanup(func() { e.kubectl(string(text), "delete", "--ignore-not-found", "-f", "-") })
	if err := e.apply(string(text)); err != nil {
		e.Fatal(err)
	}
}

func (e *testCase) nodeObject() (*corev1.Node, error) {
	return e.client.CoreV1().Nodes().Get(background(), e.node.env["NODE_NAME"], metav1.GetOptions{})
}

// conditionError compares the node's condition with what it is to say.
func (e *testCase) conditionError(want corev1.ConditionStatus, words ...string) error {
	n, err := e.nodeObject()
	if err != nil {
		return err
	}
	for _, c := range n.Status.Conditions {
		if c.Type != gpusHealthy {
			continue
		}
		for _, w := range words {
			if !strings.Contains(c.Message, w) {
				return fmt.Errorf("%s says %q, not %q", c.Type, c.Message, w)
			}
		}
		if c.Status != want {
			return fmt.Errorf("%s is %s: %s", c.Type, c.Status, c.Message)
		}
		return nil
	}
	return errors.New("the node has no condition " + gpusHealthy)
}

// taintError compares the node's taint for faults with whether it is to be there.
func (e *testCase) taintError(want bool) error {
	n, err := e.nodeObject()
	if err == nil && want != slices.ContainsFunc(n.Spec.Taints,
		func(t corev1.Taint) bool { return t.Key == faultTaint && t.Effect == corev1.TaintEffectNoSchedule }) {
		err = fmt.Errorf("taints %v", n.Spec.Taints)
	}
	return err
}

// gpuNodeError compares a GPU's health in the GPUNode.
func (e *testCase) gpuNodeError(uuid, want string) error {
	s, err := e.gpuNode()
	if err != nil {
		return err
	}
	for _, g := range s.GPUs {
		switch {
		case g.UUID == uuid && g.Health != want:
			return fmt.Errorf("GPU %s is %s", g.UUID, g.Health)
		case g.UUID != uuid && g.Health != "healthy":
			return final("GPU %s, which has no fault, is %s", g.UUID, g.Health)
		}
	}
	return nil
}

// endingError compares the pods that the GPUNode tells are being ended.
func (e *testCase) endingError(want ...string) error {
	r := e.kubectl("", "get", "gpunode", e.node.env["NODE_NAME"], "-o", "jsonpath={.status.terminatingPods[*].pod}")
	if fields := slices.Sorted(slices.Values(strings.Fields(r.out))); r.err != nil || !slices.Equal(fields, want) {
		return fmt.Errorf("it tells that %q end: %w", fields, errors.Join(r.err))
	}
	return nil
}

// saidError tells whether an event with the words is about the pod.
func (p *pod) saidError(words ...string) error {
	texts, err := p.events()
	if err == nil && !slices.ContainsFunc(texts, func(t string) bool {
		return !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(t, w) })
	}) {
		err = fmt.Errorf("events %q", texts)
	}
	return err
}

// logError tells whether a container has written the text.
func (p *pod) logError(container, text string) error {
	log, err := p.log(container, false)
	if err == nil && !strings.Contains(log, text) {
		err = fmt.Errorf("it has %q", log)
	}
	return err
}

// allSoon waits until everything that is to follow from a fault has, and logs how long after it each was seen first.
func (e *testCase) allSoon(what string, began time.Time, follows map[string]func() error) {
	e.Helper()
	seen := map[string]time.Duration{}
	eventually(e, what, func() error {
		var errs []error
		for name, f := range follows {
			if _, ok := seen[name]; ok {
				continue
			}
			if err := f(); err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", name, err))
				if _, last := errors.AsType[finalError](err); last {
					return final("%s: %w", name, err)
				}
				continue
			}
			seen[name] = time.Since(began).Round(10 * time.Millisecond)
			e.Log(benchline.Line("fault."+strings.ReplaceAll(what+"."+name, " ", "-"), seen[name].Seconds(), "s"))
		}
		return errors.Join(errs...)
	})
	e.Logf("after the fault (%s): %v", what, seen)
}

// A fault of a GPU appears in every place that users read, for that GPU and its pods alone. By policy Kerf asks its pod
// to end, with a grace period, and then evicts it. When the GPU is healthy again, every message is withdrawn.
func TestFaultPolicy(t *testing.T) {
	e := beginWithAgent(t)
	e.withHealth("{onFault: evict, gracePeriod: 10s, nodeSignal: taint}")
	eventually(e, "the agent says which right it lacks", func() error {
		s, err := e.status()
		if err == nil && !slices.ContainsFunc(s.Warnings,
			func(w string) bool { return strings.Contains(w, "deploy/variants/node-health.yaml") }) {
			err = fmt.Errorf("warnings %q", s.Warnings)
		}
		return err
	})
	e.variant("node-health.yaml")
	e.variant("evict-over-cap.yaml")
	e.Cleanup(func() { e.setTaint(faultTaint, false) })
	eventually(e, "the condition", func() error { return e.conditionError(corev1.ConditionTrue) })
	full := e.allOffers()
	gpus := e.node.gpus(t)
	gpu := gpus[2]
	hit := e.create(podSpec{name: "hit", annotations: map[string]string{"gpu-uuid.kerf.dev/main": gpu.UUID,
		"gpu-uuid.kerf.dev/other": gpus[3].UUID}, containers: []container{
		{name: "main", run: deaf, limits: gibs(8)}, {name: "other", run: deaf, limits: gibs(4)},
		{name: "none", run: hold},
	}})
	neighbor := e.create(e.pinned("neighbor", 2, 8, "exec gpuload --json --alloc 1GiB --hold 1h"))
	spared := e.create(e.pinned("spared", 3, 8, "exec gpuload --json --alloc 1GiB --hold 1h"))
	for _, p := range []*pod{hit, neighbor, spared} {
		p.running()
	}
	hit.loads("main", 1)
	hit.loads("other", 1)
	before := e.heldBy(spared)

	began := time.Now()
	e.node.set(t, "gpu=2 xid=48")
	words := []string{gpu.UUID, "XID 48", "remedy: reset the GPU"}
	e.allSoon("of one GPU", began, map[string]func() error{
		"GPUNode":             func() error { return e.gpuNodeError(gpu.UUID, "unhealthy") },
		"condition":           func() error { return e.conditionError(corev1.ConditionFalse, words...) },
		"taint":               func() error { return e.taintError(true) },
		"event":               func() error { return hit.saidError(append(words, "GPUUnhealthy")...) },
		"event of the other":  func() error { return neighbor.saidError(append(words, "GPUUnhealthy")...) },
		"SIGTERM":             func() error { return hit.logError("main", "asked") },
		"SIGTERM of the pod":  func() error { return hit.logError("other", "asked") },
		"kubelet's own offer": func() error { return e.offersError(full.without(gpu)) },
		"GPUNode's ending":    func() error { return e.endingError("hit", "neighbor") }, // until they are evicted
	})
	eventually(e, "the eviction", hit.goneError)
	t.Logf("evicted %v after the fault, with a grace of 10s", time.Since(began).Round(10*time.Millisecond))
	eventually(e, "the eviction of the other", neighbor.goneError)
	eventually(e, "the word of it", func() error {
		return hit.saidError("GPUUnhealthy",
			"Kerf evicts the pod (onFault: evict)")
	})
	spared.running()
	e.wantSame(before, spared)
	if err := spared.saidError("GPU"); err == nil {
		t.Error("the pod on a GPU without a fault got an event about one")
	}

	e.resetGPU(2)
	e.allSoon("recovered", time.Now(), map[string]func() error{
		"GPUNode":   func() error { return e.gpuNodeError(gpu.UUID, "healthy") },
		"condition": func() error { return e.conditionError(corev1.ConditionTrue) },
		"taint":     func() error { return e.taintError(false) },
		"offer":     func() error { return e.offersError(full) },
	})

	// Uncorrected errors make a GPU suspect: people see it, no new pods come, and no pod ends.
	errorsSeen := 0
	eventually(e, "the suspect", func() error {
		errorsSeen++ // again and again: it is no suspect any more some seconds after the last one
		e.node.set(t, fmt.Sprintf("gpu=3 ecc.uncorrected=%d", errorsSeen))
		return e.conditionError(corev1.ConditionFalse, gpus[3].UUID, "memory errors")
	})
	if err := e.taintError(false); err != nil {
		t.Errorf("for a suspect: %v", err)
	}
	eventually(e, "the end of the suspicion", func() error { return e.conditionError(corev1.ConditionTrue) })
	spared.running()

	// One that is lost takes its pod with it, as one that is faulty does, and comes back.
	e.node.set(t, "gpu=3 lost=true")
	t.Cleanup(func() { e.node.set(t, "gpu=3 lost=false") })
	e.allSoon("a GPU that is lost", time.Now(), map[string]func() error{
		"GPUNode":   func() error { return e.gpuNodeError(gpus[3].UUID, "lost") },
		"condition": func() error { return e.conditionError(corev1.ConditionFalse, gpus[3].UUID, "lost") },
		"taint":     func() error { return e.taintError(true) },
		"event":     func() error { return spared.saidError("GPUUnhealthy", gpus[3].UUID) },
	})
	eventually(e, "the eviction", spared.goneError)
	e.node.set(t, "gpu=3 lost=false")
	e.offersBecome(full)

	// A pool that wants no mark any more has none.
	e.writeRules(strings.Replace(e.readRules(), "nodeSignal: taint", "nodeSignal: none", 1))
	eventually(e, "no condition", func() error {
		if err := e.conditionError(corev1.ConditionTrue); err == nil || !strings.Contains(err.Error(), "no condition") {
			return fmt.Errorf("it is there: %w", errors.Join(err))
		}
		return e.taintError(false)
	})
	e.marksAreItsOwn()
}

// resetGPU resets a GPU once no pod has it any more.
func (e *testCase) resetGPU(gpu int) {
	e.Helper()
	eventually(e, fmt.Sprintf("reset of GPU %d", gpu), func() error {
		return e.node.in(e.node.program("gpusim"), "set", "--dir", e.node.env["GPUSIM_DIR"], fmt.Sprint("gpu=", gpu),
			"reset=true").err
	})
}

func (e *testCase) offersError(want offered) error {
	if have := e.offers(); fmt.Sprint(have) != fmt.Sprint(want) {
		return fmt.Errorf("they are %v, want %v", have, want)
	}
	return nil
}

// marksAreItsOwn tries what an agent must not do with the right to mark its node.
func (e *testCase) marksAreItsOwn() {
	e.Helper()
	name := e.node.env["NODE_NAME"]
	taint := func(key string) string {
		return fmt.Sprintf(`{"spec":{"taints":[{"key":%q,"effect":"NoSchedule"}]}}`, key)
	}
	condition := func(kind string) string {
		return fmt.Sprintf(`{"status":{"conditions":[{"type":%q,"status":"False","reason":"Test","message":"test"}]}}`,
			kind)
	}
	for who, tc := range map[string]struct {
		nodes []string
		patch string
		sub   string
		want  string
	}{
		"another node's taint":     {[]string{"node-2"}, taint(faultTaint), "", "its own node alone"},
		"another node's condition": {[]string{"node-2"}, condition(gpusHealthy), "status", "its own node alone"},
		"someone else's taint":     {[]string{name}, taint("team/drain"), "", "change no other"},
		"kubelet's condition": {[]string{name}, condition("Ready"), "status",
			"the condition kerf.dev/GPUsHealthy alone"},
		"a cordon":          {[]string{name}, `{"spec":{"unschedulable":true}}`, "", "nothing else of a node"},
		"its own taint":     {[]string{name}, taint(faultTaint), "", ""},
		"its own condition": {[]string{name}, condition(gpusHealthy), "status", ""},
	} {
		var sub []string
		if tc.sub != "" {
			sub = []string{tc.sub}
		}
		_, err := e.asAgent(tc.nodes...).CoreV1().Nodes().Patch(background(), name, types.StrategicMergePatchType,
			[]byte(tc.patch), metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}}, sub...)
		if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
			e.Errorf("%s: %v, want %q", who, err, tc.want)
		}
	}
}

// A taint that says that the node will be taken away stops new grants and tells the pods that have one; without it the
// node gives again.
func TestSpotTaint(t *testing.T) {
	const key = "e2e.test/termination"
	e := beginWithAgent(t)
	e.withHealth("{terminationTaints: [" + key + "]}")
	e.variant("node-health.yaml")
	runs := e.create(one("runs", gibs(4), hold))
	runs.running()
	plain := e.create(podSpec{name: "plain", containers: []container{{name: "main", run: hold}}})
	plain.running()
	e.setTaint(key, true)
	t.Cleanup(func() { e.setTaint(key, false) })
	runs.event("NodeTerminating", key, "terminates soon")
	late := e.create(one("late", gibs(4), hold))
	late.event(key, "terminates soon")
	if o := late.get(); o.Spec.NodeName == "" || o.Status.Phase != corev1.PodPending {
		t.Errorf("the late pod: %s", describe(o))
	}
	if err := plain.saidError("NodeTerminating"); err == nil {
		t.Error("a pod without a GPU got an event")
	}
	runs.running()
	e.setTaint(key, false)
	late.running()
}

// setTaint adds a taint that blocks no pod to the node, or removes it. Cloud tools add such taints before they take a
// node.
func (e *testCase) setTaint(key string, on bool) {
	e.Helper()
	err := poll("taint of the node", func() error {
		n, err := e.nodeObject()
		if err != nil {
			return err
		}
		taints := slices.DeleteFunc(slices.Clone(n.Spec.Taints), func(t corev1.Taint) bool { return t.Key == key })
		if on {
			taints = append(taints, corev1.Taint{Key: key, Value: "true", Effect: corev1.TaintEffectPreferNoSchedule})
		}
		patch, err := json.Marshal(map[string]any{"metadata": map[string]string{"resourceVersion": n.ResourceVersion},
			"spec": map[string]any{"taints": taints}})
		if err == nil {
			_, err = e.client.CoreV1().Nodes().Patch(background(), n.Name, types.MergePatchType, patch,
				metav1.PatchOptions{})
		}
		return err
	})
	if err != nil {
		e.Fatal(err)
	}
}
