// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package machine_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// wantError checks that a command said what is wrong in one clear message.
func wantError(t *testing.T, r result, code int, parts ...string) {
	t.Helper()
	if r.code != code {
		t.Errorf("%v, want exit %d", r, code)
	}
	for _, p := range parts {
		if !strings.Contains(r.err, p) {
			t.Errorf("stderr has no %q: %s", p, r.err)
		}
	}
	for _, bad := range []string{"panic", "goroutine ", "%!", "\x1b", "0x0"} {
		if strings.Contains(r.err, bad) {
			t.Errorf("stderr has %q: %s", bad, r.err)
		}
	}
	if len(r.err) > 4000 {
		t.Errorf("the error has %d bytes", len(r.err))
	}
}

// Each wrong flag of kerf run is refused by name with what to write instead, and nothing is granted.
func TestBadRunFlags(t *testing.T) {
	t.Parallel()
	m := newMachine(t, setup{hardware: "t4x4"})
	uuid := m.uuid(0)
	many := flags("--memory 1GiB --gpu-uuid " + uuid + " --gpu-uuid " + uuid)
	for range 100 {
		many = append(many, "--gpu-model", "*")
	}
	tests := map[string]struct {
		flags []string
		want  []string
	}{
		"nothing requested":     {nil, []string{"--memory", "requests nothing"}},
		"memory no size":        {flags("--memory lots"), []string{"--memory", `"lots"`, "10GiB"}},
		"memory empty":          {[]string{"--memory", ""}, []string{"--memory", "empty"}},
		"memory zero":           {flags("--memory 0"), []string{"--memory"}},
		"memory negative":       {flags("--memory=-1GiB"), []string{"--memory", `"-1GiB"`}},
		"memory fraction":       {flags("--memory 1.0000001GiB"), []string{"--memory"}},
		"memory overflows":      {flags("--memory 99999999999999999999GiB"), []string{"--memory"}},
		"memory 2^64":           {flags("--memory 18446744073709551616"), []string{"--memory"}},
		"memory beyond any":     {flags("--memory 17179869183GiB"), []string{"GiB"}},
		"memory without value":  {flags("--memory"), []string{"memory"}},
		"memory of a byte":      {flags("--memory 1"), []string{"--memory"}},
		"memory, control bytes": {[]string{"--memory", "1\x1b[31mGiB\n"}, []string{"--memory", `\x1b`}},
		"memory, huge text":     {[]string{"--memory", strings.Repeat("9", 100000)}, []string{"--memory"}},
		"percent zero":          {flags("--percent 0"), []string{"--percent", `"0"`}},
		"percent negative":      {flags("--percent=-5"), []string{"--percent", `"-5"`}},
		"percent 101":           {flags("--percent 101"), []string{"--percent", "101"}},
		"percent fraction":      {flags("--percent 12.5"), []string{"--percent", `"12.5"`}},
		"percent overflows":     {flags("--percent 4294967297"), []string{"--percent"}},
		"percent no number":     {flags("--percent half"), []string{"--percent", `"half"`}},
		"gpus zero":             {flags("--gpus 0"), []string{"--gpus", `"0"`}},
		"gpus negative":         {flags("--gpus=-1"), []string{"--gpus", `"-1"`}},
		"gpus huge":             {flags("--gpus 4294967297"), []string{"--gpus"}},
		"gpus more than any":    {flags("--gpus 65"), []string{"--gpus"}},
		"gpus more than here":   {flags("--gpus 5"), []string{"5"}},
		"uneven":                {flags("--memory 10GiB --gpus 3"), []string{"--memory", "evenly"}},
		"level unknown": {flags("--memory 1GiB --min-enforcement strong"),
			[]string{"--min-enforcement", `"strong"`, "driver"}},
		"level of hardware": {flags("--memory 1GiB --min-enforcement hardware"), []string{"hardware"}},
		"placement unknown": {flags("--memory 1GiB --placement-policy best"),
			[]string{"--placement-policy", `"best"`, "pack"}},
		"model a bad glob": {[]string{"--memory", "1GiB", "--gpu-model", "[T4"}, []string{"--gpu-model"}},
		"model empty":      {[]string{"--memory", "1GiB", "--gpu-model", ""}, []string{"--gpu-model"}},
		"uuid malformed":   {flags("--memory 1GiB --gpu-uuid GPU-1"), []string{"--gpu-uuid", `"GPU-1"`}},
		"uuid of MIG":      {flags("--memory 1GiB --gpu-uuid MIG-" + uuid[4:]), []string{"--gpu-uuid"}},
		"uuid twice": {flags("--memory 1GiB --gpu-uuid " + uuid + " --gpu-uuid " + uuid),
			[]string{"--gpu-uuid", "twice"}},
		"uuid unknown": {flags("--memory 1GiB --gpu-uuid GPU-11111111-2222-3333-4444-555555555555"),
			[]string{"UUID"}},
		"too many":         {many, []string{"--gpu-model", "--gpu-uuid"}},
		"name in capitals": {flags("--memory 1GiB --name Train"), []string{"--name", `"Train"`}},
		"name too long":    {flags("--memory 1GiB --name " + strings.Repeat("a", 64)), []string{"--name", "63"}},
		"name empty":       {[]string{"--memory", "1GiB", "--name", ""}, []string{"--name", "empty"}},
		"name a path":      {flags("--memory 1GiB --name ../../etc"), []string{"--name"}},
		"profile unknown":  {flags("--profile small"), []string{"profile", `"small"`}},
		"unknown flag":     {flags("--memory 1GiB --colour red"), []string{"--colour", "--help"}},
		"misspelt flag":    {flags("--mem 1GiB"), []string{"--mem", "--help"}},
		"several errors": {flags("--memory lots --percent 500 --min-enforcement x --name -"),
			[]string{"--memory", "--percent", "--min-enforcement", "--name"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			m := m.in(t)
			r := call(t, m.env, program("kerf"), append(append([]string{"--run-dir", m.dir, "run"}, tt.flags...), "--",
				"sh", "-c", "echo ran")...)
			wantError(t, r, 125, tt.want...)
			if r.out != "" {
				t.Errorf("the program ran, or something was printed: %q", r.out)
			}
		})
	}
	wantError(t, m.kerf("run", "--memory", "1GiB"), 125, "command", "missing")
	wantError(t, m.kerf("run", "--memory", "1GiB", "--"), 125, "command", "missing")
	if s := m.state(); len(s.Grants) != 0 {
		t.Errorf("bad input left grants: %+v", s.Grants)
	}
	checkInvariants(t, m)
}

