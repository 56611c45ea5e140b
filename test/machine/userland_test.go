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
var userlandDir = flag.String("userland", "",
	"run programs of NVIDIA's user space, which hack/userland.sh has unpacked into this folder")

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
	kernel   bool // ends with an error where it compares the result of a kernel, which the simulator does not execute
	// What the output has to contain: always, and where the cap is the size of the GPU.
	want, sees *regexp.Regexp
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
	built, err := filepath.Abs(filepath.Join(dir, "built"))
	if err != nil {
		t.Fatal(err)
	}
	u := &userland{root: root, built: built, version: map[string]string{}}
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

// build compiles the programs with NVIDIA's compiler, unless they are newer than their sources. Code for Turing is PTX
// for later GPUs.
func (u *userland) build(t *testing.T) {
	t.Helper()
	if err := os.MkdirAll(u.built, 0o755); err != nil {
		t.Fatal(err)
	}
	const cuda = "-l:libcuda.so.1"
	u.nvcc(t, "runtime-shared", "userland/runtime.cu", "-cudart", "shared", cuda)
	u.nvcc(t, "runtime-static", "userland/runtime.cu", cuda)
	u.nvcc(t, "random-shared", "userland/random.cu", "-cudart", "shared", cuda)
	u.nvcc(t, "random-static", "userland/random.cu", cuda)
	u.nvcc(t, "nvrtc", "userland/nvrtc.cu", cuda, "-l:libnvrtc.so.11.2")
	u.nvcc(t, "curand", "userland/curand.cu", cuda, "-l:libcurand.so.10")
	if u.version["libcublas11"] != "" && u.version["libcublaslt11"] != "" {
		u.nvcc(t, "cublas", "userland/cublas.cu", cuda, "-l:libcublas.so.11", "-l:libcublasLt.so.11")
	}
	if u.version["libcufft10"] != "" {
		u.nvcc(t, "cufft", "userland/cufft.cu", cuda, "-l:libcufft.so.10")
	}
	if u.version["nvidia-cuda-samples"] != "" {
		for _, s := range samples {
			u.nvcc(t, "sample-"+sampleName(s.folder), filepath.Join(u.sampleFolder(s.folder), s.source),
				append([]string{"-I" + u.sampleFolder("../Common")}, s.link...)...)
		}
	}
	if opened := filepath.Join(u.built, "opened"); older(opened, "userland/opened.c") {
		if r := call(t, os.Environ(), "/usr/bin/cc", "-o", opened, "userland/opened.c", "-ldl"); r.code != 0 {
			t.Fatalf("build opened: %v", r)
		}
	}
}

func (u *userland) nvcc(t *testing.T, out, source string, more ...string) {
	t.Helper()
	if !older(filepath.Join(u.built, out), source, "userland/userland.h") {
		return
	}
	cxx, err := exec.LookPath("g++")
	if err != nil {
		t.Fatal(err)
	}
	args := []string{"-allow-unsupported-compiler", "-ccbin", cxx, "-arch=sm_75", "-o", filepath.Join(u.built, out),
		source, "-L" + filepath.Join(bin, "gpusim-lib", "r580")}
	env := append(os.Environ(), "LD_LIBRARY_PATH="+u.lib())
	if r := call(t, env, u.tool("nvcc"), append(args, more...)...); r.code != 0 {
		t.Fatalf("build %s: %v", out, r)
	}
}

// older tells whether a file is missing or older than one of its sources.
func older(file string, sources ...string) bool {
	is, err := os.Stat(file)
	return err != nil || slices.ContainsFunc(sources, func(source string) bool {
		of, err := os.Stat(source)
		return err != nil || of.ModTime().After(is.ModTime())
	})
}

// runtimeCases are those of userland/runtime.cu.
var runtimeCases = []string{
	"linear", "pitched", "managed", "arrays", "async", "host", "graphs", "capture", "ipc", "streams", "launches",
	"mixed", "threads",
	"forks", "random",
}

// runtimePackages are what our own programs on NVIDIA's runtime need.
var runtimePackages = []string{"libcudart11.0", "nvidia-cuda-toolkit", "nvidia-cuda-dev", "libnvvm4"}

// guests are all programs: those of others first.
func (u *userland) guests() []guest {
	runtime := runtimePackages
	all := u.programs()
	for _, kind := range []string{"shared", "static"} {
		for _, name := range runtimeCases {
			all = append(all, guest{name: "runtime " + name + ", " + kind, packages: runtime, own: true,
				managed: name == "managed",
				argv:    []string{filepath.Join(u.built, "runtime-"+kind), name}})
		}
	}
	return append(all,
		guest{name: "runtime linear, LD_BIND_NOW=1", packages: runtime, own: true, env: []string{"LD_BIND_NOW=1"},
			argv: []string{filepath.Join(u.built, "runtime-shared"), "linear"}},
		guest{name: "runtime by dlopen", packages: runtime, own: true,
			argv: []string{filepath.Join(u.built, "opened")}},
	)
}

