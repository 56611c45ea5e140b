// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// status is what kerf status -o json prints, as far as the tests look at it.
type status struct {
	Ready    bool     `json:"ready"`
	NotReady []string `json:"notReady"`
	Version  string   `json:"agentVersion"`
	Warnings []string `json:"warnings"`
	GPUs     []gpu    `json:"gpus"`
	Grants   []grant  `json:"grants"`
}

type gpu struct {
	UUID     string `json:"uuid"`
	Index    int    `json:"index"`
	NUMA     int    `json:"numa"`
	Memory   uint64 `json:"capacityBytes"`
	Reserved uint64 `json:"reservedBytes"`
	Used     uint64 `json:"usedBytes"`
	Granted  uint64 `json:"grantedBytes"`
	Percent  uint32 `json:"grantedPercent"`
	Health   string `json:"health"`
	Reason   string `json:"healthReason"`
	// Levels are those that a claim can have there, strongest first.
	Levels []string `json:"levels"`
}

type grant struct {
	ID          string     `json:"id"`
	Name        string     `json:"name"`
	State       string     `json:"state"`
	Shares      []fragment `json:"shares"`
	Memory      uint64     `json:"memoryBytes"`
	Percent     uint32     `json:"percent"`
	Level       string     `json:"level"`
	Backend     string     `json:"backend"`
	LevelReason string     `json:"levelReason"`
	Cgroup      string     `json:"cgroup"`
	PIDs        []int      `json:"pids"`
	PodUID      string     `json:"podUID"`
	Namespace   string     `json:"podNamespace"`
	Pod         string     `json:"podName"`
	Container   string     `json:"container"`
	ContainerID string     `json:"containerID"`
	UsedBy      string     `json:"usedBy"`
	Whole       bool       `json:"whole"`
	// InForce is what its user has of it where that is less: an init container that uses another's claim.
	InForce []fragment `json:"enforcedShares"`
	// Claims are CLAIM/REQUEST of a grant by ResourceClaims.
	Claims []string `json:"claims"`
}

type fragment struct {
	GPU     string `json:"gpu"`
	Memory  uint64 `json:"memoryBytes"`
	Percent uint32 `json:"percent"`
	Profile string `json:"migProfile"`
	Start   int    `json:"migStart"`
}

// status asks the agent through its socket on the node.
func (c *cluster) status() (status, error) {
	var s status
	r := c.node.in(c.node.kerf(), "status", "-o", "json")
	if r.err != nil {
		return s, fmt.Errorf("kerf status: %v", r)
	}
	if err := json.Unmarshal([]byte(presentKeys(r.out)), &s); err != nil {
		return s, fmt.Errorf("kerf status: %w in %q", err, r.out)
	}
	return s, nil
}

// earlierKey is a key in the status of a kerf that wrote snake case.
var earlierKey = regexp.MustCompile(`"[a-z]+(_[a-z]+)+":`)

// presentKeys is a status with the present keys. The decoder ignores their case.
func presentKeys(text string) string {
	if !strings.Contains(text, `"not_ready":`) {
		return text
	}
	text = strings.NewReplacer(`"fragments":`, `"shares":`, `"in_force":`, `"enforcedShares":`).Replace(text)
	return earlierKey.ReplaceAllStringFunc(text, func(key string) string { return strings.ReplaceAll(key, "_", "") })
}

// picture is the agent's, which must answer.
func (e *testCase) picture() status {
	e.Helper()
	s, err := e.status()
	if err != nil {
		e.Fatal(err)
	}
	return s
}

// waitForAgent until its pod is ready, it takes claims, and kubelet has its resources or the API server its devices.
func (e *testCase) waitForAgent() {
	e.Helper()
	eventually(e, "the agent", func() error {
		if err := e.agentReady(); err != nil {
			return err
		}
		s, err := e.status()
		if err != nil {
			return err
		}
		if !s.Ready {
			return fmt.Errorf("the agent is not ready: %s", strings.Join(s.NotReady, "; "))
		}
		if e.dra {
			_, err := e.devicesOfNode()
			return err
		}
		if _, usable, err := e.capacity("kerf.dev/gpu-memory-gib"); err != nil || usable == 0 {
			return errors.Join(errors.New("kubelet offers no kerf.dev/gpu-memory-gib"), err)
		}
		return nil
	})
}

