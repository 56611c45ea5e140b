// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package machine_test

import (
	"encoding/pem"
	"fmt"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// unitFile is the agent as a service of a node, and kubeconfigFile how it reaches the API server.
const (
	unitFile       = "../../deploy/service/kerf-agent.service"
	kubeconfigFile = "../../deploy/service/kubeconfig.yaml"
)

// unit is the value of each of its settings, which has to be there once.
func unit(t *testing.T, text string, names ...string) (values []string) {
	t.Helper()
	for _, name := range names {
		_, rest, ok := strings.Cut(text, "\n"+name+"=")
		value, rest, _ := strings.Cut(rest, "\n")
		if !ok || strings.Contains("\n"+rest, "\n"+name+"=") {
			t.Fatalf("%s has %s not once", unitFile, name)
		}
		values = append(values, value)
	}
	return values
}

// The unit is one that systemd takes, and its command, with all of its flags, is an agent of the node: it serves
// without the cluster, and starts the daemons of MPS, which it would not do in a container.
func TestServiceUnit(t *testing.T) {
	t.Parallel()
	m := newMachine(t, setup{hardware: "t4x4", driver: "r580", noAgent: true})
	text, err := os.ReadFile(unitFile)
	if err != nil {
		t.Fatal(err)
	}
	values := unit(t, string(text), "ExecStart", "KillMode", "Restart")
	command := strings.Fields(values[0])
	if command[0] != "/opt/kerf/bin/kerf-agent" || values[1] != "process" || values[2] != "always" {
		t.Errorf("the unit runs %q with KillMode %q and Restart %q", command[0], values[1], values[2])
	}

	here := strings.NewReplacer("/opt/kerf/bin/kerf-agent", program("kerf-agent"))
	file := filepath.Join(m.work, "kerf-agent.service")
	if err := os.WriteFile(file, []byte(here.Replace(string(text))), 0o600); err != nil {
		t.Fatal(err)
	}
	// what else is on the machine is none of its affair
	if verify, err := exec.LookPath("systemd-analyze"); err == nil {
		if r := call(t, m.env, verify, "verify", "--man=no", file); r.code != 0 ||
			strings.Contains(r.err, "kerf-agent.service") {
			t.Errorf("systemd-analyze verify: %v", r)
		}
	}

	m.env = append(m.env, "PATH="+m.sim+"/bin:"+os.Getenv("PATH"))
	kubeconfig := filepath.Join(m.work, "kubeconfig")
	config := m.write(head + "spec:\n  pools:\n  - {name: default, backends: [driver, mps, reactive]}\n")
	moved := strings.NewReplacer("=NODE", "=a-node", "=/etc/kerf/kubeconfig", "="+kubeconfig, "=/etc/kerf/sharing.yaml",
		"="+config,
		"=/run/kerf", "="+m.dir, "=/var/lib/kerf/audit", "="+m.base+"/audit", "=/var/lib/kerf/state",
		"="+m.base+"/state",
		"=/opt/kerf", "="+m.base+"/opt", "=:9445", "=127.0.0.1:0")
	argv := []string{program("kerf-agent")}
	for _, flag := range command[1:] {
		now := moved.Replace(flag)
		if now == flag && !slices.Contains([]string{"--kubernetes", "--node-labels"}, flag) {
			t.Errorf("%s is not moved to a place of the test's own", flag)
		}
		argv = append(argv, now)
	}
	argv = append(argv, "--cdi-dir="+m.base+"/cdi", "--kubelet-dir="+m.base+"/kubelet")
	// The node's first process is looked at, so there is to be one that may be: a shell, whose child the agent is.
	run := func() *proc {
		cmd := exec.Command("sh", append([]string{"-c", `mount -t proc proc /proc && "$@" & wait $!`, "init"},
			argv...)...)
		cmd.Env = m.env
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS,
			Unshareflags: syscall.CLONE_NEWNS}
		return begin(t, m.work, "service", cmd)
	}

	if r := run().wait(); r.code == 0 || !strings.Contains(r.err, fmt.Sprintf("read kubeconfig %q", kubeconfig)) {
		t.Errorf("without its kubeconfig: %v", r)
	}
	text, err = os.ReadFile(kubeconfigFile)
	if err != nil {
		t.Fatal(err)
	}
	gone := httptest.NewTLSServer(nil) // an API server that does not answer
	gone.Close()
	for name, is := range map[string]string{
		"kubeconfig": strings.NewReplacer("SERVER", gone.URL, "/etc/kerf/", m.work+"/").Replace(string(text)),
		"token":      "a token",
		"ca.crt":     string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: gone.Certificate().Raw})),
	} {
		if err := os.WriteFile(filepath.Join(m.work, name), []byte(is), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	agent := run()
	ended := regexp.MustCompile(`msg="stopped MPS daemon".* gpu=(\S+)`)
	eventually(t, "an agent that serves and has tried MPS on each GPU", func() error {
		log := agent.stderr()
		tried := map[string]bool{} // a GPU whose daemon was slow is tried again
		for _, found := range ended.FindAllStringSubmatch(log, -1) {
			tried[found[1]] = true
		}
		if strings.Contains(log, `msg="started serving"`) && strings.Contains(log, "kubernetes=true") &&
			len(tried) == 4 {
			return nil
		}
		if !agent.running() {
			t.Fatalf("it has ended: %v", agent.wait())
		}
		return fmt.Errorf("it says %s", tail(log))
	})
	if log := agent.stderr(); strings.Contains(log, "separate mounts") { // which would be why MPS holds no pods
		t.Errorf("the agent of a node says %s", tail(log))
	}
}