// The other commands of kerf refuse what they cannot use, too.
func TestBadCommands(t *testing.T) {
	t.Parallel()
	m := newMachine(t, setup{hardware: "t4x4"})
	tests := map[string]struct {
		args string
		code int
		want []string
	}{
		"output unknown":       {"status -o xml", 2, []string{"--output", `"xml"`, "json"}},
		"wait unknown":         {"status --wait happy", 2, []string{"--wait", `"happy"`, "grants=N"}},
		"wait negative":        {"status --wait grants=-1", 2, []string{"--wait", "negative"}},
		"wait no number":       {"status --wait grants=", 2, []string{"--wait", "grants=0"}},
		"wait huge":            {"status --wait grants=99999999999999999999", 2, []string{"--wait"}},
		"wait empty":           {"status --wait=", 2, []string{"--wait", "empty"}},
		"timeout zero":         {"status --wait ready --timeout 0s", 2, []string{"--timeout"}},
		"timeout negative":     {"status --wait ready --timeout -1s", 2, []string{"--timeout"}},
		"timeout no time":      {"status --wait ready --timeout soon", 2, []string{"--timeout", "soon"}},
		"timeout alone":        {"status --timeout 1s", 2, []string{"--timeout", "--wait"}},
		"watch and wait":       {"status --watch --wait ready", 2, []string{"--wait", "--watch"}},
		"timeout passes":       {"status --wait grants=7 --timeout 5s", 1, []string{"grants=7", "grants=0"}},
		"status, an argument":  {"status now", 2, []string{"now"}},
		"metrics, an argument": {"metrics now", 2, []string{"now"}},
		"unknown command":      {"stop", 2, []string{`"stop"`}},
		"unknown flag":         {"--colour status", 2, []string{"--colour"}},
		"doctor output":        {"doctor -o xml", 2, []string{"--output"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) { wantError(t, m.in(t).kerf(flags(tt.args)...), tt.code, tt.want...) })
	}
	for name, dir := range map[string]string{"absent": m.base + "/none", "a file": m.sim + "/gpusim.pid",
		"too long": "/tmp/" + strings.Repeat("d", 120)} {
		t.Run("dir "+name, func(t *testing.T) {
			wantError(t, call(t, m.env, program("kerf"), "--run-dir", dir, "status"), 1, dir)
		})
	}
}