// grantOf is the grant that the agent shows for a pod's container; there must be exactly one.
func (e *testCase) grantOf(p *pod, container string) grant {
	e.Helper()
	var found []grant
	for _, g := range e.picture().Grants {
		if g.Namespace == p.namespace && g.Pod == p.name && g.Container == container {
			found = append(found, g)
		}
	}
	if len(found) != 1 {
		e.Fatalf("%d grants for %s/%s: %+v", len(found), p.name, container, found)
	}
	return found[0]
}

// replaceAgent deletes the agent's pod, as an upgrade does, and waits for the next.
func (e *testCase) replaceAgent() {
	e.Helper()
	e.deleteAgent()
	e.waitForAgent()
}

// deleteAgent deletes the agent's pods. One that the DaemonSet's controller replaces may already be gone.
func (e *testCase) deleteAgent() {
	e.Helper()
	pods, err := e.agentPods()
	if err != nil {
		e.Fatal(err)
	}
	for _, p := range pods {
		if err := e.client.CoreV1().Pods(kerfNamespace).Delete(background(), p.Name,
			metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			e.Fatalf("delete %s: %v", p.Name, err)
		}
	}
}

// killAgent ends the agent's process without warning and returns when kubelet has started the next. In between kubelet
// refuses pods that request Kerf's resources, because no agent answers.
func (e *testCase) killAgent() {
	e.Helper()
	before := e.agentInstances()
	e.signalAgent("KILL")
	eventually(e, "the agent's next start", func() error {
		if now := e.agentInstances(); now == before {
			return fmt.Errorf("it is still %s", now)
		}
		return nil
	})
	e.waitForAgent()
}

// agentInstances are the containers of the agent's pods, as text.
func (e *testCase) agentInstances() string {
	e.Helper()
	pods, err := e.agentPods()
	if err != nil {
		e.Fatal(err)
	}
	var ids []string
	for _, p := range pods {
		for _, s := range p.Status.ContainerStatuses {
			ids = append(ids, s.ContainerID)
		}
	}
	return strings.Join(ids, " ")
}

// signalAgent sends a signal to every agent process of the node, which sees no others.
func (e *testCase) signalAgent(signal string) {
	e.Helper()
	busybox := e.node.busybox()
	pids := strings.Fields(e.node.in(busybox, "pidof", agentName).out)
	if len(pids) == 0 {
		e.Fatalf("no %s runs", agentName)
	}
	if r := e.node.in(append([]string{"kill", "-" + signal}, pids...)...); r.err != nil {
		e.Fatalf("signal the agent: %v", r)
	}
}

// agentProbe asks the agent's HTTP port, through the API server, as a probe of kubelet's does.
func (e *testCase) agentProbe(path string) (code int, body string) {
	e.Helper()
	pods, err := e.agentPods()
	if err != nil || len(pods) != 1 {
		e.Fatalf("%d pods of the agent: %v", len(pods), err)
	}
	raw, err := e.client.CoreV1().RESTClient().Get().Namespace(kerfNamespace).Resource("pods").
		Name(pods[0].Name + ":9445").SubResource("proxy").Suffix(path).DoRaw(background())
	status, refused := errors.AsType[*apierrors.StatusError](err)
	switch {
	case err == nil:
		return http.StatusOK, string(raw)
	case !refused || status.Status().Details == nil:
		e.Fatalf("ask the agent for /%s: %v", path, err)
	}
	for _, c := range status.Status().Details.Causes { // what the agent said is among them
		body += c.Message
	}
	return int(status.Status().Code), body
}
