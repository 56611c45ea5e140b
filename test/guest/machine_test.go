// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kerf-gpu/kerf/internal/present"
)

const (
	kerf    = "/opt/kerf/bin/kerf"
	gpusim  = "/opt/kerf/bin/gpusim"
	gpuload = "/opt/kerf/bin/gpuload"
	sim     = "/run/sim"
	bundle  = "/opt/bundle"
	// patience is how long one command, or one answer, may take: the processor is emulated.
	patience = 90 * time.Second

	// granted is a device file in the node's CDI spec, as drivers have them. Its number is that of /dev/vcs, which runc
	// allows to no container by default.
	granted, grantedNumber = "/dev/nvidia-uvm", 7 << 8
	// denied is in the container's /dev, and not in its OCI spec: /dev/vcsa.
	denied, deniedNumber = "/dev/denied", 7<<8 | 128
)

// machine is the guest with what runs on it.
type machine struct {
	*testing.T
	variant

	jobs []*job
	// before are the limits in the driver once all jobs ran.
	before string
}

// variantOf is the variant that the kernel's command line names.
func variantOf(t *testing.T) variant {
	t.Helper()
	line, err := os.ReadFile("/proc/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range variants() {
		if slices.Contains(strings.Fields(string(line)), parameter+v.name) {
			return v
		}
	}
	t.Fatalf("the kernel's command line names no variant: %s", line)
	return variant{}
}

// command runs a program to its end and returns all that it wrote.
func command(name string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(os.Environ(), "LD_LIBRARY_PATH="+sim+"/lib", "NVIDIA_DEV_ROOT="+sim)
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// must runs a program that has to succeed.
func (m *machine) must(name string, args ...string) string {
	m.Helper()
	out, err := command(name, args...)
	if err != nil {
		m.Fatalf("%s %q: %v: %s", name, args, err, out)
	}
	return out
}

func (m *machine) write(name, text string) {
	m.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, []byte(text), 0o600)); err != nil {
		m.Fatal(err)
	}
}

// startAgent starts the driver of the variant, and the agent by its unit.
func (m *machine) startAgent() {
	m.Helper()
	m.write("/run/driver", "DRIVER="+m.driver+"\n")
	m.must("systemctl", "start", "gpusim.service")
	m.write("/etc/kerf/sharing.yaml", "apiVersion: kerf.dev/v1alpha2\nkind: SharingConfig\nspec:\n  pools:\n"+
		"  - {name: default, backends: ["+m.backends+"]}\n")
	m.write("/etc/cdi/nvidia.json", m.nodeSpec())
	m.must("systemctl", "start", "kerf-agent.service")
	m.must(kerf, "status", "--wait", "ready", "--timeout", "60s")
}

// nodeSpec is the node's CDI spec, with a device file, which the simulated driver does not have.
func (m *machine) nodeSpec() string {
	m.Helper()
	if err := syscall.Mknod(granted, syscall.S_IFCHR|0o666, grantedNumber); err != nil {
		m.Fatal(err)
	}
	var spec map[string]any
	if err := json.Unmarshal([]byte(m.must(gpusim, "cdi", "--dir", sim)), &spec); err != nil {
		m.Fatal(err)
	}
	edits, _ := spec["containerEdits"].(map[string]any)
	edits["deviceNodes"] = []any{map[string]any{"path": granted}}
	text, err := json.Marshal(spec)
	if err != nil {
		m.Fatal(err)
	}
	return string(text)
}

// agentAnew has systemctl end the agent, and waits until systemd has started another.
func (m *machine) agentAnew(args ...string) {
	m.Helper()
	pid := func() string {
		return strings.TrimSpace(m.must("systemctl", "show", "--property=MainPID", "--value", "kerf-agent.service"))
	}
	before := pid()
	m.must("systemctl", args...)
	m.eventually("a new agent", func() error {
		if now := pid(); now == before || now == "0" {
			return fmt.Errorf("its process is %s, was %s", now, before)
		}
		return nil
	})
}

func (m *machine) eventually(what string, try func() error) {
	m.Helper()
	var err error
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		if err = try(); err == nil {
			return
		}
	}
	m.Fatalf("%s: %v", what, err)
}

// limits are the memory limits that the driver has, without what is used of them.
func (m *machine) limits() string {
	m.Helper()
	var lines []string
	for line := range strings.Lines(m.must(gpusim, "limits", "--dir", sim)) {
		if f := strings.Fields(line); len(f) == 5 { // GPU USED SOFT HARD CGROUP
			lines = append(lines, strings.Join([]string{f[0], f[2], f[3], f[4]}, " "))
		}
	}
	return strings.Join(lines, "\n")
}

// grant is the grant of this name, as the agent shows it. An agent that has just started may not have asked each daemon
// of MPS yet: then the level is unknown, and it is asked again.
func (m *machine) grant(name string) (g present.Grant, err error) {
	m.Helper()
	m.eventually("a known level", func() error {
		g, err = m.grantNow(name)
		if g.Level == "unknown" {
			return fmt.Errorf("%+v", g)
		}
		return nil
	})
	return g, err
}

func (m *machine) grantNow(name string) (present.Grant, error) {
	m.Helper()
	var s present.Status
	if err := json.Unmarshal([]byte(m.must(kerf, "status", "-o", "json")), &s); err != nil {
		m.Fatal(err)
	}
	for _, g := range s.Grants {
		if g.Name == name {
			return g, nil
		}
	}
	return present.Grant{}, fmt.Errorf("there is no grant %q in %+v", name, s.Grants)
}

// loaded is a line of gpuload.
type loaded struct {
	PID       int    `json:"pid"`
	Allocated uint64 `json:"allocated_bytes"`
	Error     string `json:"error"`
}

// job is a gpuload that has a grant, and takes more memory when asked to.
type job struct {
	unit      string
	greedy    bool
	container bool
	scope     *exec.Cmd
	ask, out  *os.File
	answers   *bufio.Reader
	pid       int
	cgroup    string
	grant     present.Grant
	has       uint64
}

// takeMore has the job take more memory.
func (j *job) takeMore() (loaded, error) {
	if _, err := j.ask.WriteString("\n"); err != nil {
		return loaded{}, err
	}
	return j.answer()
}

func (j *job) answer() (l loaded, err error) {
	if err := j.out.SetReadDeadline(time.Now().Add(patience)); err != nil {
		return l, err
	}
	line, err := j.answers.ReadString('\n')
	if err != nil {
		return l, fmt.Errorf("read what gpuload says: %w", err)
	}
	if err := json.Unmarshal([]byte(line), &l); err != nil {
		return l, fmt.Errorf("gpuload says %q: %w", line, err)
	}
	return l, nil
}
