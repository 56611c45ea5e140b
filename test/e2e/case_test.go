// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// testCase is one test on the node: it has its own namespace, and leaves nothing.
type testCase struct {
	*testing.T
	*cluster
	namespace string
	// pods are all that were created.
	pods []*pod
	// dra says that the node offers its GPUs by DRA.
	dra bool
	// logs says how long each daemon's log was at the beginning.
	logs map[string]int64
	// why is what the test failed with: it is said again after all else that is known, because what reads a long
	// log often shows its end alone.
	why []string
}

// Fatal, Fatalf, Error and Errorf call the test's methods, and keep the message.
func (e *testCase) Fatal(args ...any) {
	e.Helper()
	e.why = append(e.why, fmt.Sprint(args...))
	e.T.Fatal(args...)
}

// Fatalf is Fatal with a format.
func (e *testCase) Fatalf(format string, args ...any) {
	e.Helper()
	e.why = append(e.why, fmt.Sprintf(format, args...))
	e.T.Fatalf(format, args...)
}

// Error lets the test go on.
func (e *testCase) Error(args ...any) {
	e.Helper()
	e.why = append(e.why, fmt.Sprint(args...))
	e.T.Error(args...)
}

// Errorf is Error with a format.
func (e *testCase) Errorf(format string, args ...any) {
	e.Helper()
	e.why = append(e.why, fmt.Sprintf(format, args...))
	e.T.Errorf(format, args...)
}

// begin makes a namespace and registers the cleanup. Tests of the shared kind run in parallel: they restart nothing,
// break nothing, and ask for so little that all of them fit on the node together.
func begin(t *testing.T) *testCase {
	t.Helper()
	return beginOn(t, theCluster)
}

// beginOn is begin on a cluster with another node.
func beginOn(t *testing.T, c *cluster) *testCase {
	t.Helper()
	e := &testCase{T: t, cluster: c, logs: c.node.logSizes()}
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: dnsName(t.Name()) + "-"}}
	made, err := e.client.CoreV1().Namespaces().Create(background(), ns, metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("make a namespace: %v", err)
	}
	e.namespace = made.Name
	t.Cleanup(e.end)
	return e
}

// beginWithAgent waits for the agent, too, and until no GPU is as a test before has left it: while one is lost or
// unhealthy there is less room, and each pod that comes has kubelet asked who holds what.
func beginWithAgent(t *testing.T) *testCase {
	t.Helper()
	e := begin(t)
	e.waitForAgent()
	eventually(e, "whole GPUs that are well", func() error {
		s, err := e.status()
		if err != nil {
			return err
		}
		for _, g := range s.GPUs {
			// a MIG instance of an earlier test, which is being destroyed
			if g.Health != "healthy" || strings.Contains(g.UUID, "/") {
				return fmt.Errorf("%+v", g)
			}
		}
		return nil
	})
	return e
}

// freshParams restarts the API server when the test has ended. After the last policy that reads a ConfigMap is removed,
// an API server sees no change of ConfigMaps: https://github.com/kubernetes/kubernetes/issues/130887
func (e *testCase) freshParams() {
	e.Cleanup(func() {
		e.node.do(e.T, "restart", "kube-apiserver")
		eventually(e, "kube-apiserver", func() error {
			return e.client.Discovery().RESTClient().Get().AbsPath("/readyz").Do(background()).Error()
		})
	})
}

// end looks at a failed test, then removes what it made and waits until it is gone.
func (e *testCase) end() {
	if e.Failed() {
		e.dump()
		for _, text := range e.why {
			e.Logf("failed: %.600s", text)
		}
	}
	// Controllers' pods too; what the pods held is looked for below, so each must have been seen.
	if list, err := e.client.CoreV1().Pods(e.namespace).List(background(), metav1.ListOptions{}); err == nil {
		for _, o := range list.Items {
			e.known(&o)
		}
	}
	for _, p := range e.pods {
		p.startDeletion()
	}
	for _, p := range e.pods {
		if err := poll("end of "+p.name, p.goneError); err != nil {
			e.Error(err)
		}
	}
	// Its controller takes some seconds to delete the content; the test does not wait for that.
	if err := e.client.CoreV1().Namespaces().Delete(background(), e.namespace, metav1.DeleteOptions{}); err != nil {
		e.Errorf("delete the namespace: %v", err)
	}
	if err := poll("release of all that the test held", e.releasedError); err != nil {
		e.Error(err)
	}
}

// releasedError tells of limits and grants that belong to this test's pods.
func (e *testCase) releasedError() error {
	for _, l := range e.node.limits(e.T) {
		for _, p := range e.pods {
			for _, id := range p.seen {
				if strings.Contains(l.Cgroup, id) {
					return fmt.Errorf("the driver holds a limit for %s", l.Cgroup)
				}
			}
		}
	}
	s, err := e.status()
	if err != nil {
		return nil //nolint:nilerr // where no agent answers there is none to have forgotten something
	}
	for _, g := range s.Grants {
		if g.Namespace == e.namespace {
			return fmt.Errorf("the agent holds grant %s for %s/%s/%s, state %s", g.ID, g.Namespace, g.Pod, g.Container,
				g.State)
		}
	}
	return nil
}

// create makes a pod. It does not wait.
func (e *testCase) create(s podSpec) *pod {
	e.Helper()
	object := s.object(e.namespace)
	p := &pod{e: e, name: object.Name, namespace: object.Namespace}
	e.pods = append(e.pods, p)
	err := poll("creation of pod "+object.Name, func() error {
		_, err := e.client.CoreV1().Pods(object.Namespace).Create(background(), object, metav1.CreateOptions{})
		if err != nil && !strings.Contains(err.Error(), "serviceaccount") { // a new namespace gets one soon
			return final("%w", err)
		}
		return err
	})
	if err != nil {
		e.Fatal(err)
	}
	return p
}

// refused is what the API server answers to a pod that it does not take.
func (e *testCase) refused(s podSpec) string {
	e.Helper()
	object := s.object(e.namespace)
	var said string
	eventually(e, "refusal of pod "+object.Name, func() error {
		made, err := e.client.CoreV1().Pods(object.Namespace).Create(background(), object, metav1.CreateOptions{})
		switch {
		case err == nil:
			e.pods = append(e.pods, &pod{e: e, name: made.Name, namespace: made.Namespace})
			return final("it was taken")
		case apierrors.IsForbidden(err) && strings.Contains(err.Error(), "serviceaccount"):
			return err
		}
		said = err.Error()
		return nil
	})
	return said
}
