// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/kerf-gpu/kerf/test/kit/core"
)

// patience ends a kit that does not end by itself. It is far beyond what a run here takes.
const patience = 2 * time.Minute

// folder is where the archive of all tests is packed and unpacked.
var folder string

// unpacked is the kit from its archive, packed once from the programs of make build. Without clang, it has no kernels.
var unpacked = sync.OnceValues(func() (string, error) {
	pack := exec.Command("../../hack/hardware-kit.sh", "bin", folder+"/kit.tar.xz")
	pack.Env = append(os.Environ(), "KERNELS=optional", "XZ_LEVEL=0", "WERROR=-Werror")
	for _, cmd := range []*exec.Cmd{pack, exec.Command("tar", "-C", folder, "-xJf", folder+"/kit.tar.xz")} {
		if out, err := cmd.CombinedOutput(); err != nil {
			return "", fmt.Errorf("%w: %s", err, out)
		}
	}
	return folder + "/kerf-hardware-kit", nil
})

func TestMain(m *testing.M) {
	var err error
	if p := flag.Lookup("test.parallel"); p != nil { // the tests mostly wait
		_ = p.Value.Set("4")
	}
	if folder, err = os.MkdirTemp("/tmp", "kp"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	_ = os.RemoveAll(folder)
	os.Exit(code)
}

// island is an empty root with the unpacked archive, a simulated node, and of the system the C library alone.
type island struct {
	root string
	env  []string
}

func newIsland(t *testing.T) island {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root, for its own root directory")
	}
	kit, err := unpacked()
	if err != nil {
		t.Fatal(err)
	}
	root, err := os.MkdirTemp("/tmp", "kr") // short: sockets have 107 bytes for their path
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(root) })
	for _, dir := range []string{"proc", "dev", "tmp", "sys/fs/cgroup", "lib64", "lib/x86_64-linux-gnu", "out"} {
		err = errors.Join(err, os.MkdirAll(filepath.Join(root, dir), 0o755))
	}
	err = errors.Join(err, os.Chmod(root, 0o755), os.Chmod(root+"/tmp", 0o777|os.ModeSticky),
		os.Chmod(root+"/out", 0o777))
	for from, to := range map[string]string{"/lib64/ld-linux-x86-64.so.2": "/lib64/ld-linux-x86-64.so.2",
		"/lib/x86_64-linux-gnu/libc.so.6": "/lib/x86_64-linux-gnu/libc.so.6"} {
		data, e := os.ReadFile(from)
		err = errors.Join(err, e, os.WriteFile(root+to, data, 0o755))
	}
	err = errors.Join(err, os.Link(root+"/lib64/ld-linux-x86-64.so.2",
		root+"/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2"))
	if err != nil {
		t.Fatal(err)
	}
	command(t, "cp", "-al", kit, root)
	command(t, "../../bin/gpusim", "start", "--machine", "h100x8", "--driver", "r580", "--dir", root+"/gpu")
	t.Cleanup(func() { command(t, "../../bin/gpusim", "stop", "--dir", root+"/gpu") })
	return island{root, []string{"PATH=" + os.Getenv("PATH"), "LD_LIBRARY_PATH=/gpu/lib", "NVIDIA_DEV_ROOT=/gpu"}}
}

func command(t *testing.T, name string, args ...string) {
	t.Helper()
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %s: %v: %s", name, strings.Join(args, " "), err, out)
	}
}

// run starts the kit by a script, which has the mounts and rights of the case, and reads its report.
func (i island) run(t *testing.T, wrap []string, mounts, enter string, env []string, args ...string) (int,
	core.Report) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	script :=
		`mount --bind "$0" "$0"; cd "$0"; mount -t proc proc proc; mount -t tmpfs dev dev; for f in null zero urandom; do : >dev/$f; mount --bind /dev/$f dev/$f; done; ` +
			mounts + `exec env -i "$@"`
	argv := append(append([]string{"unshare", "--mount", "--propagation", "private"}, wrap...), "sh", "-ec", script,
		i.root)
	argv = append(append(append(argv, i.env...), env...), strings.Fields(enter)...)
	argv = append(append(argv, i.root, "/kerf-hardware-kit/kit", "--out", "/out"), args...)
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) || ctx.Err() != nil {
		t.Fatalf("%v: %s", err, said.String())
	}
	t.Logf("exit %d\n%s", cmd.ProcessState.ExitCode(), said.String())
	return cmd.ProcessState.ExitCode(), readReport(t, i.root+"/out")
}

func readReport(t *testing.T, dir string) (r core.Report) {
	t.Helper()
	data, err := os.ReadFile(dir + "/report.json")
	if err == nil {
		err = json.Unmarshal(data, &r)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"report.md", "raw.tar.gz"} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Size() == 0 {
			t.Errorf("%s: %v", name, err)
		}
	}
	return r
}

// sound checks what each report has: a verdict with a reason for each claim of the steps, and no step that crashed.
func sound(t *testing.T, r core.Report, ids []string) {
	t.Helper()
	if !r.Simulated || !strings.Contains(r.Markdown(), "**Simulated:**") {
		t.Error("the report is not marked as simulated")
	}
	var got []string
	for _, s := range r.Steps {
		got = append(got, s.ID)
		if strings.Contains(s.Ended, "crashed") {
			t.Errorf("%s: %s", s.ID, s.Ended)
		}
	}
	if !slices.Equal(got, ids) {
		t.Errorf("steps %q, want %q", got, ids)
	}
	for _, x := range r.Results() {
		if x.Detail == "" || !slices.Contains(core.Verdicts(), x.Verdict) {
			t.Errorf("%+v has no verdict or no reason", x)
		}
		if _, ok := core.ClaimText(x.Claim); !ok {
			t.Errorf("%q is no claim", x.Claim)
		}
	}
}