// gpuload and gpusim are tools for people and scripts: what they are given wrong they say.
func TestBadToolFlags(t *testing.T) {
	t.Parallel()
	m := newMachine(t, setup{hardware: "t4x4", noAgent: true})
	for args, want := range map[string]string{
		"--alloc": "--alloc", "--alloc 0": "--alloc", "--alloc -1": "--alloc", "--alloc 1TiB": "--alloc",
		"--alloc 99999999999999999999": "--alloc",
		"--alloc 1GiB --step 0":        "--step", "--step 1GiB": "--step", "--alloc 1GiB --api cuda": "--api",
		"--hold 5": "--hold", "--hold -5s": "--hold",
		"--fork -1": "--fork", "--fork 1025": "--fork", "--gpu x": "--gpu", "--gpu 64": "--gpu", "--colour": "--colour",
		"now":                       "now",
		"--alloc 1GiB --alloc 2GiB": "twice",
	} {
		if r := call(t, m.env, program("gpuload"), flags(args)...); r.code != 2 || !strings.Contains(r.err, want) ||
			r.out != "" {
			t.Errorf("gpuload %s: %v", args, r)
		}
	}
	for args, want := range map[string]string{
		"": "gpu", "gpu=0": "gpu", "gpu=4 lost=true": "gpu", "gpu=-1 lost=true": "gpu", "gpu=x lost=true": "gpu",
		"util=5":         "gpu",
		"gpu=0 lost=yes": "lost", "gpu=0 xid=0": "xid", "gpu=0 xid=-1": "xid", "gpu=0 xid=x": "xid",
		"gpu=0 util=101":  "util",
		"gpu=0 latency=5": "latency", "gpu=0 latency=-5s": "latency", "gpu=0 colour=red": "colour",
		"gpu=0 gpu=1 lost=true": "twice", "lost": "lost",
	} {
		if r := m.gpusim("set", flags(args)...); r.code == 0 || !strings.Contains(r.err, want) {
			t.Errorf("gpusim set %s: %v", args, r)
		}
	}
	for args, want := range map[string]string{
		"--machine dgx1 --driver r615": "dgx1",
		"--machine t4x4 --driver r1":   "r1",
		"--driver r615 --machine=":     "machine",
		"--machine t4x4 --colour":      "colour",
		"--machine t4x4 --driver r615": "runs", // one is there
	} {
		if r := m.gpusim("start", flags(args)...); r.code == 0 || !strings.Contains(r.err, want) {
			t.Errorf("gpusim start %s: %v, want %q", args, r, want)
		}
	}
	fresh := m.base + "/f"
	if r := call(t, m.env, program("gpusim"), "start", "--machine", "dgx1", "--driver", "r615", "--dir",
		fresh); r.code == 0 {
		t.Errorf("gpusim start of an unknown machine: %v", r)
	}
	if _, err := os.Stat(filepath.Join(fresh, "dev")); err == nil {
		t.Error("a refused start left devices")
	}
	for _, command := range []string{"stop", "processes", "limits", "set"} {
		args := []string{command, "--run-dir", m.base + "/none"}
		if command == "set" {
			args = append(args, "gpu=0", "lost=true")
		}
		if r := call(t, m.env, program("gpusim"), args...); command != "stop" && r.code == 0 {
			t.Errorf("gpusim %s without a daemon: %v", command, r)
		}
	}
	if len(m.processes()) != 0 || len(m.limits()) != 0 {
		t.Error("bad input changed the driver")
	}
}

