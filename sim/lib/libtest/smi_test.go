// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package libtest_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/kerf-gpu/kerf/test/eventually"
)

// smi runs nvidia-smi, which must end well, and returns its output.
func smi(t *testing.T, dir string, args ...string) string {
	t.Helper()
	r := program(t, dir, nil, "nvidia-smi", args...)
	if r.code != 0 {
		t.Fatalf("nvidia-smi %q: exit %d\n%s%s", args, r.code, r.out, r.errout)
	}
	return r.out
}

// NVIDIA's tools and administrators' scripts read these outputs.
func TestSMI(t *testing.T) {
	dir := node(t, "t4x4", "r580")
	uuid := smi(t, dir, "--query-gpu=uuid", "--format=csv,noheader", "-i", "1")
	if !regexp.MustCompile(`^GPU-[0-9a-f-]{36}$`).MatchString(uuid) {
		t.Fatalf("uuid %q", uuid)
	}
	for _, test := range []struct{ args, want string }{
		{"-L -i " + uuid, `^GPU 1: Tesla T4 \(UUID: ` + uuid + `\)$`},
		{"-L", `(?s)^GPU 0: Tesla T4 .*\nGPU 3: Tesla T4 \(UUID: GPU-[^)]*\)$`},
		{"--query-gpu=index,memory.total,utilization.gpu,fan.speed --format=csv -i 1",
			`^index, memory\.total \[MiB\], utilization\.gpu \[%\], fan\.speed\n1, 15360 MiB, 0 %, \[N/A\]$`},
		{"--query-gpu=gpu_name,driver_version --format=csv,noheader,nounits -i 0", `^Tesla T4, 580\.95\.05$`},
		{"--query-gpu=power.limit,mig.mode.current --format=csv,noheader,nounits -i 0", `^70\.00, \[N/A\]$`},
		{"-q -i 2", `(?s)Driver Version +: 580\.95\.05.*Attached GPUs +: 1.*FB Memory Usage\n +Total +: 15360 MiB`},
		{"-q -d MEMORY -i 2",
			`(?s)Attached GPUs +: 1\n+GPU [0-9A-F:.]+\n    FB Memory Usage\n[^\n]*\n[^\n]*\n[^\n]*\n[^\n]*$`},
		{"dmon -c 1 -i 0", `^# gpu .*\n# Idx .*\n +0 +\d+ +\d+ +- +0 +0 +- +- +\d+ +\d+$`},
		{"pmon -c 1 -i 3", `^# gpu .*\n# Idx .*\n +3 +- +-`},
		{"--version", `^NVIDIA-SMI version  : 580\.95\.05\nNVML version        : 580\.95\n` +
			`DRIVER version      : 580\.95\.05\nCUDA Version        : 13\.0$`},
		{"", `(?s)Driver Version: 580\.95\.05 .*CUDA Version: 13\.0.*Tesla T4.*No running processes found`},
	} {
		if got := smi(t, dir, strings.Fields(test.args)...); !regexp.MustCompile(test.want).MatchString(got) {
			t.Errorf("nvidia-smi %s:\n%s\nwant %s", test.args, got, test.want)
		}
	}
}

func TestSMIProcesses(t *testing.T) {
	dir := node(t, "t4x4", "r580")
	cmd, _, _ := command(t, dir, []string{"CUDA_VISIBLE_DEVICES=0"}, "gpuload", "--alloc", "1GiB", "--hold", "1m")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = cmd.Process.Kill(), cmd.Wait() })
	want := regexp.MustCompile(`^Tesla T4, .*gpuload, 1\d{3} MiB$`)
	eventually.True(t, "the process in the list", func() bool {
		return want.MatchString(smi(t, dir, "--query-compute-apps=gpu_name,process_name,used_memory",
			"--format=csv,noheader"))
	})
	if got := smi(t, dir, "pmon", "-c", "1", "-i",
		"0"); !regexp.MustCompile(` C +\S+ +\S+ +- +- +gpuload$`).MatchString(got) {
		t.Errorf("pmon:\n%s", got)
	}
	if got := smi(t, dir, "-q", "-i", "0"); !regexp.MustCompile(`Process ID +: \d+\n`).MatchString(got) {
		t.Errorf("-q:\n%s", got)
	}
}

func TestSMIComputeMode(t *testing.T) {
	dir := node(t, "t4x4", "r580")
	mode := func() string {
		return smi(t, dir, "--query-gpu=compute_mode", "--format=csv,noheader", "-i", "0,1")
	}
	smi(t, dir, "-c", "EXCLUSIVE_PROCESS", "-i", "1")
	if got := mode(); got != "Default\nExclusive_Process" {
		t.Errorf("modes %q", got)
	}
	smi(t, dir, "-c", "0")
	if got := mode(); got != "Default\nDefault" {
		t.Errorf("modes %q", got)
	}
}

func TestSMIRefuses(t *testing.T) {
	dir := node(t, "t4x4", "r580")
	set(t, dir, "gpu=3", "lost=true")
	for args, want := range map[string]int{
		"-x": 2, "-c SHARED": 2, "-i": 2, "-L -i 9": 6, "-L -i 3": 15,
		// its program is not in its folder
		"--query-gpu=speed --format=csv": 2, "--query-gpu=uuid": 2, "compute-policy -l": 1,
	} {
		if r := program(t, dir, nil, "nvidia-smi", strings.Fields(args)...); r.code != want {
			t.Errorf("nvidia-smi %s: exit %d, want %d\n%s%s", args, r.code, want, r.out, r.errout)
		}
	}
	if r := program(t, t.TempDir(), nil, "nvidia-smi", "-L"); r.code == 0 {
		t.Error("without a driver it ends well")
	}
}