// verdict finds the result on a claim.
func verdict(r core.Report, claim string) core.Result {
	for _, x := range r.Results() {
		if x.Claim == claim {
			return x
		}
	}
	return core.Result{}
}

const enterRoot = "chroot"

// The kit runs from its archive where there is nothing but the C library, and in each poorer place. It reports each
// limit.
func TestKitInPoorPlaces(t *testing.T) {
	t.Parallel()
	mountGroups := "mount -t cgroup2 none sys/fs/cgroup; "
	for name, c := range map[string]struct {
		wrap          []string
		mounts, enter string
		only          string
		lacks         string // the reason for which no agent runs; "" if one does
		minutes       string // of few steps more than they need: they end when they are done
	}{
		"empty root": {nil, mountGroups, enterRoot, "", "", "0.2"},
		"unprivileged user": {nil, mountGroups, enterRoot + " --userspec=65534:65534", "abi,attacks,crash",
			"kerf-agent needs root", "1"},
		"without cgroup v2": {nil, "", "setpriv --bounding-set=-sys_admin --inh-caps=-sys_admin " + enterRoot,
			"abi,memory,crash", "no cgroup v2 is mounted", "1"},
		"own cgroup v2 mount": {nil, "", enterRoot, "abi,crash", "", "1"},
		"PID namespace": {[]string{"--pid", "--fork", "--kill-child"}, mountGroups, enterRoot, "abi,crash", "",
			"1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			i := newIsland(t)
			code, r := i.run(t, c.wrap, c.mounts, c.enter, nil, "--minutes", c.minutes, "--only", c.only)
			steps, _ := core.Select(c.only)
			sound(t, r, core.IDs(steps))
			if v := verdict(r, "settings-unchanged"); code > 1 || v.Verdict != core.Proven {
				t.Errorf("exit %d, %+v", code, v)
			}
			// all steps have too little time
			if v := verdict(r, "abi-known"); v.Verdict != core.Proven && c.only != "" {
				t.Errorf("%+v", v)
			}
			// Whether grants survive is for the machine suite: a slow machine may not come to it here.
			v := verdict(r, "crash-grants")
			if limited := v.Verdict == core.NotPossible; limited != (c.lacks != "") ||
				!strings.Contains(v.Detail, c.lacks) {
				t.Errorf("%+v, want the reason %q", v, c.lacks)
			}
		})
	}
}

// A step that crashes, panics or hangs has a verdict, and the next one runs.
func TestKitOutlivesItsSteps(t *testing.T) {
	t.Parallel()
	i := newIsland(t)
	code, r := i.run(t, nil, "", enterRoot, []string{"KERF_KIT_FAULTS=abi=hang,memory=panic,nvml=crash"}, "--minutes",
		"0.3", "--only", "abi,memory,nvml,attacks")
	for id, want := range map[string]string{
		"abi": "hung and was killed", "memory": "panic: a fault was requested", "nvml": "crashed (signal: killed)",
		"attacks": "",
	} {
		at := slices.IndexFunc(r.Steps, func(s core.Outcome) bool { return s.ID == id })
		if at < 0 || !strings.Contains(r.Steps[at].Ended, want) || r.Steps[at].Seconds == 0 {
			t.Errorf("%s: %+v, want %q", id, r.Steps, want)
		}
	}
	if v := verdict(r, "abi-known"); v.Verdict != core.NotReached || code > 1 {
		t.Errorf("exit %d, %+v", code, v)
	}
}

// A GPU setting that differs afterwards is exit status 3.
func TestKitSeesChangedSettings(t *testing.T) {
	t.Parallel()
	i := newIsland(t)
	env := []string{"LD_LIBRARY_PATH=" + i.root + "/gpu/lib", "NVIDIA_DEV_ROOT=" + i.root + "/gpu"}
	dir := t.TempDir()
	kit := exec.Command(i.root+"/kerf-hardware-kit/kit", "--out", dir, "--only", "abi")
	kit.Env = append(slices.Clone(env), "KERF_KIT_FAULTS=abi=hang")
	out, err := kit.StdoutPipe()
	if err == nil {
		err = kit.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	buffer := make([]byte, 1<<16)
	if _, err := out.Read(buffer); err != nil { // its first line comes when it has read the settings
		t.Fatal(err)
	}
	tamper := exec.Command("../../bin/gpuload", "--tamper", "--json")
	tamper.Env = env
	if said, err := tamper.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, said)
	}
	if err := kit.Process.Signal(syscall.SIGTERM); err != nil { // it then writes what there is
		t.Fatal(err)
	}
	for err = nil; err == nil; _, err = out.Read(buffer) {
	}
	_ = kit.Wait()
	r := readReport(t, dir)
	if code := kit.ProcessState.ExitCode(); code != 3 || len(r.Changed) == 0 ||
		verdict(r, "settings-unchanged").Verdict != core.Disproven {
		t.Errorf("exit %d, %+v", code, r.Changed)
	}
}
