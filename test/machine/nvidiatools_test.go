// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package machine_test

import (
	"context"
	"debug/buildinfo"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kerf-gpu/kerf/test/fakekubelet"
)

// nvidiaTools is where make nvidia-tools puts NVIDIA's Go programs; without it the test is left out.
var nvidiaTools = flag.String("nvidia-tools", "",
	"run NVIDIA's Go programs, which make nvidia-tools has built into this folder")

// nvidiaToolsTable is where the table goes.
var nvidiaToolsTable = flag.String("nvidia-tools-table", "", "write the table of -nvidia-tools to this file")

// nvidiaTool is one of NVIDIA's programs, unpatched, and what it must do on a simulated machine.
type nvidiaTool struct {
	name, program, module string
	// works returns what is wrong. It runs on a machine of eight H100 with driver r615, in a tree of gpusim root.
	works func(m *machine, program string) error
}

func nvidiaPrograms() []nvidiaTool {
	const toolkit, plugin = "github.com/NVIDIA/nvidia-container-toolkit", "github.com/NVIDIA/k8s-device-plugin"
	return []nvidiaTool{
		{"nvidia-ctk cdi", "nvidia-ctk", toolkit, (*machine).generates},
		{"GPU feature discovery", "gpu-feature-discovery", plugin, (*machine).discovers},
		{"nvidia-device-plugin", "nvidia-device-plugin", plugin, (*machine).advertises},
		{"MPS daemon of the device plugin", "mps-control-daemon", plugin, (*machine).sharesByMPS},
		{"dra-driver-nvidia-gpu", "gpu-kubelet-plugin", "sigs.k8s.io/dra-driver-nvidia-gpu", (*machine).publishes},
	}
}

// inTree runs a command where a driver's files are at their usual places.
func (m *machine) inTree(argv ...string) result {
	m.t.Helper()
	env := []string{"PATH=" + os.Getenv("PATH"), "HOME=" + m.work}
	return call(m.t, env, filepath.Join(bin, "gpusim"), m.tree(argv)...)
}

// generates has the toolkit write a CDI spec and list its devices.
func (m *machine) generates(ctk string) error {
	spec := m.work + "/cdi/nvidia.yaml"
	if r := m.inTree(ctk, "cdi", "generate", "--output="+spec); r.code != 0 {
		return fmt.Errorf("generate: %v", r)
	}
	text, err := os.ReadFile(spec)
	if err != nil {
		return err
	}
	for want, n := range map[string]int{
		"path: /dev/nvidia7\n":   3, // by index, by UUID and with all
		"path: /dev/nvidiactl\n": 1, "path: /dev/nvidia-uvm\n": 1,
		"hostPath: /usr/lib/x86_64-linux-gnu/libcuda.so." + simVersion + "\n": 1,
		"hostPath: /usr/bin/nvidia-smi\n":                                     1,
	} {
		if got := strings.Count(string(text), want); got != n {
			err = errors.Join(err, fmt.Errorf("the spec has %q %d times, want %d", want, got, n))
		}
	}
	r := m.inTree(ctk, "cdi", "list", "--spec-dir", filepath.Dir(spec))
	for _, device := range []string{"nvidia.com/gpu=0", "nvidia.com/gpu=" + m.simUUID(7), "nvidia.com/gpu=all"} {
		if !strings.Contains(r.out, device+"\n") {
			err = errors.Join(err, fmt.Errorf("the list lacks %s: %v", device, r))
		}
	}
	return errors.Join(err, m.derives(filepath.Dir(spec)))
}

// simUUID is the UUID of a GPU, as nvidia-smi, called by its name, prints it.
func (m *machine) simUUID(index int) string {
	m.t.Helper()
	r := m.inTree("nvidia-smi", "--query-gpu=uuid", "--format=csv,noheader", "-i", fmt.Sprint(index))
	if r.code != 0 {
		m.t.Fatalf("nvidia-smi: %v", r)
	}
	return strings.TrimSpace(r.out)
}

// discovers has GPU feature discovery write the labels of the node.
func (m *machine) discovers(gfd string) error {
	labels, kind := m.work+"/labels", m.work+"/machine-type"
	if err := os.WriteFile(kind, []byte("simulated\n"), 0o600); err != nil {
		return err
	}
	r := m.inTree(gfd, "--oneshot", "--no-timestamp", "--output-file="+labels, "--machine-type-file="+kind)
	text, err := os.ReadFile(labels)
	if r.code != 0 || err != nil {
		return errors.Join(fmt.Errorf("gpu-feature-discovery: %v", r), err)
	}
	for _, want := range []string{
		"nvidia.com/gpu.count=8", "nvidia.com/gpu.memory=81559", "nvidia.com/gpu.product=NVIDIA-H100-80GB-HBM3",
		"nvidia.com/gpu.family=hopper", "nvidia.com/cuda.driver-version.full=" + simVersion,
		"nvidia.com/mig.capable=true",
		"nvidia.com/gpu.machine=simulated",
	} {
		if !strings.Contains(string(text), want+"\n") {
			err = errors.Join(err, fmt.Errorf("the labels lack %s:\n%s", want, text))
		}
	}
	return err
}

