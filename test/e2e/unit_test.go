// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// serviceDir has the agent as a service of the node, as it is shipped.
const serviceDir = "deploy/service"

// agentOnNode does with these rules what the unit's text says, with its own commands and kubeconfig, and runs its line
// in place of the agent in a pod, until the test ends.
func (e *testCase) agentOnNode(rules string) {
	e.Helper()
	unit, access := e.shipped("kerf-agent.service"), e.shipped("kubeconfig.yaml")
	e.Cleanup(func() {
		e.node.do(e.T, "kill", agentName)
		// the node is to have no such daemon
		if err := os.Remove(filepath.Join(e.node.env["RUN"], agentName+".cmd")); err != nil {
			e.Error(err)
		}
		e.onNode(`rm -r /opt/kerf/bin /etc/kerf`)
		e.labelled(`"true"`)
		e.waitForAgent()
	})
	e.onNode(`mkdir -p /opt/kerf/bin /etc/kerf && cd "$1" && cp kerf-agent kerf-hook libkerf.so /opt/kerf/bin`,
		filepath.Join(e.node.env["REPO"], "bin"))
	e.writeOnNode("sharing.yaml", rules)
	e.writeOnNode("kubeconfig", strings.ReplaceAll(access, "SERVER", e.config.Host))
	commands := 0
	for line := range strings.Lines(unit) {
		command, found := strings.CutPrefix(strings.TrimSpace(line), "#    kubectl ")
		if !found {
			continue
		}
		commands++
		command, file, _ := strings.Cut(command, " >")
		args := strings.Fields(command)
		for i, a := range args {
			args[i] = strings.Trim(a, "'")
		}
		r := e.kubectl("", args...)
		if r.err != nil {
			e.Fatalf("kubectl %s: %v", command, r)
		}
		if file != "" {
			e.writeOnNode(file, r.out)
		}
	}
	if commands != 3 {
		e.Fatalf("%s has %d commands for kubectl, want one each for the label, the certificate and the token",
			serviceDir, commands)
	}
	eventually(e, "end of the agent's pod", func() error {
		pods, err := e.agentPods()
		if err == nil && len(pods) > 0 {
			err = fmt.Errorf("there are %d", len(pods))
		}
		return err
	})
	e.startAgentOnNode()
	e.waitForAgentOnNode()
}

// startAgentOnNode runs the unit's line; a restart of the node ends what it started.
func (e *testCase) startAgentOnNode() {
	e.Helper()
	gpus := e.node.env["GPUSIM_DIR"]
	_, rest, found := strings.Cut(e.shipped("kerf-agent.service"), "\nExecStart=")
	line, _, _ := strings.Cut(rest, "\n")
	if !found {
		e.Fatalf("%s has no ExecStart", serviceDir)
	}
	args := append([]string{"svc", agentName, "env", "PATH=" + gpus + "/bin:/usr/bin:/bin", "LD_LIBRARY_PATH=" + gpus +
		"/lib"}, strings.Fields(line)...)
	e.node.do(e.T, append(args, "--dev-root="+gpus)...) // the device files of the simulated driver
}

// shipped is a file of the service's, with this node's name.
func (e *testCase) shipped(name string) string {
	e.Helper()
	text, err := os.ReadFile(filepath.Join(e.node.env["REPO"], serviceDir, name))
	if err != nil {
		e.Fatal(err)
	}
	node := e.node.env["NODE_NAME"]
	return strings.NewReplacer("=NODE", "="+node, " NODE", " "+node).Replace(string(text))
}

// writeOnNode puts a file into /etc/kerf, which root alone may read.
func (e *testCase) writeOnNode(name, text string) {
	e.Helper()
	e.onNode(`umask 077 && printf %s "$2" >"/etc/kerf/$1"`, name, text)
}

// onNode runs a shell script on the node.
func (e *testCase) onNode(script string, args ...string) {
	e.Helper()
	if r := e.node.in(append([]string{"sh", "-c", script, "_"}, args...)...); r.err != nil {
		e.Fatalf("%s: %v", script, r)
	}
}
