// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package machine_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kerf-gpu/kerf/internal/quiesce"
	"github.com/kerf-gpu/kerf/sharing"
)

var updateGolden = flag.Bool("update", false, "rewrite testdata; commit the difference only if you understand it")

// monitored is a machine with a monitor.
type monitored struct {
	*machine
	p       *proc
	address string
}

// monitor starts kerf-monitor and waits until it serves.
func (m *machine) monitor(args ...string) *monitored {
	m.t.Helper()
	cmd := exec.Command(program("kerf-monitor"),
		append([]string{"--run-dir", m.dir, "--metrics-bind-address", "127.0.0.1:0", "--interval", "200ms",
			"--node-name", "node"},
			args...)...)
	cmd.Env = m.env
	out := &monitored{machine: m, p: begin(m.t, m.work, "monitor", cmd)}
	at := regexp.MustCompile(`msg="started serving metrics" address=(\S+)`)
	eventually(m.t, "address of the monitor", func() error {
		found := at.FindStringSubmatch(out.p.stderr())
		if found == nil {
			return errors.New(tail(out.p.stderr()))
		}
		out.address = found[1]
		return nil
	})
	return out
}

// scrape returns the samples whose line one of the prefixes begins, sorted.
func (o *monitored) scrape(prefixes ...string) []string {
	o.t.Helper()
	c := http.Client{Timeout: 10 * time.Second}
	r, err := c.Get("http://" + o.address + "/metrics")
	if err != nil {
		return []string{err.Error()}
	}
	defer r.Body.Close()
	data, err := io.ReadAll(r.Body)
	if err != nil {
		o.t.Fatal(err)
	}
	var out []string
	for line := range strings.Lines(string(data)) {
		if slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(line, p) }) {
			out = append(out, strings.TrimSpace(line))
		}
	}
	return out
}

// relaxed looks whether the monitor has its own name, and all its threads are woken together.
func (o *monitored) relaxed() {
	o.t.Helper()
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", o.p.pid()))
	if err != nil || len(threads) < 3 {
		o.t.Fatalf("threads %q, %v", threads, err)
	}
	for _, dir := range threads {
		slack, err := os.ReadFile(filepath.Join("/proc", filepath.Base(dir), "timerslack_ns"))
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
			continue // it has ended
		}
		if err != nil || string(slack) != "1000000\n" {
			o.t.Errorf("the slack of thread %s is %q, %v", filepath.Base(dir), slack, err)
		}
	}
	if name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", o.p.pid())); err != nil ||
		string(name) != "kerf-monitor\n" {
		o.t.Errorf("it is called %q, %v", name, err)
	}
}

// Two programs share a GPU, one has another GPU whole, and one is unmanaged. Each has its own numbers, and they add up
// to what the simulated driver has. The test compares the exposition as text.
func TestMonitorTellsEachItsOwn(t *testing.T) {
	t.Parallel()
	for _, driver := range []string{"r580", "r615"} {
		t.Run(driver, func(t *testing.T) {
			t.Parallel()
			testMonitor(t, driver)
		})
	}
}