// advertises has NVIDIA's device plugin advertise the GPUs to a kubelet, and one as unhealthy after an XID.
func (m *machine) advertises(plugin string) error {
	const resource = "nvidia.com/gpu"
	k := fakekubelet.New(m.work + "/lib/kubelet/device-plugins")
	if err := k.Start(); err != nil {
		return err
	}
	defer k.Stop()
	ctx, cancel := context.WithCancel(m.t.Context())
	defer cancel()
	script := "mount --bind " + m.work + "/lib /var/lib && exec " + plugin
	defer m.background(ctx, "sh", "-c", script)()
	if err := within(time.Minute, func() bool { _, n := k.Count(resource); return n == 8 }); err != nil {
		capacity, allocatable := k.Count(resource)
		return fmt.Errorf("advertised %d, allocatable %d, want 8: %w", capacity, allocatable, err)
	}
	m.set("gpu=5", "xid=48")
	if err := within(time.Minute, func() bool { return len(k.Unhealthy(resource)) == 1 }); err != nil {
		return fmt.Errorf("after an XID, unhealthy are %v: %w", k.Unhealthy(resource), err)
	}
	if got := k.Unhealthy(resource)[0]; got != m.simUUID(5) {
		return fmt.Errorf("unhealthy is %s, want %s", got, m.simUUID(5))
	}
	return nil
}

// TestNVIDIATools runs NVIDIA's Go programs, unpatched, on a simulated machine.
func TestNVIDIATools(t *testing.T) {
	if *nvidiaTools == "" {
		t.Skip("runs by make nvidia-tools")
	}
	m := newMachine(t, setup{noAgent: true})
	table := "| program | version | native |\n|---|---|---|\n"
	for _, tool := range nvidiaPrograms() {
		path, err := filepath.Abs(filepath.Join(*nvidiaTools, tool.program))
		if err != nil {
			t.Fatal(err)
		}
		version, said := "", "ok"
		info, err := buildinfo.ReadFile(path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			version, said = "not available", ""
		case err != nil:
			t.Fatal(err)
		default:
			if version = moduleVersion(info, tool.module); version == "" {
				t.Errorf("%s is not built from %s: %+v", path, tool.module, info.Main)
			}
			if err := tool.works(m, path); err != nil {
				said = "failed"
				t.Errorf("%s: %v", tool.name, err)
			}
		}
		table += fmt.Sprintf("| %s | %s | %s |\n", tool.name, version, said)
	}
	t.Log("\n" + table)
	writeUserlandPage(t, map[string]string{toolsHeading: table})
	if *nvidiaToolsTable != "" {
		if err := os.WriteFile(*nvidiaToolsTable, []byte(table), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// moduleVersion is the version of the program's module. It is empty for a program of another module.
func moduleVersion(info *buildinfo.BuildInfo, module string) string {
	if info.Main.Path == module {
		return info.Main.Version
	}
	return ""
}

// background starts a command in the tree; the returned function ends it and waits.
func (m *machine) background(ctx context.Context, argv ...string) (end func()) {
	m.t.Helper()
	ctx, cancel := context.WithCancel(ctx)
	wait := m.begin(exec.CommandContext(ctx, filepath.Join(bin, "gpusim"), m.tree(argv)...))
	return func() {
		cancel()
		_ = wait() // it is killed
	}
}

// signaled starts a command in the tree; the returned function sends it a signal and waits for its end.
func (m *machine) signaled(signal os.Signal, argv ...string) (end func() error) {
	m.t.Helper()
	ctx, cancel := context.WithTimeout(m.t.Context(), *patience)
	cmd := exec.CommandContext(ctx, filepath.Join(bin, "gpusim"), m.tree(argv)...)
	wait := m.begin(cmd)
	return func() error {
		defer cancel()
		return errors.Join(cmd.Process.Signal(signal), wait())
	}
}

// tree are the arguments with which gpusim runs a command in the tree.
func (m *machine) tree(argv []string) []string {
	return append([]string{"root", m.base + "/root", "--dir", m.sim, "--"}, argv...)
}

// begin starts a command. The returned function waits for its end, and logs its output if the test has failed.
func (m *machine) begin(cmd *exec.Cmd) (wait func() error) {
	m.t.Helper()
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + m.work}
	var said strings.Builder
	cmd.Stdout, cmd.Stderr = &said, &said
	cmd.WaitDelay = 5 * time.Second
	if err := cmd.Start(); err != nil {
		m.t.Fatal(err)
	}
	return func() error {
		err := cmd.Wait()
		if err != nil {
			err = fmt.Errorf("%w: %s", err, said.String())
		}
		return err
	}
}

// within waits for a condition.
func within(most time.Duration, holds func() bool) error {
	for end := time.Now().Add(most); !holds(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			return fmt.Errorf("not within %v", most)
		}
	}
	return nil
}
