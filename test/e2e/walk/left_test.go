// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package walk

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// fakeNode answers as nodes do on which nothing is left, but for the one check that the test is about: a part of its
// command line, a status, and what is said.
const fakeNode = `#!/usr/bin/env bash
if [ -n "$LOOK" ] && [[ "$KERF_E2E_NUMBER $*" == *"$LOOK"* ]]; then
	[ -z "$SAY" ] || echo "$SAY"
	[ -z "$COMPLAIN" ] || echo "$COMPLAIN" >&2
	exit "$STATUS"
fi
case $* in
*gpusim*) echo '[]' ;;
*"get nodes"*) printf 'items:\n- metadata:\n    labels:\n      kubernetes.io/os: linux\n' ;;
esac
`

// A failed check is neither "nothing" nor silent.
func TestLeft(t *testing.T) {
	t.Parallel()
	script, err := os.ReadFile("../../../hack/cluster.sh")
	if err != nil {
		t.Fatal(err)
	}
	root := t.TempDir()
	for name, text := range map[string]string{"hack/cluster.sh": string(script), "test/e2e/node/node.sh": fakeNode} {
		path := filepath.Join(root, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755),
			os.WriteFile(path, []byte(text), 0o755)); err != nil {
			t.Fatal(err)
		}
	}
	for name, tt := range map[string]struct {
		look, say, complain, status string
		fails                       bool
		want                        string
	}{
		"nothing": {"", "", "", "0", false, ""},
		"a file":  {"2 node bash", "/opt/kerf/x", "", "0", false, "on node-2: /opt/kerf/x\n"},
		"limits": {"3 node", `[{"cgroup": "x"}]`, "", "0", false,
			"on node-3: [{\"cgroup\": \"x\"}]\nin the driver of node-3: [{\"cgroup\": \"x\"}]\n"},
		"a label": {"get nodes", "      kerf.dev/gpu-model: H100", "", "0", false,
			"on the nodes' objects:       kerf.dev/gpu-model: H100\n"},
		"an object": {"-o name", "daemonset.apps/kerf-agent", "", "0", false,
			"in the cluster: daemonset.apps/kerf-agent\n"},
		"a node that is down": {"1 node bash", "", "the node is down", "1", true,
			"hack/cluster.sh: failed to list what is left on node-1: on_node 1: the node is down\n"},
		"a driver that does not answer": {"gpusim limits", "", "no gpusim", "1", true,
			"left in the driver of node-2: in_driver 2: no gpusim\n"},
		"labels not to be had": {"get nodes", "", "connection refused", "1", true,
			"left on the nodes' objects: labels: connection refused\n"},
		"objects not to be had": {"-o name", "crd/half", "connection refused", "1", true,
			"left in the cluster: objects: crd/half\nconnection refused\n"},
		"one that says nothing": {"-o name", "", "", "7", true,
			"left in the cluster: objects: it failed and said nothing\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cmd := exec.CommandContext(t.Context(), filepath.Join(root, "hack/cluster.sh"), "left")
			cmd.Env = append(os.Environ(), "KERF_WALK_DIR="+root, "LOOK="+tt.look, "SAY="+tt.say,
				"COMPLAIN="+tt.complain, "STATUS="+tt.status)
			out, err := cmd.CombinedOutput()
			if (err != nil) != tt.fails {
				t.Errorf("it ends with %v", err)
			}
			if got := string(out); tt.fails && !strings.Contains(got, tt.want) || !tt.fails && got != tt.want {
				t.Errorf("said:\n%swant:\n%s", got, tt.want)
			}
		})
	}
}
