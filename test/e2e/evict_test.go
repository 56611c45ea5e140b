// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// Where nothing but watching holds a share, and the pool says so, the pod that is over its cap is evicted; or its
// process is killed, whosever it is.
func TestEvict(t *testing.T) {
	e := beginWithAgent(t)
	rules := e.readRules()
	e.writeRules(strings.NewReplacer("libkerf, ", "", "onOverCap: kill", "onOverCap: evict",
		"minEnforcement: userspace",
		"minEnforcement: reactive",
		"- {name: e2e-small,", "- {name: e2e-kill, memory: 4GiB, onOverCap: kill}\n  - {name: "+
			"e2e-small,").Replace(rules))
	t.Cleanup(func() {
		e.writeRules(rules)
		e.useDriver("r615")
	})
	e.useDriver("r580")
	e.evict()
	e.killOfAnotherUser()
}

// agentMay gives the agent these capabilities, and waits for the one that has them.
func (e *testCase) agentMay(capabilities string) {
	e.Helper()
	e.patchAgent(
		`{"spec":{"template":{"spec":{"containers":[{"name":"agent","securityContext":{"capabilities":{"add":[` +
			capabilities + `]}}}]}}}}`)
	e.waitForAgent()
}

// killOfAnotherUser lets the watch find a process over its cap that is not root's. An agent without the capability
// DAC_READ_SEARCH does not know the level, and one without KILL says what it lacks, and the process goes on; the agent
// as it is shipped ends it.
func (e *testCase) killOfAnotherUser() {
	e.Helper()
	const blind = `"SYS_ADMIN","SYS_CHROOT","SYS_PTRACE"`
	const plain, shipped = blind + `,"DAC_READ_SEARCH"`, blind + `,"DAC_READ_SEARCH","KILL"`
	e.Cleanup(func() { e.agentMay(shipped) })
	e.agentMay(blind)
	spec := one("no-one", gibs(4), "id -u; exec gpuload --json --alloc 6GiB --hold 1h")
	spec.annotations = map[string]string{"kerf.dev/profile": "e2e-kill"}
	spec.edit = func(o *corev1.Pod) {
		user, not := int64(1000), true
		o.Spec.SecurityContext = &corev1.PodSecurityContext{RunAsUser: &user, RunAsGroup: &user, RunAsNonRoot: &not}
	}
	p := e.create(spec)
	p.running()
	if l := p.loads("main", 1)[0]; l.Error != nil || l.Allocated != 6*gib {
		e.Fatalf("6 GiB at level reactive: %v", l)
	}
	p.logged("main", "1000")
	eventually(e, "level unknown by an agent that may not read the process's files", func() error {
		if g := e.grantUsed(p, "main"); g.Level != "unknown" || !strings.Contains(g.LevelReason, "DAC_READ_SEARCH") {
			return fmt.Errorf("level %s, %s", g.Level, g.LevelReason)
		}
		return nil
	})
	e.agentMay(plain)
	refusals := func() (found []string, err error) {
		s, err := e.status()
		for _, w := range s.Warnings {
			if strings.Contains(w, "is to be killed (over_cap) and goes on") &&
				strings.Contains(w, "give its container the capability KILL") {
				found = append(found, w)
			}
		}
		return found, err
	}
	eventually(e, "an agent that may not kill says what it lacks", func() error {
		found, err := refusals()
		if err == nil && len(found) == 0 {
			err = fmt.Errorf("warnings %q", e.picture().Warnings)
		}
		return err
	})
	if s := p.status("main"); s.State.Running == nil {
		e.Errorf("ended by an agent that may not: %+v", s)
	}

	e.agentMay(shipped)
	p.phase(corev1.PodFailed)
	if s := p.status("main"); s.State.Terminated == nil || s.State.Terminated.ExitCode != 137 {
		e.Errorf("it ended with %+v, want 137 of SIGKILL", s.State)
	}
	p.event("GPUMemoryOverCap", "Kerf killed process")
	eventually(e, "an end of the warning", func() error {
		found, err := refusals()
		if err == nil && len(found) > 0 {
			err = fmt.Errorf("warnings %q", found)
		}
		return err
	})
}

// asAgent is an agent's connection whose token names these nodes.
func (e *testCase) asAgent(nodes ...string) *kubernetes.Clientset {
	e.Helper()
	config := rest.CopyConfig(e.config)
	config.Impersonate = rest.ImpersonationConfig{
		UserName: "system:serviceaccount:kerf-system:kerf-agent", Groups: []string{"system:serviceaccounts",
			"system:authenticated"},
		Extra: map[string][]string{"authentication.kubernetes.io/node-name": nodes},
	}
	as, err := kubernetes.NewForConfig(config)
	if err != nil {
		e.Fatal(err)
	}
	return as
}

// evict lets the watch find a pod over its cap: without the right to evict it the agent says so, with it the pod goes,
// and no agent's token reaches a pod of another node.
func (e *testCase) evict() {
	e.Helper()
	text, err := os.ReadFile(filepath.Join(e.node.env["REPO"], "deploy/variants/evict-over-cap.yaml"))
	if err != nil {
		e.Fatal(err)
	}
	e.Cleanup(func() { e.kubectl(string(text), "delete", "--ignore-not-found", "-f", "-") })
	sound := e.create(one("sound", gibs(4), "exec gpuload --json --alloc 2GiB --hold 1h"))
	sound.running()
	greedy := e.create(one("greedy", gibs(4), "exec gpuload --json --alloc 6GiB --hold 1h"))
	eventually(e, "the agent says what is in the way", func() error {
		s, err := e.status()
		if err == nil && !slices.ContainsFunc(s.Warnings, func(w string) bool {
			return strings.Contains(w, "/greedy is over its cap and cannot be evicted") &&
				strings.Contains(w, "evict-over-cap.yaml")
		}) {
			err = fmt.Errorf("warnings %q", s.Warnings)
		}
		return err
	})
	if err := e.apply(string(text)); err != nil {
		e.Fatal(err)
	}
	eventually(e, "its end", greedy.goneError)
	sound.running()

	plain := e.create(podSpec{name: "plain", containers: []container{{name: "main", run: hold}}})
	plain.running()
	name := e.node.env["NODE_NAME"]
	for who, tc := range map[string]struct {
		nodes []string
		pod   *pod
		want  string
	}{
		"another node's agent":      {[]string{"node-2"}, sound, "of its own node alone"},
		"a token of no node":        {nil, sound, "of its own node alone"},
		"a pod that is none of its": {[]string{name}, plain, "kerf.dev resource alone"},
		"its own":                   {[]string{name}, sound, ""},
	} {
		err := e.asAgent(tc.nodes...).CoreV1().Pods(tc.pod.namespace).Delete(background(), tc.pod.name,
			metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}})
		if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
			e.Errorf("%s: %v, want %q", who, err, tc.want)
		}
	}
}