// environment is that of a program on a machine, with a cap where there is one.
func (u *userland) environment(m *machine, g guest, capped bool, by string) []string {
	env := slices.Clone(m.env)
	for i, v := range env {
		switch name, value, _ := strings.Cut(v, "="); name {
		case "LD_LIBRARY_PATH":
			env[i] = strings.Join([]string{name + "=" + value, u.lib(), u.lib() + "/blas", u.lib() + "/lapack",
				u.lib() + "/pulseaudio", u.lib() + "/slurm-wlm"}, ":")
			env = append(env, "USERLAND_CUDA="+filepath.Join(value, "libcuda.so.1"))
		case "PATH":
			tools := []string{filepath.Dir(u.tool("nvcc")), u.root + "/usr/bin", value}
			env[i] = name + "=" + strings.Join(tools, ":")
		}
	}
	env = append(env, "PYTHONPATH="+u.root+"/usr/lib/python3/dist-packages", "USERLAND_CXX=/usr/bin/g++",
		"TMPDIR="+m.work)
	if capped {
		env = append(env, fmt.Sprintf("USERLAND_CAP=%d", userlandCap))
	}
	if by == "driver" || by == "mps" { // their limits do not count managed memory
		env = append(env, "USERLAND_MANAGED=free")
	}
	if by == "mps" { // a client sees the limit in what is free
		env = append(env, "USERLAND_TOTAL=whole")
	}
	if by == "libkerf" { // the agent counts a program's code when it takes the next sample
		env = append(env, fmt.Sprintf("USERLAND_LATE=%d", 2*mib))
	}
	return append(env, g.env...)
}

// heading is that of the table on the page which has the program.
func (g *guest) heading() string {
	if strings.HasPrefix(g.name, "runtime ") {
		return ownHeading
	}
	return othersHeading
}

// runs a program under a cap. What it used is the driver's again when it has ended.
func (u *userland) capped(m *machine, b backend, g guest, want string) string {
	m.set("gpu=all", "peak=now")
	env := u.environment(m, g, true, b.name)
	r := m.run(flags("--memory 2GiB --min-enforcement "+b.level+" --gpu-uuid "+m.uuid(0)), g.argv,
		func(c *exec.Cmd) { c.Env = env })
	end := r.wait()
	m.noGrants()
	eventually(m.t, "no memory in use after "+g.name, func() error {
		if account := m.memory(); account.used != 0 {
			return fmt.Errorf("%d bytes are used", account.used)
		}
		return nil
	})
	account := m.memory()
	said, err := g.judge(end, b.name != "mps")
	switch {
	case err != nil:
		m.t.Errorf("%s by %s: %v\n%v", g.name, b.name, err, end)
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
	return said
}

// judge says what a program's end means. Where sized is set, it has to see the cap as the size of the GPU.
func (g *guest) judge(end result, sized bool) (string, error) {
	output := end.out + end.err
	switch {
	case g.want != nil && !g.want.MatchString(output):
		return "", fmt.Errorf("the output has no %q", g.want)
	case sized && g.sees != nil && !g.sees.MatchString(output):
		return "", fmt.Errorf("the output has no %q", g.sees)
	case g.kernel && end.code > 0:
		return "ok, up to the result of a kernel", nil
	case g.kernel || end.code != 0:
		return "", fmt.Errorf("exit status %d", end.code)
	}
	return "ok", nil
}

// TestUserland runs programs that others wrote, and our own on NVIDIA's CUDA runtime, without Kerf and at each level
// that holds. The simulator executes no kernel, so that none looks at what a kernel computes.
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
	tables := map[string]string{othersHeading: userlandColumns, ownHeading: userlandColumns}
	table := userlandColumns
	for _, g := range u.guests() {
		if columns[g.name] == nil {
			continue
		}
		row := "| " + strings.Join(columns[g.name], " | ") + " |\n"
		table, tables[g.heading()] = table+row, tables[g.heading()]+row
	}
	writeUserlandPage(t, tables)
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
		// kerf run looks for a program in PATH of its environment; so does env.
		r := call(t, u.environment(m, g, false, ""), "/usr/bin/env", g.argv...)
		said, err := g.judge(r, false)
		if err != nil {
			said = "failed"
			t.Errorf("%s: %v\n%v", g.name, err, r)
		}
		outputs[g.name] = r.out
		columns[g.name] = append(columns[g.name], said)
	}
	return outputs
}
