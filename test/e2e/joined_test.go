// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// joinTime bounds the start of one more node.
const joinTime = 10 * time.Minute

// join brings more nodes with eight GPUs up in this cluster, installs the agent on them, and returns the names of all
// nodes. They leave the cluster when the test ends.
func (e *testCase) join(numbers ...int) []string {
	e.Helper()
	names := []string{e.node.env["NODE_NAME"]}
	for _, n := range numbers {
		name := fmt.Sprint("node-", n)
		names = append(names, name)
		e.Cleanup(func() { e.leave(n, name) })
		if err := e.nodeScript(n, "up"); err != nil {
			e.Fatal(err)
		}
		if _, err := e.client.CoreV1().Nodes().Patch(background(), name, types.StrategicMergePatchType,
			[]byte(nodeLabel), metav1.PatchOptions{}); err != nil {
			e.Fatal(err)
		}
	}
	e.agentsOn(len(names))
	return names
}

// leave ends a node that has joined.
func (e *testCase) leave(n int, name string) {
	if err := e.client.CoreV1().Nodes().Delete(background(), name, metav1.DeleteOptions{}); err != nil {
		e.Errorf("delete node %s: %v", name, err)
	}
	_ = e.client.CoreV1().RESTClient().Delete().AbsPath("/apis/kerf.dev/v1alpha1/gpunodes/" + name).
		Do(background()).Error() // It may be gone.
	if err := e.nodeScript(n, "down"); err != nil {
		e.Error(err)
	}
	e.agentsOn(n - 1) // the last one that joined leaves first
}

// agentsOn waits until the agents of so many nodes are ready, and no others are left.
func (e *testCase) agentsOn(nodes int) {
	e.Helper()
	eventually(e, fmt.Sprintf("agents on %d nodes", nodes), func() error {
		d, err := e.client.AppsV1().DaemonSets(kerfNamespace).Get(background(), agentName, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if s := d.Status; int(s.DesiredNumberScheduled) != nodes || int(s.NumberReady) != nodes {
			return fmt.Errorf("%d of %d agents are ready", s.NumberReady, s.DesiredNumberScheduled)
		}
		return nil
	})
}

// nodeScript runs node.sh for a node that joins the cluster.
func (e *testCase) nodeScript(n int, args ...string) error {
	_, err := e.systemScript(n, "", args...)
	return err
}

// systemScript runs node.sh for a node with a node system that joins the cluster, and returns what it prints.
func (e *testCase) systemScript(n int, system string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), joinTime)
	defer cancel()
	first := e.node.env["E2E_DIR"]
	tools := os.Getenv("KERF_E2E_TOOLS")
	if tools == "" {
		tools = first
	}
	cmd := exec.CommandContext(ctx, e.node.script, args...)
	cmd.Env = append(slices.Clone(os.Environ()), "KERF_E2E_JOIN="+first, fmt.Sprint("KERF_E2E_NUMBER=", n),
		fmt.Sprintf("KERF_E2E_DIR=%s-join-%d", first, n), "KERF_E2E_TOOLS="+tools, "KERF_E2E_SYSTEM="+system)
	var out, errOut strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &errOut
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("node.sh %v for node-%d: %w: %s%s", args, n, err, errOut.String(), out.String())
	}
	return out.String(), nil
}
