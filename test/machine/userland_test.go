// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package machine_test

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// userlandDir is where hack/userland.sh has unpacked NVIDIA's user space; without it the test is left out.
var userlandDir = flag.String("userland", "", "run programs of NVIDIA's user space, which hack/userland.sh has unpacked into this folder")

// userlandRows chooses rows by their names.
var userlandRows = flag.String("userland-rows", "", "with -userland: run only the programs whose names match")

// userlandTable is where the table goes.
var userlandTable = flag.String("userland-table", "", "write the table of -userland to this file")

// userlandCap is what each program is granted.
const userlandCap = 2 * gib

// guest is a program of others, or one of our own on NVIDIA's runtime.
type guest struct {
	name     string
	packages []string // the first has the version
	argv     []string
	env      []string
	managed  bool // more managed memory than the cap: only libkerf refuses it
	own      bool // the same output is expected with and without a cap
}

// userland is the unpacked folder and what was built with it.
type userland struct {
	root, built string
	version     map[string]string // by package
}

func readUserland(t *testing.T, dir string) *userland {
	t.Helper()
	root, err := filepath.Abs(filepath.Join(dir, "root"))
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "packages"))
	if err != nil {
		t.Fatal(err)
	}
	u := &userland{root: root, built: t.TempDir(), version: map[string]string{}}
	for line := range strings.Lines(string(text)) {
		if name, version, ok := strings.Cut(strings.TrimSpace(line), " "); ok {
			u.version[name] = version
		}
	}
	return u
}

func (u *userland) lib() string { return filepath.Join(u.root, "usr/lib/x86_64-linux-gnu") }
func (u *userland) tool(name string) string {
	return filepath.Join(u.root, "usr/lib/nvidia-cuda-toolkit/bin", name)
}

// build compiles the programs with NVIDIA's compiler. Code for Turing is PTX for later GPUs.
func (u *userland) build(t *testing.T) {
	t.Helper()
	cxx, err := exec.LookPath("g++")
	if err != nil {
		t.Fatal(err)
	}
	driver := "-L" + filepath.Join(bin, "gpusim-lib", "r580")
	nvcc := func(out, kind, source string, more ...string) {
		args := []string{"-allow-unsupported-compiler", "-ccbin", cxx, "-arch=sm_75", "-cudart", kind, "-o", filepath.Join(u.built, out),
			filepath.Join("userland", source), driver, "-l:libcuda.so.1"}
		if r := call(t, os.Environ(), u.tool("nvcc"), append(args, more...)...); r.code != 0 {
			t.Fatalf("build %s: %v", out, r)
		}
	}
	nvcc("runtime-shared", "shared", "runtime.cu")
	nvcc("runtime-static", "static", "runtime.cu")
	nvcc("nvrtc", "static", "nvrtc.cu", "-l:libnvrtc.so.11.2")
	nvcc("curand", "static", "curand.cu", "-l:libcurand.so.10")
	if r := call(t, os.Environ(), "/usr/bin/cc", "-o", filepath.Join(u.built, "opened"), "userland/opened.c", "-ldl"); r.code != 0 {
		t.Fatalf("build opened: %v", r)
	}
}

// runtimeCases are those of userland/runtime.cu.
var runtimeCases = []string{
	"linear", "pitched", "managed", "arrays", "async", "host", "graphs", "capture", "ipc", "streams", "launches", "mixed", "threads",
	"forks", "random",
}

func (u *userland) guests() []guest {
	runtime := []string{"libcudart11.0", "nvidia-cuda-toolkit", "nvidia-cuda-dev", "libnvvm4"}
	var all []guest
	for _, kind := range []string{"shared", "static"} {
		for _, name := range runtimeCases {
			all = append(all, guest{name: "runtime " + name + ", " + kind, packages: runtime, own: true, managed: name == "managed",
				argv: []string{filepath.Join(u.built, "runtime-"+kind), name}})
		}
	}
	python := func(name string) []string { return []string{"/usr/bin/python3", filepath.Join("userland", name)} }
	return append(all,
		guest{name: "runtime linear, LD_BIND_NOW=1", packages: runtime, own: true, env: []string{"LD_BIND_NOW=1"},
			argv: []string{filepath.Join(u.built, "runtime-shared"), "linear"}},
		guest{name: "runtime by dlopen", packages: runtime, own: true, argv: []string{filepath.Join(u.built, "opened")}},
		guest{name: "NVRTC", packages: append([]string{"libnvrtc11.2", "libnvrtc-builtins11.8"}, runtime...), own: true,
			argv: []string{filepath.Join(u.built, "nvrtc")}},
		guest{name: "cuRAND", packages: append([]string{"libcurand10"}, runtime...), own: true, argv: []string{filepath.Join(u.built, "curand")}},
		guest{name: "PyCUDA", packages: append([]string{"python3-pycuda", "python3-numpy"}, runtime...), own: true, argv: python("with_pycuda.py")},
		guest{name: "pynvml", packages: []string{"python3-pynvml"}, own: true, argv: python("with_pynvml.py")},
		guest{name: "nvtop", packages: []string{"nvtop"},
			argv: []string{"sh", "-c", `TERM=xterm timeout -s INT 3 script -qec "` + u.root + `/usr/bin/nvtop -d 5" /dev/null </dev/null | grep -aq "Device 0"`}},
	)
}

