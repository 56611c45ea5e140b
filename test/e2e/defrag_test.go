// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A cluster of three nodes is fragmented: two nodes have one free GPU each, and small pods are on the third. A pod with
// eight GPUs waits. The plan moves the small pods. First commands that are killed one after the other carry it out,
// then the controller of kerf-scheduler, which is killed at each step. Both times the pod then runs, each small pod was
// replaced once, no other pod is touched, and no GPU is cordoned.
func TestDefragOnThreeNodes(t *testing.T) {
	e := withScheduler(t)
	d := &fragmented{testCase: e, nodes: e.join(2, 3), serve: func(do func()) { do() }}
	var fixed []*pod
	t.Cleanup(func() { // before the nodes leave: a pod ends only while its kubelet runs
		for _, p := range e.pods {
			p.delete()
		}
	})
	for i, node := range d.nodes[:2] {
		s := one(fmt.Sprint("fixed-", i), wholeGPUs(7), hold)
		s.edit = func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{corev1.LabelHostname: node} }
		fixed = append(fixed, e.create(byKerf(s)))
	}
	for _, p := range fixed {
		p.running()
	}
	e.mustKubectl("label", "namespace", e.namespace, "kerf.dev/defrag=true")
	t.Cleanup(func() { e.kubectl("", "uncordon", d.nodes[0], d.nodes[1]) })
	d.round("command", func() {
		if kills := e.defragWithKills(); kills < 4 { // begin, cordon, two evictions
			t.Errorf("only %d commands were killed", kills)
		}
	})
	c := d.controller()
	d.serve = c.withoutDefrag
	d.round("controller", c.killAtEachStep)
}

// fragmented is a cluster of three nodes. Of the first two, one GPU each is free.
type fragmented struct {
	*testCase
	nodes []string
	// serve calls a function while a scheduler runs that moves no pods.
	serve func(do func())
}

// round puts two small pods on the third node, and a pod with eight GPUs waits. move is to change that.
func (d *fragmented) round(name string, move func()) {
	d.Helper()
	small := []string{name + "-a", name + "-b"}
	d.mustKubectl("cordon", d.nodes[0], d.nodes[1])
	var remove []func()
	d.serve(func() {
		for _, s := range small {
			remove = append(remove, d.deployment(byKerf(one(s, gibs(20), hold))))
			d.onNodes(s, d.nodes[2:])
		}
	})
	d.mustKubectl("uncordon", d.nodes[0], d.nodes[1])
	big := d.create(byKerf(one(name, wholeGPUs(8), hold)))
	d.serve(func() { big.event("FailedScheduling", "GPU") })
	before := d.everyPod()
	d.wantMoves(big, d.nodes[2], small...)

	move()
	d.serve(func() {
		big.running()
		if node := big.get().Spec.NodeName; node != d.nodes[2] {
			d.Errorf("%s: the pod runs on %s, want %s", name, node, d.nodes[2])
		}
		for _, s := range small {
			d.onNodes(s, d.nodes[:2])
			if created := d.replicasCreated(s); created != 2 {
				d.Errorf("%s: the controller created %d pods, want one and its replacement", s, created)
			}
		}
	})
	d.untouched(name, before)
	cordons := d.mustKubectl("get", "gpunode", d.nodes[2], "-o", "jsonpath={.spec.cordonedGPUs}")
	if strings.Contains(cordons, "uuid") {
		d.Errorf("%s: GPUs stay cordoned: %s", name, cordons)
	}
	big.delete()
	for _, r := range remove {
		r()
	}
}

// untouched checks that a round has moved its small pods and changed no other.
func (d *fragmented) untouched(round string, before map[string]string) {
	d.Helper()
	after := d.everyPod()
	for uid, was := range before {
		now, there := after[uid]
		switch moves := strings.Contains(was, "/"+round+"-"); {
		case moves == there, there && now != was && !strings.Contains(was, "/"+round+" "):
			d.Errorf("%s: pod %s is now %q", round, was, now)
		}
	}
}

func (e *testCase) mustKubectl(args ...string) string {
	e.Helper()
	r := e.kubectl("", args...)
	if r.err != nil {
		e.Fatalf("kubectl %s: %v", strings.Join(args, " "), r)
	}
	return r.out
}

// deployment has one replica of a pod, until the returned function is called or the test ends.
func (e *testCase) deployment(s podSpec) (remove func()) {
	e.Helper()
	p := s.object(e.namespace)
	p.Spec.RestartPolicy = corev1.RestartPolicyAlways
	labels, replicas := map[string]string{"app": s.name}, int32(1)
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: s.name}, Spec: appsv1.DeploymentSpec{
		Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: p.Spec}}}
	_, err := e.client.AppsV1().Deployments(e.namespace).Create(background(), d, metav1.CreateOptions{})
	if err != nil {
		e.Fatal(err)
	}
	remove = sync.OnceFunc(func() {
		now := int64(0)
		policy := metav1.DeletePropagationForeground
		if err := e.client.AppsV1().Deployments(e.namespace).Delete(background(), s.name,
			metav1.DeleteOptions{GracePeriodSeconds: &now, PropagationPolicy: &policy}); err != nil {
			e.Error(err)
		}
		eventually(e, "the end of the pods of "+s.name, func() error {
			list, err := e.podsOf(s.name)
			if err == nil && len(list) > 0 {
				err = fmt.Errorf("%d are left", len(list))
			}
			return err
		})
	})
	e.Cleanup(remove)
	return remove
}

