// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// readRules are the sharing rules of the agents, as they stand in their ConfigMap.
func (e *testCase) readRules() string {
	e.Helper()
	m, err := e.client.CoreV1().ConfigMaps(kerfNamespace).Get(background(), "kerf-config", metav1.GetOptions{})
	if err != nil {
		e.Fatal(err)
	}
	return m.Data["sharing.yaml"]
}

// changedRules are the agents' rules with one line in place of another, which must be there.
func (e *testCase) changedRules(line, by string) string {
	e.Helper()
	rules := e.readRules()
	if strings.Count(rules, line) != 1 {
		e.Fatalf("the rules have not one %q: %q", line, rules)
	}
	return strings.Replace(rules, line, by, 1)
}

// writeRules puts other rules into the ConfigMap. The watch of a running agent sees them at once; the scheduler reads
// them when kubelet has brought them to it.
func (e *testCase) writeRules(text string) {
	e.Helper()
	err := poll("other rules", func() error {
		maps := e.client.CoreV1().ConfigMaps(kerfNamespace)
		m, err := maps.Get(background(), "kerf-config", metav1.GetOptions{})
		if err != nil {
			return err
		}
		m.Data["sharing.yaml"] = text
		_, err = maps.Update(background(), m, metav1.UpdateOptions{})
		return err
	})
	if err != nil {
		e.Error(err)
	}
}