func testMonitor(t *testing.T, driver string) {
	m := newMachine(t, setup{driver: driver})
	m.set("gpu=0", "util=60")
	for name, size := range map[string]string{"a": "4GiB", "b": "7GiB"} {
		m.run(flags("--memory 10GiB --name "+name+" --gpu-uuid "+m.uuid(0)),
			load("--alloc "+size+" --hold 1h")).granted()
	}
	m.run(flags("--gpus 1 --name w --gpu-uuid "+m.uuid(1)), load("--alloc 20GiB --hold 1h")).granted()
	stranger := exec.Command(program("gpuload"), load("--alloc 1GiB --hold 1h")[1:]...)
	stranger.Env = m.env
	begin(t, m.work, "unmanaged", stranger)
	o := m.monitor()
	o.relaxed()
	want, err := os.ReadFile(filepath.Join("testdata", "monitor.txt"))
	if err != nil && !*updateGolden {
		t.Fatal(err)
	}
	prefixes := []string{
		"kerf_gpu_memory_used_bytes", "kerf_gpu_up", "kerf_usage_memory_bytes", "kerf_usage_processes",
		"kerf_usage_memory_guaranteed_bytes", "kerf_gpu_memory_excess",
		"DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_POWER_USAGE", "DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_PROF_SM_ACTIVE",
		"kerf_monitor_agent_up",
	}
	of := regexp.MustCompile(`gpu="[2-7]"`) // idle ones
	scrub := strings.NewReplacer(m.uuid(0), "UUID-0", m.uuid(1), "UUID-1")
	version := regexp.MustCompile(`DCGM_FI_DRIVER_VERSION="[0-9.]*"`)
	text := func() string {
		lines := slices.DeleteFunc(o.scrape(prefixes...), of.MatchString)
		for i, l := range lines {
			lines[i] = version.ReplaceAllString(scrub.Replace(l), `DCGM_FI_DRIVER_VERSION="V"`)
		}
		slices.Sort(lines) // by UUID they are in another order on each machine
		return strings.Join(lines, "\n") + "\n"
	}
	if *updateGolden {
		eventually(t, "a full scrape", func() error {
			if now := text(); strings.Count(now, "kerf_usage_memory_guaranteed_bytes") != 3 ||
				!strings.Contains(now, "DCGM_FI_PROF") {
				return errors.New(now)
			}
			return nil
		})
		if err := os.WriteFile(filepath.Join("testdata", "monitor.txt"), []byte(text()), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	eventually(t, "the numbers that the driver got", func() error {
		if d := cmp.Diff(string(want), text()); d != "" {
			return fmt.Errorf("%s\nmonitor's log:\n%s", d, tail(o.p.stderr()))
		}
		return nil
	})
	eventually(t, "the report of the unmanaged process", func() error {
		if text := o.p.stderr(); !strings.Contains(text, "found unmanaged process on GPU") {
			return errors.New(tail(text))
		}
		return nil
	})
	o.inTheTerminal()
	o.toItsOwn()
	o.faults()
}

// toItsOwn asks at the socket that pods are given, as a grant's program and as one without a grant.
func (o *monitored) toItsOwn() {
	o.t.Helper()
	self, err := os.Executable()
	if err != nil {
		o.t.Fatal(err)
	}
	socket := filepath.Join(o.dir, "pods", "telemetry.sock")
	eventually(o.t, "a program's own numbers", func() error {
		r := o.run(flags("--memory 1GiB --name own --gpu-uuid "+o.uuid(0)),
			[]string{"sh", "-c", "sleep 1; exec env " + helperEnv + "=1 " + self + " " + helperAsk + " " +
				socket}).wait()
		if r.code != 0 || !strings.HasPrefix(r.out, "200\n") || !strings.Contains(strings.ReplaceAll(r.out, " ", ""),
			`"grant":"own"`) {
			return fmt.Errorf("%v", r)
		}
		if strings.Contains(r.out, "unmanaged") || strings.Count(r.out, "grantId") != 1 {
			o.t.Errorf("it sees others: %v", r)
		}
		return nil
	})
	if r := call(o.t, append(o.env, helperEnv+"=1"), self, helperAsk, socket); !strings.HasPrefix(r.out, "403\n") {
		o.t.Errorf("who has no grant: %v", r)
	}
}

// inTheTerminal looks with kerf top.
func (o *monitored) inTheTerminal() {
	o.t.Helper()
	r := o.kerf("top", "--once", "--sort", "memory")
	_, rows, _ := strings.Cut(r.out, "LEVEL\n")
	var owners []string
	for line := range strings.Lines(rows) {
		if f := strings.Fields(line); len(f) == 10 {
			owners = append(owners, f[1]+" "+f[2])
		}
	}
	if d := cmp.Diff([]string{"w 20.4GiB", "b 7.4GiB", "a 4.4GiB", "(unmanaged) 1.4GiB", "(unattributed) 0B"},
		owners); d != "" || r.code != 0 {
		o.t.Errorf("kerf top: %v\n%s", r, d)
	}
	inStatus := column(o.kerf("status", "-o", "table").out, "ALLOCATABLE")
	if inTop := column(r.out, "ALLOCATABLE"); len(inTop) == 0 || !slices.Equal(inTop, inStatus) {
		o.t.Errorf("memory of the GPUs: %q in kerf top, %q in kerf status", inTop, inStatus)
	}
	if r := o.kerf("top", "--once", "-o", "json", "--grant", "a"); r.code != 0 ||
		!strings.Contains(r.out, `"grant":"a"`) || strings.Contains(r.out, `"owner":"unmanaged"`) {
		o.t.Errorf("kerf top of one grant: %v", r)
	}
	if r := o.kerf("top", "--sort", "size", "--interval", "1ms"); r.code == 0 || !strings.Contains(r.err, "--sort") ||
		!strings.Contains(r.err, "--interval") {
		o.t.Errorf("kerf top with errors: %v", r)
	}
}

// column returns the values of a column in the first table of an output that has it.
func column(out, name string) (values []string) {
	at := -1
	for line := range strings.Lines(out) {
		line = strings.TrimRight(line, "\n")
		switch {
		case at < 0:
			at = strings.Index(line, name)
		case len(line) <= at:
			return values
		default:
			values = append(values, strings.Fields(line[at:])[0])
		}
	}
	return values
}

// faults lets the agent, a GPU, DCGM's library and the monitor fail.
func (o *monitored) faults() {
	o.t.Helper()
	seen := func(line string) func() error {
		return func() error {
			name, _, _ := strings.Cut(line, " ")
			if got := o.scrape(name); !slices.Contains(got, line) {
				return fmt.Errorf("%q, want %s", got, line)
			}
			return nil
		}
	}
	o.set("gpu=1", "lost=true")
	eventually(o.t, "a lost GPU", seen(`kerf_gpu_up{gpu="1",gpu_uuid="`+o.uuid(1)+`"} 0`))
	if got := o.scrape(`kerf_usage_memory_bytes`); slices.ContainsFunc(got,
		func(l string) bool { return strings.Contains(l, `gpu="1"`) }) {
		o.t.Errorf("a lost GPU has numbers: %q", got)
	}
	o.set("gpu=1", "lost=false")
	eventually(o.t, "the GPU is back", seen(`kerf_gpu_up{gpu="1",gpu_uuid="`+o.uuid(1)+`"} 1`))
	o.killAgent()
	eventually(o.t, "the agent is away", seen("kerf_monitor_agent_up 0"))
	eventually(o.t, "its grants are as they were", func() error {
		if n := len(o.scrape(`kerf_usage_memory_guaranteed_bytes`)); n != 3 {
			return fmt.Errorf("%d grants", n)
		}
		return nil
	})
	o.startAgent()
	o.ready()
	eventually(o.t, "the agent is back", seen("kerf_monitor_agent_up 1"))
	// A SIGSEGV inside DCGM's library ends the monitor, and no grant.
	o.noGrantsBut(3)
	before := o.state().Grants
	if err := os.WriteFile(filepath.Join(o.sim, "dcgm.crash"), nil, 0o600); err != nil {
		o.t.Fatal(err)
	}
	if r := o.p.wait(); !strings.Contains(r.err, "SIGSEGV") && r.signal != syscall.SIGSEGV {
		o.t.Errorf("it ended otherwise: %v", r)
	}
	if after := o.state().Grants; len(after) != len(before) || len(after) != 3 {
		o.t.Errorf("%d grants before, %d after", len(before), len(after))
	}
	if r := o.run(flags("--memory 1GiB"), load("--alloc 100MiB")).wait(); r.code != 0 {
		o.t.Errorf("a new grant: %v", r)
	}
}

// Two with MIG instances of one GPU: each has its own memory, and with DCGM its activity, by the instance.
func TestMonitorTellsInstances(t *testing.T) {
	t.Parallel()
	m := onDemand(t, "h200x8", "1s")
	m.run(flags("--mig 1g --name one"), load("--alloc 1GiB --hold 1h --launch plain --kernel 10ms --queue 4")).loads(1)
	m.run(flags("--mig 3g --name three"), load("--alloc 5GiB --hold 1h")).loads(1)
	o := m.monitor("--dcgm-engine", "embedded")
	line := regexp.MustCompile(
		`attribution="instance",.*gpu="0",.*grant="(\w+)",instance_profile="(\dg)\.\w+",instance_start="\d",.* (\S+)$`)
	values := func(series string) (map[string]float64, error) {
		got := map[string]float64{}
		for _, l := range o.scrape(series) {
			if f := line.FindStringSubmatch(l); f != nil {
				v, err := strconv.ParseFloat(f[3], 64)
				if err != nil {
					return nil, err
				}
				got[f[1]+" "+f[2]] = v
			}
		}
		if len(got) != 2 {
			return nil, fmt.Errorf("%q", o.scrape(series))
		}
		return got, nil
	}
	eventually(t, "each instance's memory and activity", func() error {
		memory, err1 := values("kerf_usage_memory_bytes")
		sm, err2 := values("kerf_usage_sm_ratio")
		if err := errors.Join(err1, err2); err != nil {
			return err
		}
		// What a program allocates, and its context; the one that launches has its kernel, too.
		if one, three := memory["one 1g"], memory["three 3g"]; three-one < 3.9*float64(gib) ||
			three-one > 4.1*float64(gib) || one < float64(gib) {
			return fmt.Errorf("memory %v", memory)
		}
		// The busy one works nearly all the time on a seventh of the GPU.
		if one := sm["one 1g"]; one < 0.07 || one > 1.0/7+0.001 || sm["three 3g"] != 0 {
			return fmt.Errorf("activity %v", sm)
		}
		return nil
	})
}

// source waits until the monitor's values come from there.
func (o *monitored) source(want string) {
	o.t.Helper()
	eventually(o.t, want+" in use", func() error {
		if got := o.scrape("kerf_monitor_info"); len(got) != 1 || !strings.Contains(got[0], `source="`+want+`"`) {
			return fmt.Errorf("%q: %s", got, tail(o.p.stderr()))
		}
		return nil
	})
}

// Who changes the MIG instances of a GPU gets it for itself: the monitor ends DCGM, reads the others through NVML, and
// goes on as before when it gets the GPU back.
func TestMonitorLetsGoOfAGPU(t *testing.T) {
	t.Parallel()
	m := newMachine(t, setup{})
	o := m.monitor()
	o.source("dcgm")
	up := func(want int) {
		t.Helper()
		eventually(t, fmt.Sprintf("%d GPUs that tell", want), func() error {
			lines := o.scrape("kerf_gpu_up")
			n := 0
			for _, l := range lines {
				if strings.HasSuffix(l, " 1") {
					n++
				}
			}
			if n != want || len(lines) != 8 {
				return fmt.Errorf("%q: %s", lines, tail(o.p.stderr()))
			}
			return nil
		})
	}
	up(8)
	ctx, cancel := context.WithTimeout(t.Context(), *patience)
	defer cancel()
	release, err := quiesce.Dir(filepath.Join(m.dir, "quiet")).Quiesce(ctx, sharing.GPUID(m.uuid(0)))
	if err != nil {
		t.Fatal(err)
	}
	up(7)
	o.source("nvml")
	release()
	up(8)
	o.source("dcgm")
}

// The monitor uses a host engine while it runs. While it is away the monitor has NVML alone, and it finds a new one.
func TestMonitorWithAHostEngine(t *testing.T) {
	t.Parallel()
	m := newMachine(t, setup{})
	// A reserved address, which is no connection's source: at another one the port could be taken while the engine is
	// away.
	e := hostEngine(t, "127.0.0.2:0")
	o := m.monitor("--dcgm-engine", e.address)
	o.source("dcgm")
	eventually(t, "all GPUs in what the engine tells", func() error {
		if got := o.scrape("DCGM_FI_PROF_SM_ACTIVE"); len(got) != 8 ||
			!strings.Contains(o.p.stderr(), "engine="+e.address) {
			return fmt.Errorf("%q: %s", got, tail(o.p.stderr()))
		}
		return nil
	})
	e.kill()
	o.source("nvml")
	if got := o.scrape("DCGM_FI_PROF_SM_ACTIVE"); len(got) != 0 || len(o.scrape("DCGM_FI_DEV_FB_USED")) != 8 {
		t.Errorf("without an engine: %q", got)
	}
	hostEngine(t, e.address)
	o.source("dcgm")
}

// engine stands for nv-hostengine: the simulated library connects to it, and tells by itself while it is there.
type engine struct {
	address string
	kill    func()
}

func hostEngine(t *testing.T, address string) engine {
	t.Helper()
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var held []net.Conn
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			held = append(held, c)
			mu.Unlock()
		}
	}()
	kill := sync.OnceFunc(func() {
		_ = l.Close()
		<-done
		for _, c := range held {
			_ = c.Close()
		}
	})
	t.Cleanup(kill)
	return engine{l.Addr().String(), kill}
}
