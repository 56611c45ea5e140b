// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// unitFile is the agent as a service of the node, as it is shipped.
const unitFile = "deploy/service/kerf-agent.service"

// serviceAccess is /etc/kerf/kubeconfig as the unit asks for it: a user with a tokenFile.
const serviceAccess = `apiVersion: v1
kind: Config
clusters: [{name: cluster, cluster: {server: %q, certificate-authority-data: %s}}]
users: [{name: agent, user: {tokenFile: /etc/kerf/token}}]
contexts: [{name: agent, context: {cluster: cluster, user: agent}}]
current-context: agent
`

// agentOnNode does with these rules what the unit's text says, one step after the other, and runs its line in place of the
// agent in a pod, until the test ends.
func (e *testCase) agentOnNode(rules string) {
	e.Helper()
	gpus, name := e.node.env["GPUSIM_DIR"], e.node.env["NODE_NAME"]
	text, err := os.ReadFile(filepath.Join(e.node.env["REPO"], unitFile))
	if err != nil {
		e.Fatal(err)
	}
	// 1. The node is left to it.
	e.labelled("null")
	eventually(e, "end of the agent's pod", func() error {
		pods, err := e.agentPods()
		if err == nil && len(pods) > 0 {
			err = fmt.Errorf("there are %d", len(pods))
		}
		return err
	})
	e.Cleanup(func() {
		e.node.do(e.T, "kill", agentName)
		if err := os.Remove(filepath.Join(e.node.env["RUN"], agentName+".cmd")); err != nil { // the node is to have no such daemon
			e.Error(err)
		}
		e.onNode(`rm -r /opt/kerf/bin /etc/kerf`)
		e.labelled(`"true"`)
		e.waitForAgent()
	})
	// 2. Its programs and its rules.
	e.onNode(`mkdir -p /opt/kerf/bin /etc/kerf && cd "$1" && cp kerf-agent kerf-hook libkerf.so /opt/kerf/bin && printf %s "$2" >/etc/kerf/sharing.yaml`,
		filepath.Join(e.node.env["REPO"], "bin"), rules)
	// 3. A token that names the node, by the unit's own command.
	token := e.kubectl("", strings.Fields(e.lineOf(text, "#    kubectl ", name))...)
	if token.err != nil {
		e.Fatalf("make a token as %s says: %v", unitFile, token)
	}
	access := fmt.Sprintf(serviceAccess, e.config.Host, base64.StdEncoding.EncodeToString(e.config.CAData))
	e.onNode(`umask 077 && printf %s "$1" >/etc/kerf/token && printf %s "$2" >/etc/kerf/kubeconfig`, strings.TrimSpace(token.out), access)

	args := []string{"svc", agentName, "env", "PATH=" + gpus + "/bin:/usr/bin:/bin", "LD_LIBRARY_PATH=" + gpus + "/lib"}
	args = append(args, strings.Fields(e.lineOf(text, "ExecStart=", name))...)
	e.node.do(e.T, append(args, "--dev-root="+gpus)...) // the device files of the simulated driver
	e.waitForAgentOnNode()
}

// lineOf is what follows after a word at the beginning of a line of the unit, on this node.
func (e *testCase) lineOf(unit []byte, begin, node string) string {
	e.Helper()
	_, rest, found := strings.Cut("\n"+string(unit), "\n"+begin)
	line, _, _ := strings.Cut(rest, "\n")
	if !found || !strings.Contains(line, "NODE") {
		e.Fatalf("%s has no line %q that names a node", unitFile, begin)
	}
	return strings.NewReplacer("=NODE", "="+node, " NODE", " "+node).Replace(line)
}

// onNode runs a shell script on the node.
func (e *testCase) onNode(script string, args ...string) {
	e.Helper()
	if r := e.node.in(append([]string{"sh", "-c", script, "_"}, args...)...); r.err != nil {
		e.Fatalf("%s: %v", script, r)
	}
}
