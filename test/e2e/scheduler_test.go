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

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

const (
	schedulerName  = "kerf-scheduler"
	schedulerImage = "kerf.test/scheduler:1"
	planOf         = "scheduling.kerf.dev/main"
)

// withScheduler applies deploy/scheduler, with the image made here, until the test ends.
func withScheduler(t *testing.T) *testCase {
	t.Helper()
	return withSchedulerAs(t, "placementTimeout: 5m", "placementTimeout: 5s") // minutes are too long here
}

// withSchedulerAs is withScheduler with another text in place of one in the manifests.
func withSchedulerAs(t *testing.T, from, to string) *testCase {
	t.Helper()
	e := beginWithAgent(t)
	files, err := filepath.Glob(filepath.Join(e.node.env["REPO"], "deploy/scheduler/*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("deploy/scheduler: %v, %v", files, err)
	}
	var all strings.Builder
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		all.Write(text)
		all.WriteString("---\n")
	}
	// Gangs are behind a feature gate.
	const log = "- --logging-format=json"
	gates := log
	if e.serves("scheduling.k8s.io/v1beta1", "PodGroup") {
		gates += "\n        - --feature-gates=GenericWorkload=true,TopologyAwareWorkloadScheduling=true"
	}
	text := strings.NewReplacer("kerf.dev/scheduler:dev", schedulerImage, from, to, log,
		gates).Replace(all.String())
	t.Cleanup(func() { e.kubectl(text, "delete", "--ignore-not-found", "--wait=false", "-f", "-") })
	if err := e.apply(text); err != nil {
		t.Fatal(err)
	}
	e.waitForScheduler()
	return e
}

