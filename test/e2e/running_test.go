// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/remotecommand"
)

// pod is one that a test has created.
type pod struct {
	e               *testCase
	name, namespace string
	// seen are the ids of its containers that were seen.
	seen []string
}

func (p *pod) fetch() (*corev1.Pod, error) {
	o, err := p.e.client.CoreV1().Pods(p.namespace).Get(background(), p.name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	for _, s := range containerStatuses(o) {
		if id := containerID(s); id != "" && !slices.Contains(p.seen, id) {
			p.seen = append(p.seen, id)
		}
	}
	return o, nil
}

// get is the pod as it is now.
func (p *pod) get() *corev1.Pod {
	p.e.Helper()
	o, err := p.fetch()
	if err != nil {
		p.e.Fatal(err)
	}
	return o
}

// until waits until f is content with the pod, and returns the pod that it was content with.
func (p *pod) until(what string, f func(*corev1.Pod) error) *corev1.Pod {
	p.e.Helper()
	var last *corev1.Pod
	eventually(p.e, fmt.Sprintf("pod %s: %s", p.name, what), func() error {
		o, err := p.fetch()
		if err != nil {
			return err
		}
		last = o
		return f(o)
	})
	return last
}

// phase waits for it, and gives up where the pod has ended in another.
func (p *pod) phase(want corev1.PodPhase) *corev1.Pod {
	p.e.Helper()
	return p.until(string(want), func(o *corev1.Pod) error {
		switch o.Status.Phase {
		case want:
			return nil
		case corev1.PodSucceeded, corev1.PodFailed:
			return final("%s", describe(o))
		}
		return fmt.Errorf("%s", describe(o))
	})
}

// running waits until all its app containers run, and returns the pod.
func (p *pod) running() *corev1.Pod {
	p.e.Helper()
	return p.until("running", func(o *corev1.Pod) error {
		if o.Status.Phase == corev1.PodSucceeded || o.Status.Phase == corev1.PodFailed {
			return final("%s", describe(o))
		}
		if !runs(o) {
			return fmt.Errorf("%s", describe(o))
		}
		return nil
	})
}

// anotherInstance waits until the pod's only container runs as another one than before, by ID.
func (p *pod) anotherInstance(before string) *corev1.Pod {
	p.e.Helper()
	return p.until("another instance", func(o *corev1.Pod) error {
		if o.Status.Phase == corev1.PodFailed || o.Status.Phase == corev1.PodSucceeded {
			return final("%s", describe(o))
		}
		if !runs(o) || containerID(o.Status.ContainerStatuses[0]) == before {
			return fmt.Errorf("%s", describe(o))
		}
		return nil
	})
}

// runs tells whether all app containers of a pod run.
func runs(o *corev1.Pod) bool {
	n := 0
	for _, s := range o.Status.ContainerStatuses {
		if s.State.Running != nil {
			n++
		}
	}
	return n > 0 && n == len(o.Spec.Containers)
}

// status is that of one container.
func (p *pod) status(container string) corev1.ContainerStatus {
	p.e.Helper()
	for _, s := range containerStatuses(p.get()) {
		if s.Name == container {
			return s
		}
	}
	p.e.Fatalf("pod %s has no container %q yet", p.name, container)
	return corev1.ContainerStatus{}
}

// id is the id of a container that runs.
func (p *pod) id(container string) string { return containerID(p.status(container)) }

// caps are the hard limits that the driver holds for a container of the pod, by GPU.
func (p *pod) caps(container string) map[string]uint64 {
	p.e.Helper()
	return p.e.node.capsOf(p.e.T, p.id(container))
}

// logs is all that a container has written.
func (p *pod) logs(container string) string {
	p.e.Helper()
	text, err := p.log(container, false)
	if err != nil {
		p.e.Fatalf("log of %s/%s: %v", p.name, container, err)
	}
	return text
}

func (p *pod) log(container string, previous bool) (string, error) {
	o := &corev1.PodLogOptions{Container: container, Previous: previous}
	text, err := p.e.client.CoreV1().Pods(p.namespace).GetLogs(p.name, o).DoRaw(background())
	return string(text), err
}

// logged waits until a container has written the text.
func (p *pod) logged(container, text string) {
	p.e.Helper()
	eventually(p.e, fmt.Sprintf("%q in the log of %s/%s", text, p.name, container), func() error {
		log, err := p.log(container, false)
		if err == nil && !strings.Contains(log, text) {
			err = fmt.Errorf("it has %q", log)
		}
		return err
	})
}

// loaded is a line of gpuload --json.
type loaded struct {
	Allocated uint64  `json:"allocated_bytes"`
	Error     *string `json:"error"`
	Total     *uint64 `json:"total_bytes"`
	Free      *uint64 `json:"free_bytes"`
}

func (l loaded) String() string {
	text, total := "none", "unknown"
	if l.Error != nil {
		text = *l.Error
	}
	if l.Total != nil {
		total = fmt.Sprint(*l.Total)
	}
	return fmt.Sprintf("allocated %d of %s, error: %s", l.Allocated, total, text)
}

// loads waits for n lines of gpuload in a container's log.
func (p *pod) loads(container string, n int) []loaded {
	p.e.Helper()
	var all []loaded
	eventually(p.e, fmt.Sprintf("%d lines of gpuload in %s/%s", n, p.name, container), func() error {
		log, err := p.log(container, false)
		if err != nil {
			return err
		}
		all = nil
		for line := range strings.Lines(log) {
			if strings.HasPrefix(line, "{") {
				all = append(all, decode[loaded](p.e.T, line))
			}
		}
		if len(all) < n {
			return fmt.Errorf("there are %d; the log is %q", len(all), log)
		}
		return nil
	})
	return all
}

// exec runs a command in a container and returns its output.
func (p *pod) exec(container string, args ...string) (out, errOut string, err error) {
	request := p.e.client.CoreV1().RESTClient().Post().Resource("pods").Namespace(p.namespace).Name(p.name).SubResource(
		"exec").
		VersionedParams(&corev1.PodExecOptions{Container: container, Command: args, Stdout: true, Stderr: true},
			scheme.ParameterCodec)
	executor, err := remotecommand.NewWebSocketExecutor(p.e.config, "GET", request.URL().String())
	if err != nil {
		return "", "", err
	}
	ctx, cancel := context.WithTimeout(background(), commandTime)
	defer cancel()
	var stdout, stderr bytes.Buffer
	err = executor.StreamWithContext(ctx, remotecommand.StreamOptions{Stdout: io.Writer(&stdout),
		Stderr: io.Writer(&stderr)})
	return stdout.String(), stderr.String(), err
}

// events are what was said of the pod, oldest first: "Reason: message".
func (p *pod) events() ([]string, error) {
	list, err := p.e.client.CoreV1().Events(p.namespace).List(background(), metav1.ListOptions{
		FieldSelector: "involvedObject.kind=Pod,involvedObject.name=" + p.name,
	})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(list.Items, func(a, b corev1.Event) int { return a.LastTimestamp.Compare(b.LastTimestamp.Time) })
	var texts []string
	for _, ev := range list.Items {
		texts = append(texts, ev.Reason+": "+ev.Message)
	}
	return texts, nil
}

// event waits until one of the pod's events has all the words, and returns it.
func (p *pod) event(words ...string) string {
	p.e.Helper()
	var found string
	eventually(p.e, fmt.Sprintf("event of pod %s with %q", p.name, words), func() error {
		texts, err := p.events()
		if err != nil {
			return err
		}
		for _, text := range texts {
			if !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(text, w) }) {
				found = text
				return nil
			}
		}
		return fmt.Errorf("there are %q", texts)
	})
	return found
}