// onNodes waits until the only pod of a deployment is ready on one of these nodes.
func (e *testCase) onNodes(name string, nodes []string) {
	e.Helper()
	eventually(e, fmt.Sprintf("the pod of %s on one of %v", name, nodes), func() error {
		list, err := e.podsOf(name)
		if err != nil {
			return err
		}
		if len(list) != 1 {
			return fmt.Errorf("there are %d pods", len(list))
		}
		if !slices.Contains(nodes, list[0].Spec.NodeName) || !runs(&list[0]) {
			return fmt.Errorf("on %q: %s", list[0].Spec.NodeName, describe(&list[0]))
		}
		return nil
	})
}

// podsOf are the pods of a deployment.
func (e *testCase) podsOf(name string) ([]corev1.Pod, error) {
	list, err := e.client.CoreV1().Pods(e.namespace).List(background(),
		metav1.ListOptions{LabelSelector: "app=" + name})
	if err != nil {
		return nil, err
	}
	return list.Items, nil
}

// everyPod has each pod of the cluster with its node and restarts, by UID.
func (e *testCase) everyPod() map[string]string {
	e.Helper()
	list, err := e.client.CoreV1().Pods("").List(background(), metav1.ListOptions{})
	if err != nil {
		e.Fatal(err)
	}
	out := map[string]string{}
	for i := range list.Items {
		p := &list.Items[i]
		restarts := int32(0)
		for _, s := range p.Status.ContainerStatuses {
			restarts += s.RestartCount
		}
		out[string(p.UID)] = fmt.Sprintf("%s/%s on %s, %d restarts", p.Namespace, p.Name, p.Spec.NodeName, restarts)
	}
	return out
}

// replicasCreated is how often the ReplicaSet of a deployment has created a pod.
func (e *testCase) replicasCreated(name string) int {
	e.Helper()
	list, err := e.client.CoreV1().Events(e.namespace).List(background(), metav1.ListOptions{
		FieldSelector: "reason=SuccessfulCreate,involvedObject.kind=ReplicaSet"})
	if err != nil {
		e.Fatal(err)
	}
	n := 0
	for _, event := range list.Items {
		if strings.HasPrefix(event.InvolvedObject.Name, name+"-") {
			n += max(1, int(event.Count))
		}
	}
	return n
}

// defragCommand is kubectl kerf defrag, as the administrator starts it.
func (e *testCase) defragCommand(args ...string) (string, []string) {
	return e.node.kerf(), append([]string{"--kubeconfig", e.node.env["KUBECONFIG"], "defrag"}, args...)
}

// wantMoves checks that the plan moves the pods of these deployments from one node for a pod, and nothing else.
func (e *testCase) wantMoves(big *pod, from string, deployments ...string) {
	e.Helper()
	name, args := e.defragCommand("plan", "-o", "json")
	r := command(name, args...)
	var plan struct {
		Moves []struct{ Pod, From, To string }
		Fits  []struct{ Pod, To string }
	}
	if r.err == nil {
		r.err = json.Unmarshal([]byte(r.out), &plan)
	}
	if r.err != nil {
		e.Fatalf("plan: %v", r)
	}
	for _, m := range plan.Moves {
		if !strings.HasPrefix(m.From, from+"/") || strings.HasPrefix(m.To, from+"/") {
			e.Errorf("pod %s moves from %s to %s", m.Pod, m.From, m.To)
		}
		deployments = slices.DeleteFunc(slices.Clone(deployments), func(d string) bool {
			return strings.HasPrefix(m.Pod, e.namespace+"/"+d+"-")
		})
	}
	if len(deployments) > 0 || len(plan.Moves) != 2 || len(plan.Fits) != 1 ||
		plan.Fits[0].Pod != e.namespace+"/"+big.name {
		e.Fatalf("no moves of %v in %s", deployments, r.out)
	}
}

// defragWithKills starts kerf defrag apply again and again, and kills it once it has said what it did. It returns how
// many commands were killed before nothing was left to do.
func (e *testCase) defragWithKills() (kills int) {
	e.Helper()
	eventually(e, "the end of the defragmentation", func() error {
		said, err := e.oneStep()
		if err != nil {
			return err
		}
		if strings.Contains(said, "no moves") {
			return nil
		}
		e.Logf("killed after: %s", said)
		kills++
		return errors.New(said)
	})
	return kills
}

// oneStep is the first line of a command that is killed after it.
func (e *testCase) oneStep() (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), commandTime)
	defer cancel()
	name, args := e.defragCommand("apply")
	cmd := exec.CommandContext(ctx, name, args...)
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return "", err
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	_ = cmd.Process.Kill()
	_ = cmd.Wait() // it was killed
	return strings.TrimSpace(line), err
}