// The agent refuses flags and surroundings that it cannot use, at once and by name.
func TestBadAgentFlags(t *testing.T) {
	t.Parallel()
	m := newMachine(t, setup{hardware: "t4x4", noAgent: true})
	open := m.base + "/open"
	if err := os.Mkdir(open, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(open, 0o777); err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct {
		args []string
		env  string
		want []string
	}{
		"dir empty": {args: []string{"--run-dir", ""}, want: []string{"--run-dir", "empty"}},
		"dir too long": {args: []string{"--run-dir", "/tmp/" + strings.Repeat("d", 110)},
			want: []string{"--run-dir", "107"}},
		"dir a file":       {args: []string{"--dir", m.sim + "/gpusim.pid"}, want: []string{"--dir"}},
		"dir others write": {args: []string{"--run-dir", open}, want: []string{"--run-dir", "mode"}},
		"log level": {args: []string{"--log-level", "loud"},
			want: []string{"--log-level", `"loud"`, "debug"}},
		"http no address": {args: []string{"--metrics-bind-address", "nowhere"},
			want: []string{"--metrics-bind-address", "nowhere"}},
		"label without =":     {args: []string{"--node-label", "pool"}, want: []string{"node-label"}},
		"unknown flag":        {args: []string{"--colour", "red"}, want: []string{"--colour"}},
		"an argument":         {args: []string{"start"}, want: []string{"start"}},
		"failpoint malformed": {env: "KERF_FAILPOINTS=arm-after-caps", want: []string{"KERF_FAILPOINTS"}},
		"failpoint unknown": {env: "KERF_FAILPOINTS=arm-after-lunch=exit",
			want: []string{"KERF_FAILPOINTS", "arm-after-lunch"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			env := append([]string{}, m.env...)
			if tt.env != "" {
				env = append(env, tt.env)
			}
			r := call(t, env, program("kerf-agent"), append([]string{"--run-dir", m.base + "/x"}, tt.args...)...)
			wantError(t, r, 1, tt.want...)
		})
	}
	if _, err := os.Stat(m.base + "/x/kerf.sock"); err == nil {
		t.Error("a refused agent left a socket")
	}
}

// A directory that another user owns, or can replace, is not taken: its owner could put other sockets and records
// there.
func TestDirectoriesOfOthers(t *testing.T) {
	t.Parallel()
	m := newMachine(t, setup{hardware: "t4x4", noAgent: true})
	for name, c := range map[string]struct{ flag, make, chown string }{
		"--run-dir":              {"--run-dir", "own", "own"},
		"--run-dir in another's": {"--run-dir", "above/dir", "above"},
		"--state-dir":            {"--state-dir", "state", "state"},
		"--state-dir in another": {"--state-dir", "higher/state", "higher"},
	} {
		t.Run(name, func(t *testing.T) {
			base := t.TempDir()
			if err := errors.Join(os.MkdirAll(base+"/"+c.make, 0o755),
				os.Chown(base+"/"+c.chown, 54321, -1)); err != nil {
				t.Fatal(err)
			}
			flags := map[string]string{"--run-dir": base + "/dir", "--state-dir": base + "/state-dir"}
			flags[c.flag] = base + "/" + c.make
			r := call(t, m.env, program("kerf-agent"), "--run-dir", flags["--run-dir"], "--state-dir",
				flags["--state-dir"])
			if r.code != 1 || !strings.Contains(r.err, c.flag) || !strings.Contains(r.err, "owned by another user") {
				t.Errorf("agent: %v", r)
			}
		})
	}
}
