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
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A cluster of three nodes is fragmented: two nodes have one free GPU each, and small pods are on the third. A pod with
// eight GPUs waits. The plan moves the small pods, and its steps are carried out by commands that are killed one after
// the other. Then the pod runs, each small pod was replaced once, no other pod is touched, and no GPU is cordoned.
func TestDefragOnThreeNodes(t *testing.T) {
	e := withScheduler(t)
	nodes := e.join(2, 3)
	var fixed []*pod
	t.Cleanup(func() { // before the nodes leave: a pod ends only while its kubelet runs
		for _, p := range e.pods {
			p.delete()
		}
	})
	for i, node := range nodes[:2] {
		s := one(fmt.Sprint("fixed-", i), wholeGPUs(7), hold)
		s.edit = func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{corev1.LabelHostname: node} }
		fixed = append(fixed, e.create(byKerf(s)))
	}
	for _, p := range fixed {
		p.running()
	}
	e.mustKubectl("label", "namespace", e.namespace, "kerf.dev/defrag=true")
	e.mustKubectl("cordon", nodes[0], nodes[1])
	t.Cleanup(func() { e.kubectl("", "uncordon", nodes[0], nodes[1]) })
	for _, name := range []string{"small-a", "small-b"} {
		e.deployment(byKerf(one(name, gibs(20), hold)))
		e.onNodes(name, nodes[2:])
	}
	e.mustKubectl("uncordon", nodes[0], nodes[1])
	big := e.create(byKerf(one("big", wholeGPUs(8), hold)))
	big.event("FailedScheduling", "GPU")
	before := e.everyPod()

	e.wantMoves(nodes[2], "small-a", "small-b")
	kills := e.defragWithKills()
	big.running()
	if node := big.get().Spec.NodeName; node != nodes[2] {
		t.Errorf("the pod runs on %s, want %s", node, nodes[2])
	}
	if kills < 4 { // begin, cordon, two evictions
		t.Errorf("only %d commands were killed", kills)
	}
	for _, name := range []string{"small-a", "small-b"} {
		e.onNodes(name, nodes[:2])
	}
	after := e.everyPod()
	for uid, was := range before {
		now, there := after[uid]
		switch moves := strings.Contains(was, "/small-"); {
		case moves == there, there && now != was && !strings.Contains(was, "/big "):
			t.Errorf("pod %s is now %q", was, now)
		}
	}
	if created := e.replicasCreated(); created != 4 {
		t.Errorf("the controllers created %d pods, want 2 and a replacement of each", created)
	}
	cordons := e.mustKubectl("get", "gpunode", nodes[2], "-o", "jsonpath={.spec.cordonedGPUs}")
	if strings.Contains(cordons, "uuid") {
		t.Errorf("GPUs stay cordoned: %s", cordons)
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

// deployment has one replica of a pod.
func (e *testCase) deployment(s podSpec) {
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
	e.Cleanup(func() {
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

// replicasCreated is how often a ReplicaSet of the namespace has created a pod.
func (e *testCase) replicasCreated() int {
	e.Helper()
	list, err := e.client.CoreV1().Events(e.namespace).List(background(), metav1.ListOptions{
		FieldSelector: "reason=SuccessfulCreate,involvedObject.kind=ReplicaSet"})
	if err != nil {
		e.Fatal(err)
	}
	n := 0
	for _, event := range list.Items {
		n += max(1, int(event.Count))
	}
	return n
}

// defragCommand is kubectl kerf defrag, as the administrator starts it.
func (e *testCase) defragCommand(args ...string) (string, []string) {
	return e.node.kerf(), append([]string{"--kubeconfig", e.node.env["KUBECONFIG"], "defrag"}, args...)
}

// wantMoves checks that the plan moves the pods of these deployments from one node, and nothing else.
func (e *testCase) wantMoves(from string, deployments ...string) {
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
		deployments = slices.DeleteFunc(deployments, func(d string) bool {
			return strings.HasPrefix(m.Pod, e.namespace+"/"+d+"-")
		})
	}
	if len(deployments) > 0 || len(plan.Moves) != 2 || len(plan.Fits) != 1 || plan.Fits[0].Pod != e.namespace+"/big" {
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
