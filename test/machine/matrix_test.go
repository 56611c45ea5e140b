// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package machine_test

import (
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// matrixFile is where the matrix is written; without it the test is left out.
var matrixFile = flag.String("matrix", "", "run the matrix of enforcement, and write it to this file")

// matrixRows chooses rows by their names, for a look at some; nothing is written then.
var matrixRows = flag.String("matrix-rows", "", "run only the rows of the matrix whose names match, and print them")

// matrixCap is what each program is granted.
const matrixCap = 2 * gib

// backend is one way of holding shares, as a machine of its own.
type backend struct {
	name, level, driver string
	make                func(t *testing.T, hardware, driver string) *machine
}

// Rows run on the first of these machines, but for those that need another GPU.
const usualHardware, switchedHardware = "t4x4", "h100x8"

func backends() []backend {
	const kill = ", overCap: kill"
	return []backend{
		{"driver", "driver", "r615", func(t *testing.T, hw, driver string) *machine {
			return newMachine(t, setup{hardware: hw, driver: driver})
		}},
		{"mps", "client", "r580", func(t *testing.T, hw, driver string) *machine {
			return newMPSOn(t, hw, driver, "driver, mps, reactive", kill)
		}},
		{"libkerf", "client", "r580", func(t *testing.T, hw, driver string) *machine {
			return newPooled(t, hw, driver, "driver, libkerf, reactive", kill)
		}},
		{"reactive", "reactive", "r580", func(t *testing.T, hw, driver string) *machine {
			return newPooled(t, hw, driver, "driver, reactive", kill)
		}},
	}
}

// attempt is a row of the matrix: what a program does to get more than its cap.
type attempt struct {
	name, what string
	// script is run by sh; %LOAD is gpuload with JSON output, %OTHER the index of a GPU that is not its own.
	script string
	// hardware is the machine that it needs, and driver the version; empty for the usual ones.
	hardware, driver string
	// excuse is why a backend is known not to charge this, by its name.
	excuse map[string]string
}

// tries are the memory families, then the attacks.
func tries() (families, attacks []attempt) {
	// What a context takes is known once a program was seen with one.
	families = append(families, attempt{name: "first", what: "`gpuload --api linear`, as the first program on a GPU since the agent started", script: "exec %LOAD --alloc 4GiB --step 64MiB --hold 10s"})
	notCharged := "the driver's limit does not count managed memory, by NVIDIA's documentation"
	for _, api := range []string{
		"linear", "async", "vmm", "pitched", "managed", "pool", "array", "graph", "module", "heap", "context", "v1", "batch", "library", "printf", "green", "sparse", "mipmap", "external", "external-mipmap", "multicast", "multicast-v2", "checkpoint", "graphics", "gl", "gl-image", "egl", "vdpau", "gl-array", "gl-old", "egl-consumer", "egl-producer", "gl-context", "vdpau-context",
	} {
		a := attempt{name: api, what: "`gpuload --api " + api + "`", script: "exec %LOAD --api " + api + " --alloc 4GiB --step 64MiB --hold 10s"}
		if api == "managed" || api == "batch" {
			a.excuse = map[string]string{"driver": notCharged}
		}
		if api == "checkpoint" { // each piece is a process with a context
			a.script = "exec %LOAD --api checkpoint --alloc 4GiB --step 512MiB --hold 10s"
		}
		if api == "multicast" || api == "multicast-v2" { // only such GPUs have it
			a.hardware = switchedHardware
		}
		if api == "multicast-v2" { // and the second form the newest driver alone, here without its own limits
			a.driver, a.what = "r615", a.what+" (of CUDA 13.1; on r615, for all but the first backend one whose limits do not work)"
		}
		families = append(families, a)
	}
	alloc := "--alloc 4GiB --step 64MiB --hold 10s"
	// Where there is no library, nothing is written over.
	counters := "U=$(cat /etc/ld.so.preload 2>/dev/null) || exec %LOAD " + alloc + "; U=${U%/*}/usage; [ -w \"$U\" ] || exec %LOAD " + alloc + "; "
	held := "%LOAD --alloc 1GiB --hold 15s & sleep 0.5; "
	return families, []attempt{
		{name: "two processes", what: "two processes that take three quarters of the cap each", script: "%LOAD --alloc 1536MiB --step 64MiB --hold 10s & exec %LOAD --alloc 1536MiB --step 64MiB --hold 10s"},
		{name: "eight at once", what: "eight forked workers that race for the cap", script: "exec %LOAD --fork 8 --alloc 1GiB --step 16MiB --hold 10s"},
		{name: "contexts at once", what: "thirty-two programs that start at once, each with a context and 2 MiB", script: "for i in $(seq 32); do %LOAD --alloc 2MiB --hold 15s & done; wait"},
		{name: "no preload", what: "the loader's file unmounted and LD_PRELOAD emptied, as a static program would have it", script: "umount /etc/ld.so.preload 2>/dev/null; unset LD_PRELOAD; exec %LOAD " + alloc},
		{name: "deepbind", what: "libcuda.so.1 opened with RTLD_DEEPBIND", script: "exec %LOAD --driver deepbind " + alloc},
		{name: "name space", what: "libcuda.so.1 opened in a name space of its own, by dlmopen", script: "exec %LOAD --driver namespace " + alloc},
		{name: "deepbind apart", what: "a library that was opened with RTLD_DEEPBIND, and so has the C library's own dlsym first", script: "exec %LOAD --driver apart " + alloc},
		{name: "constructor", what: "a library that was opened with RTLD_DEEPBIND, and looks for libcuda.so.1 in its constructor", script: "exec %LOAD --driver early " + alloc},
		{name: "name space apart", what: "a library in a name space of its own, by dlmopen, that looks for libcuda.so.1", script: "exec %LOAD --driver elsewhere " + alloc},
		{name: "no pipe", what: "CUDA_MPS_PIPE_DIRECTORY set to a directory that does not exist", script: "export CUDA_MPS_PIPE_DIRECTORY=/nowhere; exec %LOAD " + alloc},
		{name: "foreign limit", what: "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT naming a GPU that is not visible, which drops the limits of MPS", script: "export CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=7=1G; exec %LOAD " + alloc},
		{name: "larger limit", what: "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT raised to 8 GiB", script: "export CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=8G; exec %LOAD " + alloc},
		{name: "control pipe", what: "a limit of 8 GiB told to the control daemon of MPS, by the client itself", script: control("set_default_device_pinned_mem_limit 0 8G") + "exec %LOAD " + alloc},
		{name: "control quit", what: "the control daemon of MPS told to quit, by the client itself", script: control("quit") + "sleep 0.3; exec %LOAD " + alloc},
		{name: "child cgroup", what: "a cgroup of its own below the grant's, which it moves to", script: `C=$(sed -n s/^0:://p /proc/self/cgroup); M=$(awk '$3=="cgroup2"{print $2; exit}' /proc/mounts); mkdir "$M$C/child" && echo $$ > "$M$C/child/cgroup.procs" || exit 1; exec %LOAD ` + alloc},
		{name: "other GPU", what: "CUDA_VISIBLE_DEVICES naming a GPU that is another's", script: "export CUDA_VISIBLE_DEVICES=%OTHER; exec %LOAD " + alloc},
		{name: "counters cleared", what: "zeros written over the library's counters, again and again", script: counters + "(while :; do dd if=/dev/zero of=$U bs=4096 count=1 conv=notrunc; sleep 0.05; done) >/dev/null 2>&1 & exec %LOAD " + alloc},
		{name: "counters filled", what: "random bytes written over the library's counters beside a program that holds half of the cap, then another program", script: counters + held + "dd if=/dev/urandom of=$U bs=4096 count=64 conv=notrunc 2>/dev/null; exec %LOAD " + alloc},
		{name: "counters cut", what: "the library's counters truncated beside a program that holds half of the cap, then another program", script: counters + held + "truncate -s 0 $U; exec %LOAD " + alloc},
		{name: "killed holder", what: "a program killed with three quarters of the cap, then another", script: "%LOAD --alloc 1536MiB --hold 1h & sleep 0.7; kill -9 $!; sleep 1.2; exec %LOAD " + alloc},
		{name: "fork and exec", what: "a child that takes three quarters, and its parent that becomes another program", script: "%LOAD --alloc 1536MiB --hold 15s & exec sh -c 'exec %LOAD " + alloc + "'"},
	}
}

// control tells the daemon of MPS something, where there is one.
func control(command string) string {
	return `if [ -n "$CUDA_MPS_PIPE_DIRECTORY" ]; then echo "` + command + `" | nvidia-cuda-mps-control; fi; `
}

// TestMatrix runs each way to get memory and each attack against each backend, and writes down what held. A cell that is over
// its cap while Kerf says that it is held fails.
func TestMatrix(t *testing.T) {
	if *matrixFile == "" && *matrixRows == "" {
		t.Skip("needs -matrix FILE (make matrix)")
	}
	rows, err := regexp.Compile(*matrixRows)
	if err != nil {
		t.Fatal(err)
	}
	families, attacks := tries()
	all := backends()
	got := make([]map[string]cell, len(all))
	t.Run("backends", func(t *testing.T) {
		for i, b := range all {
			got[i] = map[string]cell{}
			t.Run(b.name, func(t *testing.T) {
				t.Parallel()
				machines := map[string]*machine{}
				for _, a := range append(append([]attempt{}, families...), attacks...) {
					if !rows.MatchString(a.name) {
						continue
					}
					hw, driver := cmp.Or(a.hardware, usualHardware), cmp.Or(a.driver, b.driver)
					on := machines[hw+driver]
					if on == nil {
						on = b.make(t, hw, driver)
						machines[hw+driver] = on
						if a.name != families[0].name {
							on.try(t, b, families[0])
						}
					}
					s := on.try(t, b, a)
					v := judged(s, a.excuse[b.name])
					if s.took == 0 && s.failed == "" && !s.killed {
						t.Errorf("%s: no program said what it got: %s", a.name, s)
					}
					t.Logf("%s: %s; over by %s; %s", a.name, v, over(s), s)
					if v == silent {
						t.Errorf("%s at level %s is over its cap and shown as held: %s", a.name, b.level, s)
					}
					if s.first != b.level {
						t.Errorf("%s began at level %s, want %s", a.name, s.first, b.level)
					}
					got[i][a.name] = cell{v, over(s)}
				}
			})
		}
	})
	if t.Failed() || *matrixRows != "" {
		return
	}
	if err := os.WriteFile(*matrixFile, []byte(document(all, families, attacks, got)), 0o644); err != nil {
		t.Fatal(err)
	}
}

// try runs one program and watches it until it has ended.
func (m *machine) try(t *testing.T, b backend, a attempt) seen {
	t.Helper()
	m = m.in(t)
	name, before := "m-"+strings.ToLower(strings.ReplaceAll(a.name, " ", "-")), m.killed()
	script := strings.NewReplacer("%LOAD", program("gpuload")+" --json", "%OTHER", m.uuid(3)).Replace(a.script)
	r := m.run(flags("--memory 2GiB --name "+name+" --gpu-uuid "+m.uuid(0)), []string{"sh", "-c", script})
	grant := r.granted()
	context := map[string]uint64{usualHardware: contextT4, switchedHardware: contextH100}[cmp.Or(a.hardware, usualHardware)]
	s := seen{cap: matrixCap, context: context, first: grant.Level, last: grant.Level}
	began := time.Now()
	for r.running() {
		if time.Since(began) > *patience {
			r.end()
			t.Fatalf("%s by %s does not end", a.name, b.name)
		}
		sum := uint64(0)
		for _, p := range m.processes() {
			if p.Cgroup == grant.Cgroup || strings.HasPrefix(p.Cgroup, grant.Cgroup+"/") {
				sum += p.Bytes
			}
		}
		s.peak = max(s.peak, sum)
		state := m.state()
		if g, ok := state.grant(name); ok && sum > s.cap {
			s.last = g.Level
			for _, w := range state.Warnings {
				s.told = s.told || strings.Contains(w, g.ID)
			}
		}
	}
	end := r.wait()
	s.killed = m.killed() > before
	for line := range strings.Lines(end.out) {
		var l loaded
		if json.Unmarshal([]byte(line), &l) == nil {
			s.took += l.Allocated
			if l.Error != nil {
				s.failed = *l.Error
			}
		}
	}
	m.endsWith(grant.Cgroup)
	return s
}

// killed is how many processes the agent has ended so far.
func (m *machine) killed() (n int) {
	m.t.Helper()
	for line := range strings.Lines(m.kerf("metrics").out) {
		if rest, ok := strings.CutPrefix(line, "kerf_watch_kills_total{"); ok {
			one, err := strconv.Atoi(strings.TrimSpace(rest[strings.LastIndex(rest, " ")+1:]))
			if err != nil {
				m.t.Fatalf("metric %q: %v", line, err)
			}
			n += one
		}
	}
	return n
}

// endsWith ends what a run has left in its cgroup, and waits for the end of its grant.
func (m *machine) endsWith(cgroup string) {
	m.t.Helper()
	eventually(m.t, "end of "+cgroup, func() error {
		for _, g := range m.state().Grants {
			if g.Cgroup != cgroup {
				continue
			}
			for _, pid := range g.PIDs {
				_ = syscall.Kill(pid, syscall.SIGKILL) // of ours: it was started by this run; it may have ended
			}
			return fmt.Errorf("grant %s is still there", g.ID)
		}
		return nil
	})
}