// startDeletion does not wait.
func (p *pod) startDeletion() {
	p.e.Helper()
	_, _ = p.fetch() // to have seen its containers; it may be gone
	err := p.e.client.CoreV1().Pods(p.namespace).Delete(background(), p.name, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		p.e.Errorf("delete pod %s: %v", p.name, err)
	}
}

// delete removes the pod and waits until it is gone.
func (p *pod) delete() {
	p.e.Helper()
	p.startDeletion()
	eventually(p.e, "end of "+p.name, p.goneError)
}

func (p *pod) goneError() error {
	o, err := p.fetch()
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return err
	}
	return fmt.Errorf("it is still there: %s", describe(o))
}

func containerStatuses(o *corev1.Pod) []corev1.ContainerStatus {
	return slices.Concat(o.Status.InitContainerStatuses, o.Status.ContainerStatuses)
}

// containerID is a container's id as the runtime has it.
func containerID(s corev1.ContainerStatus) string {
	_, id, _ := strings.Cut(s.ContainerID, "://") // after the runtime's name
	return id
}

// describe is a pod's state in one line.
func describe(o *corev1.Pod) string {
	var b strings.Builder
	fmt.Fprintf(&b, "phase %s", o.Status.Phase)
	if o.Status.Reason != "" || o.Status.Message != "" {
		fmt.Fprintf(&b, " (%s: %s)", o.Status.Reason, o.Status.Message)
	}
	for _, s := range containerStatuses(o) {
		fmt.Fprintf(&b, "; %s restarted %d times, ", s.Name, s.RestartCount)
		switch {
		case s.State.Running != nil:
			b.WriteString("runs")
		case s.State.Terminated != nil:
			fmt.Fprintf(&b, "ended with %d (%s: %s)", s.State.Terminated.ExitCode, s.State.Terminated.Reason,
				s.State.Terminated.Message)
		case s.State.Waiting != nil:
			fmt.Fprintf(&b, "waits (%s: %s)", s.State.Waiting.Reason, s.State.Waiting.Message)
		}
	}
	for _, c := range o.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status != corev1.ConditionTrue {
			fmt.Fprintf(&b, "; not scheduled: %s", c.Message)
		}
	}
	return b.String()
}