func (e *testCase) waitForScheduler() {
	e.Helper()
	eventually(e, "the scheduler", func() error {
		d, err := e.client.AppsV1().Deployments(kerfNamespace).Get(background(), schedulerName, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if d.Status.ReadyReplicas != 1 || d.Status.ObservedGeneration != d.Generation {
			return fmt.Errorf("%d replicas are ready", d.Status.ReadyReplicas)
		}
		return nil
	})
}

// killScheduler ends its process without warning, and waits until the next one is ready.
func (e *testCase) killScheduler() {
	e.Helper()
	restarts := func() (n int32) {
		list, err := e.client.CoreV1().Pods(kerfNamespace).List(background(),
			metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=" + schedulerName})
		if err != nil {
			e.Fatal(err)
		}
		for _, o := range list.Items {
			for _, s := range o.Status.ContainerStatuses {
				n += s.RestartCount
			}
		}
		return n
	}
	before := restarts()
	e.node.in(e.node.busybox(), "killall", "-KILL", schedulerName)
	eventually(e, "the scheduler's next start", func() error {
		if restarts() == before {
			return errors.New("it was not started again")
		}
		return nil
	})
	e.waitForScheduler()
}

// byKerf has a pod placed by kerf-scheduler.
func byKerf(s podSpec) podSpec {
	before := s.edit
	s.edit = func(p *corev1.Pod) {
		p.Spec.SchedulerName = schedulerName
		if before != nil {
			before(p)
		}
	}
	return s
}

// asPlanned looks whether a pod that runs has the GPUs that its Binding named.
func (e *testCase) asPlanned(p *pod) string {
	e.Helper()
	plan := p.running().Annotations[planOf]
	var has []string
	for _, f := range e.grantOf(p, "main").Shares {
		has = append(has, f.GPU)
	}
	if plan == "" || plan != strings.Join(has, ",") {
		e.Errorf("pod %s was planned on %q and has %q", p.name, plan, has)
	}
	return plan
}

// The scheduler plans, the node does as planned, and both say so.
func TestSchedulerPlaces(t *testing.T) {
	e := withScheduler(t)
	small := e.create(byKerf(one("small", gibs(10), hold)))
	mate := e.create(byKerf(one("mate", gibs(20), hold)))
	pair := e.create(byKerf(one("pair", wholeGPUs(2), hold)))
	first, second, whole := e.asPlanned(small), e.asPlanned(mate), e.asPlanned(pair)
	if first != second {
		t.Errorf("two shares that fit on one GPU lie on %s and %s", first, second)
	}
	if gpus := strings.Split(whole, ","); len(gpus) != 2 || slices.Contains(gpus, first) {
		t.Errorf("two whole GPUs: %s, a share lies on %s", whole, first)
	}
	small.event("GPUAssigned", "10GiB of "+first)
	e.placedWithTerms(small)
	plain := e.create(byKerf(one("plain", nil, hold)))
	if o := plain.running(); o.Annotations[planOf] != "" {
		t.Errorf("a pod without a GPU has a plan: %s", o.Annotations[planOf])
	}
	huge := e.create(byKerf(one("huge", gibs(200), hold)))
	huge.event("FailedScheduling", "needs 200GiB on one GPU: 1 node has GPUs that are too small")
}

// placedWithTerms waits for the scheduler's log line that says where a pod was placed, and with which terms of the
// score.
func (e *testCase) placedWithTerms(p *pod) {
	e.Helper()
	eventually(e, "log line of "+p.name, func() error {
		list, err := e.client.CoreV1().Pods(kerfNamespace).List(background(),
			metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=" + schedulerName})
		if err != nil {
			return err
		}
		var text []byte
		for _, o := range list.Items {
			one, err := e.client.CoreV1().Pods(kerfNamespace).GetLogs(o.Name,
				&corev1.PodLogOptions{}).DoRaw(background())
			if err != nil {
				return err
			}
			text = append(text, one...)
		}
		for line := range strings.Lines(string(text)) {
			var said map[string]any
			if !strings.Contains(line, `"assigned GPUs to pod"`) || json.Unmarshal([]byte(line), &said) != nil ||
				!strings.Contains(fmt.Sprint(said["pod"]), p.name) {
				continue
			}
			if _, numbers := said["term.fragmentation"].(float64); !numbers ||
				said["node"] != e.node.env["NODE_NAME"] || said["nodesWithRoom"] != 1.0 {
				return final("it says %s", line)
			}
			return nil
		}
		return errors.New("there is none")
	})
}

// race creates pods of which only so many have room, and waits until those run and the others know what they wait for.
func (e *testCase) race(pods, room int, limits map[string]string, meanwhile func()) (run, wait []*pod) {
	e.Helper()
	var all []*pod
	for i := range pods {
		all = append(all, e.create(byKerf(one(fmt.Sprintf("p%02d", i), limits, hold))))
	}
	meanwhile()
	eventually(e, fmt.Sprintf("%d of %d pods run", room, pods), func() error {
		run, wait = nil, nil
		list, err := e.client.CoreV1().Pods(e.namespace).List(background(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		now := map[string]corev1.Pod{}
		for _, o := range list.Items {
			now[o.Name] = o
		}
		for _, p := range all {
			o, there := now[p.name]
			switch {
			case !there:
				return final("pod %s is gone", p.name)
			case o.Status.Phase == corev1.PodFailed:
				return final("pod %s was refused: %s", p.name, describe(&o))
			case runs(&o):
				run = append(run, p)
			case o.Spec.NodeName == "":
				wait = append(wait, p)
			}
		}
		if len(run) > room {
			return final("%d run", len(run))
		}
		if len(run) != room || len(run)+len(wait) != pods {
			return fmt.Errorf("%d run, %d wait", len(run), len(wait))
		}
		return nil
	})
	return run, wait
}

// Of a hundred pods that come at once exactly those run that there is room for, the others say why they wait, and one
// that ends makes room for another at once.
func TestSchedulerRace(t *testing.T) {
	const comers, places = 100, 10
	e := withScheduler(t)
	// Six GPUs are in use; each of the two others has capacity for five pods.
	holder := e.create(byKerf(one("holder", wholeGPUs(6), hold)))
	taken := strings.Split(e.asPlanned(holder), ",")
	run, wait := e.race(comers, places, gibs(15), func() {})
	used := map[string]int{}
	for _, p := range run {
		used[e.asPlanned(p)]++
	}
	for gpu, n := range used {
		if n != places/2 || slices.Contains(taken, gpu) {
			t.Errorf("%d of them are on GPU %s; %q are in use", n, gpu, taken)
		}
	}
	wait[0].event("FailedScheduling", "needs 15GiB on one GPU: best of 1 node has 4")
	run[0].delete()
	began := time.Now()
	eventually(e, "another pod in its place", func() error {
		for _, p := range wait {
			if o, err := p.fetch(); err == nil && o.Spec.NodeName != "" {
				return nil
			}
		}
		return errors.New("none is bound")
	})
	t.Logf("%v after the end of a pod another is bound", time.Since(began).Round(time.Millisecond))
}

// A scheduler that is killed while it places pods, and again when it goes on, gives nothing twice, and loses nothing.
func TestSchedulerKilled(t *testing.T) {
	e := withScheduler(t)
	e.race(20, 16, gibs(39), func() {
		for range 2 {
			time.Sleep(200 * time.Millisecond) // for it to be in the middle of something
			e.killScheduler()
		}
	})
}

// The pod that matters more takes the place of the one that matters least.
func TestSchedulerPreempts(t *testing.T) {
	e := withScheduler(t)
	important := e.importance()
	var low []*pod
	for i := range 8 { // seven GPUs with one pod each, and one with two
		low = append(low, e.create(byKerf(one(fmt.Sprintf("low%d", i), gibs(45), hold))))
	}
	for _, p := range low {
		p.running()
	}
	second := e.create(byKerf(one("second", gibs(30), hold)))
	crowded := second.running().Annotations[planOf]
	above := e.create(byKerf(podSpec{name: "important", containers: []container{{run: hold, limits: gibs(70)}},
		edit: func(p *corev1.Pod) { p.Spec.PriorityClassName = important }}))
	if got := e.asPlanned(above); got == crowded {
		t.Errorf("it took GPU %s from two pods", got)
	}
	if gone := gaveWay(append(low, second)); len(gone) != 1 {
		t.Errorf("%q gave way, want one", gone)
	}
	e.stuck()
}

// importance is the name of a priority class of pods that matter more than others, until the test ends.
func (e *testCase) importance() string {
	e.Helper()
	name := "important-" + e.namespace
	classes := e.client.SchedulingV1().PriorityClasses()
	if _, err := classes.Create(background(), &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: name},
		Value: 1000}, metav1.CreateOptions{}); err != nil {
		e.Fatal(err)
	}
	e.Cleanup(func() {
		if err := classes.Delete(background(), name, metav1.DeleteOptions{}); err != nil {
			e.Error(err)
		}
	})
	return name
}

// gaveWay are the names of the pods that are gone or about to go.
func gaveWay(pods []*pod) (names []string) {
	for _, p := range pods {
		if o, err := p.fetch(); err != nil || o.DeletionTimestamp != nil {
			names = append(names, p.name)
		}
	}
	return names
}

// stuck binds a pod to the node, as kerf-scheduler would, that has no room for it: it is evicted, and its events say
// why.
func (e *testCase) stuck() {
	e.Helper()
	s := one("stuck", gibs(60), hold)
	s.edit = func(p *corev1.Pod) { p.Spec.SchedulerName = "no-one" }
	p := e.create(s)
	node, err := e.gpuNode()
	if err != nil || len(node.GPUs) == 0 {
		e.Fatalf("GPUs: %v", err)
	}
	config := rest.CopyConfig(e.config)
	config.Impersonate = rest.ImpersonationConfig{UserName: "system:serviceaccount:" + kerfNamespace + ":" +
		schedulerName, Groups: []string{"system:serviceaccounts", "system:authenticated"}}
	as, err := kubernetes.NewForConfig(config)
	if err == nil {
		err = as.CoreV1().Pods(e.namespace).Bind(background(), &corev1.Binding{
			ObjectMeta: metav1.ObjectMeta{Name: p.name, Namespace: e.namespace,
				Annotations: map[string]string{planOf: node.GPUs[0].UUID}},
			Target: corev1.ObjectReference{Kind: "Node", Name: e.node.env["NODE_NAME"]},
		}, metav1.CreateOptions{})
	}
	if err != nil {
		e.Fatal(err)
	}
	p.event("GPUPlacementTimeout", "(placementTimeout is 5s)")
	eventually(e, "its end", p.goneError)
}