// environment is that of a program on a machine, with a cap where there is one.
func (u *userland) environment(m *machine, g guest, capped bool, by string) []string {
	env := slices.Clone(m.env)
	for i, v := range env {
		switch name, value, _ := strings.Cut(v, "="); name {
		case "LD_LIBRARY_PATH":
			env[i] = strings.Join([]string{name + "=" + value, u.lib(), u.lib() + "/blas", u.lib() + "/lapack"}, ":")
		case "PATH":
			env[i] = name + "=" + filepath.Dir(u.tool("nvcc")) + ":" + value
		}
	}
	env = append(env, "PYTHONPATH="+u.root+"/usr/lib/python3/dist-packages", "USERLAND_CXX=/usr/bin/g++")
	if capped {
		env = append(env, fmt.Sprintf("USERLAND_CAP=%d", userlandCap))
	}
	if by == "driver" || by == "mps" { // their limits do not count managed memory
		env = append(env, "USERLAND_MANAGED=free")
	}
	if by == "mps" { // a client sees the limit in what is free
		env = append(env, "USERLAND_TOTAL=whole")
	}
	if by == "libkerf" { // the agent counts a program's code when it next looks
		env = append(env, fmt.Sprintf("USERLAND_LATE=%d", 2*mib))
	}
	return append(env, g.env...)
}

// runs a program under a cap. What it used is the driver's again when it has ended.
func (u *userland) capped(m *machine, b backend, g guest, want string) string {
	m.set("gpu=all", "peak=now")
	env := u.environment(m, g, true, b.name)
	r := m.run(flags("--memory 2GiB --level "+b.level+" --gpu-uuid "+m.uuid(0)), g.argv, func(c *exec.Cmd) { c.Env = env })
	end := r.wait()
	m.noGrants()
	eventually(m.t, "no memory in use after "+g.name, func() error {
		if account := m.memory(); account.used != 0 {
			return fmt.Errorf("%d bytes are used", account.used)
		}
		return nil
	})
	account := m.memory()
	switch {
	case end.code != 0:
		m.t.Errorf("%s by %s: %v", g.name, b.name, end)
		return "failed"
	case g.own && end.out != want:
		m.t.Errorf("%s by %s: %q, without a cap %q", g.name, b.name, end.out, want)
		return "other result"
	case account.peak > userlandCap:
		m.t.Errorf("%s by %s: used %d bytes, %d is its cap", g.name, b.name, account.peak, userlandCap)
		return "over its cap"
	case g.managed && b.name != "libkerf":
		return "ok, managed memory not limited"
	}
	return "ok"
}

// TestUserland runs programs that others wrote, and our own on NVIDIA's CUDA runtime, without Kerf and at each level that holds. The
// simulator executes no kernel, so that none looks at what a kernel computes.
func TestUserland(t *testing.T) {
	if *userlandDir == "" {
		t.Skip("runs by make userland")
	}
	u := readUserland(t, *userlandDir)
	if u.version["nvidia-cuda-toolkit"] != "" && u.version["nvidia-cuda-dev"] != "" {
		u.build(t)
	}
	var guests []guest
	columns := map[string][]string{} // by guest
	chosen := regexp.MustCompile(*userlandRows)
	for _, g := range u.guests() {
		if !chosen.MatchString(g.name) {
			continue
		}
		columns[g.name] = []string{g.name, u.version[g.packages[0]]}
		if i := slices.IndexFunc(g.packages, func(p string) bool { return u.version[p] == "" }); i >= 0 {
			columns[g.name] = []string{g.name, g.packages[i] + ": not available", "", "", "", ""}
			continue
		}
		guests = append(guests, g)
	}
	outputs := u.native(t, guests, columns)
	for _, b := range backends()[:3] {
		m := b.make(t, usualHardware, b.driver, "")
		if b.name == "libkerf" {
			m.in(t).measured()
		}
		for _, g := range guests {
			columns[g.name] = append(columns[g.name], u.capped(m, b, g, outputs[g.name]))
		}
	}
	table := "| program | version | native | driver | MPS | libkerf |\n|---|---|---|---|---|---|\n"
	for _, g := range u.guests() {
		if columns[g.name] == nil {
			continue
		}
		table += "| " + strings.Join(columns[g.name], " | ") + " |\n"
	}
	t.Log("\n" + table)
	if *userlandTable != "" {
		if err := os.WriteFile(*userlandTable, []byte(table), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// native runs each program on a machine without an agent, and returns its output.
func (u *userland) native(t *testing.T, guests []guest, columns map[string][]string) map[string]string {
	m := newMachine(t, setup{hardware: usualHardware, driver: "r580", noAgent: true})
	outputs := map[string]string{}
	for _, g := range guests {
		said := "ok"
		r := call(t, u.environment(m, g, false, ""), g.argv[0], g.argv[1:]...)
		if r.code != 0 {
			said = "failed"
			t.Errorf("%s: %v", g.name, r)
		}
		outputs[g.name] = r.out
		columns[g.name] = append(columns[g.name], said)
	}
	return outputs
}
