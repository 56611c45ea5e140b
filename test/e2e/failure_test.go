// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// watchedLogs are the daemons whose words during a failed test are kept.
func watchedLogs() []string {
	return []string{"kubelet", "containerd", "gpusim", "kube-scheduler", "kube-apiserver"}
}

// logSizes is where each log ends now.
func (n *node) logSizes() map[string]int64 {
	sizes := map[string]int64{}
	for _, name := range watchedLogs() {
		if info, err := os.Stat(n.log(name)); err == nil {
			sizes[name] = info.Size()
		}
	}
	return sizes
}

// dump writes what is known about a failed test to a folder, and the most telling lines to the test's log.
func (e *testCase) dump() {
	dir := filepath.Join(e.node.env["E2E_DIR"], "failures", strings.ReplaceAll(e.Name(), "/", "_"))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		e.Logf("no place for what is known: %v", err)
		return
	}
	keep := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			e.Logf("keep %s: %v", name, err)
		}
	}
	e.Logf("what is known is in %s", dir)
	for _, p := range e.pods {
		e.dumpPod(p, keep)
	}
	agent := e.agentLog(false)
	keep("agent.log", agent)
	keep("agent-previous.log", e.agentLog(true))
	e.Logf("the agent's last words:\n%s", tail(agent, 20))
	for _, name := range watchedLogs() {
		text := since(e.node.log(name), e.logs[name])
		keep(name+".log", text)
		if name == "kubelet" || name == "containerd" {
			e.Logf("%s, last lines with errors:\n%s", name, tail(troubled(text), 8))
		}
	}
	keep("status.json", e.node.in(e.node.program("kerf"), "status", "-o", "json").String())
	for _, what := range []string{"gpus", "processes", "limits"} {
		keep("driver-"+what+".txt", e.node.in(e.node.program("gpusim"), what, "--dir", e.node.env["GPUSIM_DIR"]).out)
	}
	keep("pods.yaml", e.kubectl("", "get", "pods", "-A", "-o", "yaml").out)
	keep("node.yaml", e.kubectl("", "get", "node", "-o", "yaml").out)
	keep("events.txt", e.kubectl("", "get", "events", "-A", "--sort-by=.lastTimestamp").out)
}

func (e *testCase) dumpPod(p *pod, keep func(name, text string)) {
	o, err := p.fetch()
	if err != nil {
		e.Logf("pod %s: %v", p.name, err)
		return
	}
	events, err := p.events()
	e.Logf("pod %s: %s; events (%v):\n  %s", p.name, describe(o), err, strings.Join(events, "\n  "))
	for _, s := range containerStatuses(o) {
		log, err := p.log(s.Name, false)
		if err != nil {
			log += fmt.Sprintf("\n(%v)\n", err)
		}
		if s.RestartCount > 0 {
			previous, _ := p.log(s.Name, true) // it may be gone
			log = previous + "--- restarted\n" + log
		}
		keep(p.name+"-"+s.Name+".log", log)
		e.Logf("log of %s/%s:\n%s", p.name, s.Name, tail(log, 10))
	}
}

// agentLog is what the agent has written.
func (c *cluster) agentLog(previous bool) string {
	pods, err := c.agentPods()
	if err != nil {
		return err.Error()
	}
	var b strings.Builder
	for _, p := range pods {
		text, err := c.client.CoreV1().Pods(kerfNamespace).GetLogs(p.Name,
			&corev1.PodLogOptions{Previous: previous}).DoRaw(background())
		fmt.Fprintf(&b, "--- %s: %s\n%s", p.Name, describe(&p), text)
		if err != nil {
			fmt.Fprintf(&b, "(%v)\n", err)
		}
	}
	return b.String()
}

// since is what a file got after offset.
func since(file string, offset int64) string {
	f, err := os.Open(file)
	if err != nil {
		return err.Error()
	}
	defer f.Close()
	if _, err := f.Seek(offset, io.SeekStart); err != nil {
		return err.Error()
	}
	text, err := io.ReadAll(f)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// troubled are the lines of a log that tell of errors.
func troubled(text string) string {
	var lines []string
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "E") || strings.Contains(line, "level=error") ||
			strings.Contains(line, "level=fatal") {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "")
}

// tail is the last n lines, none of them endless.
func tail(text string, n int) string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	lines = lines[max(0, len(lines)-n):]
	for i, line := range lines {
		if len(line) > 600 {
			lines[i] = line[:600] + "..."
		}
	}
	return strings.Join(lines, "\n")
}
