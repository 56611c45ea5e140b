// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package scheduler_test

import (
	"testing"
)

// Pods are of one class whatever they are called, and of another one where a node could answer them otherwise.
func TestClass(t *testing.T) {
	class := func(change func(limits map[string]string) (uid, namespace string)) string {
		limits := memory(10)
		uid, namespace := change(limits)
		p := podOf(uid, limits)
		p.Namespace = namespace
		return want(t, p).Class()
	}
	first := class(func(map[string]string) (string, string) { return "a", "ns" })
	if other := class(func(map[string]string) (string, string) { return "b", "ns" }); other != first {
		t.Errorf("a pod of another name is of class %q, not %q", other, first)
	}
	for name, change := range map[string]func(map[string]string) (string, string){
		"another namespace": func(map[string]string) (string, string) { return "a", "other" },
		"more memory": func(l map[string]string) (string,
			string) {
			l["kerf.dev/gpu-memory-gib"] = "11"
			return "a", "ns"
		},
		"compute too": func(l map[string]string) (string, string) {
			l["kerf.dev/gpu-percent"] = "20"
			return "a",
				"ns"
		},
	} {
		if class(change) == first {
			t.Errorf("%s: it is of the same class", name)
		}
	}
}
