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

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// Where nothing but watching holds a share, and the pool says so, the pod that is over its cap is evicted.
func TestEvict(t *testing.T) {
	e := beginWithAgent(t)
	rules := e.readRules()
	e.writeRules(strings.NewReplacer("libkerf, ", "", "overCap: warn", "overCap: evict", "minEnforcement: client", "minEnforcement: reactive").Replace(rules))
	t.Cleanup(func() {
		e.writeRules(rules)
		e.useDriver("r615")
	})
	e.useDriver("r580")
	e.evict()
}

// asAgent is an agent's connection whose token names these nodes.
func (e *testCase) asAgent(nodes ...string) *kubernetes.Clientset {
	e.Helper()
	config := rest.CopyConfig(e.config)
	config.Impersonate = rest.ImpersonationConfig{
		UserName: "system:serviceaccount:kerf-system:kerf-agent", Groups: []string{"system:serviceaccounts", "system:authenticated"},
		Extra: map[string][]string{"authentication.kubernetes.io/node-name": nodes},
	}
	as, err := kubernetes.NewForConfig(config)
	if err != nil {
		e.Fatal(err)
	}
	return as
}

// evict lets the watch find a pod over its cap: without the right to evict it the agent says so, with it the pod goes, and
// no agent's token reaches a pod of another node.
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
			return strings.Contains(w, "/greedy is over its cap and cannot be evicted") && strings.Contains(w, "evict-over-cap.yaml")
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
		err := e.asAgent(tc.nodes...).CoreV1().Pods(tc.pod.namespace).Delete(background(), tc.pod.name, metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}})
		if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
			e.Errorf("%s: %v, want %q", who, err, tc.want)
		}
	}
}
