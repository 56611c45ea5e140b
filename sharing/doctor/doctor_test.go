// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kerf-gpu/kerf/internal/containerd"
	"github.com/kerf-gpu/kerf/internal/process"
	"github.com/kerf-gpu/kerf/sharing"
)

// whole is a machine that lacks nothing.
func whole() Facts {
	return Facts{
		Kernel: "6.14.2-amd64", Root: true, PIDSpace: process.InitialPIDSpace, Dir: "/run/kerf",
		Cgroup: Cgroup{V2: "/sys/fs/cgroup", Controllers: []string{"cpu", "dmem", "memory"}},
		Driver: Driver{
			Library: "/usr/lib/libnvidia-ml.so.1", Version: "615.71.09", MemoryLimits: true,
			GPUs: []sharing.GPU{{UUID: "GPU-a", Model: "NVIDIA H100", Memory: 80 * sharing.GiB,
				Reserved: sharing.GiB, Health: sharing.HealthOK}},
			Devices: []string{"nvidia0", "nvidiactl"},
		},
		Agent: Agent{
			Answered: true, Ready: true, DriverVersion: "615.71.09", GPUSettings: sharing.GPUSettingsManage,
			Levels: []sharing.Level{sharing.LevelExclusive, sharing.LevelDriver},
		},
		Group:      Group{Known: true, Exists: true, Member: true},
		MPSControl: "/usr/bin/nvidia-cuda-mps-control", CDISpecs: []string{"/etc/cdi/nvidia.yaml"},
		Runtime: Runtime{Socket: "/run/containerd/containerd.sock", Report: containerd.Report{
			Name: containerd.NameContainerd, Version: "2.4.2", CRI: containerd.Yes, NRI: containerd.Yes,
			CDI:     containerd.Yes,
			CDIDirs: []string{"/etc/cdi", "/var/run/cdi"}, CgroupDriver: containerd.CgroupSystemd,
			DefaultRuntime: "runc",
			Handlers:       []containerd.Handler{{Name: "runc", Binary: "/usr/sbin/runc"}},
		}},
	}
}

// TestPIDNamespace looks at a machine from another pid namespace than its own.
func TestPIDNamespace(t *testing.T) {
	f := whole()
	if c := find(t, Examine(f), "PID namespace"); c.Status != OK {
		t.Errorf("%+v", c)
	}
	f.PIDSpace, f.Agent, f.Driver.MemoryLimits = 4026532000, Agent{Absent: true}, false
	r := Examine(f)
	if c := find(t, r, "PID namespace"); c.Status != Warn || c.Found != "pid:[4026532000]" ||
		!strings.Contains(c.Fix, "hostPID: true") {
		t.Errorf("%+v", c)
	}
	if c := find(t, r, "level reactive"); c.Status == OK || !strings.Contains(c.Found, "see PID namespace") {
		t.Errorf("%+v", c)
	}
	f.PIDSpace = 0
	if c := find(t, Examine(f), "PID namespace"); c.Status != Unknown {
		t.Errorf("%+v", c)
	}
}

func find(t *testing.T, r Report, name string) Check {
	t.Helper()
	i := slices.IndexFunc(r.Checks, func(c Check) bool { return c.Name == name })
	if i < 0 {
		t.Fatalf("no check %q", name)
	}
	return r.Checks[i]
}

func TestNothingMissing(t *testing.T) {
	r := Examine(whole())
	if !r.Enforced || !r.FromAgent {
		t.Errorf("got %+v", r)
	}
	if diff := cmp.Diff([]string{"exclusive", "driver"}, r.Levels); diff != "" {
		t.Error(diff)
	}
	for _, c := range r.Checks {
		if c.Status != OK && !strings.HasPrefix(c.Name, "level ") {
			t.Errorf("%+v", c)
		}
	}
}

// Each lack is found by its own check, has its own remedy, and changes the verdict as it should. The agent is away
// unless the case says otherwise, so that the verdict is the forecast.
func TestEveryLack(t *testing.T) {
	both, one := []string{"exclusive", "driver"}, []string{"exclusive"}
	noAgent := func(f *Facts) { f.Agent = Agent{Absent: true, Problem: "no kerf-agent"} }
	tests := map[string]struct {
		change func(*Facts)
		check  string
		status Status
		text   string // in what was seen, what it means, or its remedy
		levels []string
	}{
		"old kernel": {func(f *Facts) { f.Kernel = "4.18.0-553.el8" }, "kernel", Missing, "at least 5.3",
			both},
		"odd kernel":        {func(f *Facts) { f.Kernel = "linux" }, "kernel", Unknown, "unknown whether", both},
		"no kernel release": {func(f *Facts) { f.Kernel = "" }, "kernel", Unknown, "no kernel release", both},
		"not root":          {func(f *Facts) { f.Root = false }, "root", Warn, "sudo kerf doctor", both},
		"no cgroup v2": {func(f *Facts) { f.Cgroup = Cgroup{Problem: "only v1"} }, "cgroup v2", Missing,
			"systemd.unified_cgroup_hierarchy=1", nil},
		"read-only cgroup v2": {func(f *Facts) {
			f.Cgroup.Unusable, f.Cgroup.Remedy = "read-only file system",
				"remount"
		}, "cgroup v2", Missing,
			"no group can be created: read-only file system | no grants: kerf-agent does not start here | remount",
			nil},
		"agent elsewhere": {func(f *Facts) {
			f.Cgroup.Unusable, f.Agent = "read-only file system",
				Agent{Answered: true, Ready: true, Levels: []sharing.Level{sharing.LevelDriver}}
		}, "cgroup v2", OK, "the agent can create groups", []string{"driver"}},
		"hybrid": {func(f *Facts) { f.Cgroup.V1 = true }, "cgroup v2", OK, "hybrid", both},
		"no dmem": {func(f *Facts) { f.Cgroup.Controllers = []string{} }, "dmem controller", Warn,
			"CONFIG_CGROUP_DMEM", both},
		"controllers unread": {func(f *Facts) { f.Cgroup.Controllers = nil }, "dmem controller", Unknown,
			"cgroup.controllers", both},
		"dmem without v2": {func(f *Facts) { f.Cgroup = Cgroup{} }, "dmem controller", Unknown, "no cgroup v2",
			nil},
		"no library": {func(f *Facts) { f.Driver = Driver{Problem: "no such file"} }, "driver library",
			Missing, "modprobe nvidia", nil},
		"no driver, no version": {func(f *Facts) { f.Driver = Driver{} }, "driver version", Unknown, "driver library",
			nil},
		"no driver, no limits": {func(f *Facts) { f.Driver = Driver{} }, "memory limits", Unknown, "driver library",
			nil},
		"no driver, no gpus": {func(f *Facts) { f.Driver = Driver{} }, "GPUs", Unknown, "driver library", nil},
		"no driver, no mig":  {func(f *Facts) { f.Driver = Driver{} }, "MIG mode", Unknown, "driver library", nil},
		"no driver, no devices": {func(f *Facts) { f.Driver = Driver{} }, "device files", Missing,
			"programs cannot use a GPU", nil},
		"old driver": {func(f *Facts) { f.Driver.MemoryLimits = false }, "memory limits", Missing,
			"driver r615", one},
		"no control device": {func(f *Facts) { f.Driver.Devices = []string{"nvidia0"} }, "device files", Missing,
			"nvidia-modprobe", both},
		"no device files": {func(f *Facts) { f.Driver.Devices = nil }, "device files", Missing, "nvidia-modprobe",
			both},
		"no gpus": {func(f *Facts) { f.Driver.GPUs = nil }, "GPUs", Missing, "lspci", nil},
		"gpus not listed": {func(f *Facts) { f.Driver.GPUs, f.Driver.GPUProblem = nil, "hangs" }, "GPUs", Unknown,
			"hangs", nil},
		"mig not listed": {func(f *Facts) { f.Driver.GPUs, f.Driver.GPUProblem = nil, "hangs" }, "MIG mode",
			Unknown, "did not list its GPUs", nil},
		"a gpu left out": {func(f *Facts) { f.Driver.LeftOut = []string{"GPU 3 is lost"} }, "GPUs", Warn,
			"GPU 3 is lost", both},
		"all gpus left out": {func(f *Facts) { f.Driver.GPUs, f.Driver.LeftOut = nil, []string{"GPU 0 is lost"} },
			"GPUs", Missing, "GPU 0 is lost", nil},
		"gpus unhealthy": {func(f *Facts) { f.Driver.GPUs[0].Health = sharing.HealthLost }, "level driver",
			Missing, "unhealthy", nil},
		"mig on": {func(f *Facts) { f.Driver.GPUs[0].MIG = true }, "MIG mode", Warn, "-mig 0",
			[]string{"hardware"}},
		"agent not there": {func(*Facts) {}, "agent", Missing, "kerf-agent --run-dir /run/kerf", both},
		"agent restarting": {func(f *Facts) { f.Agent = Agent{Problem: "does not listen"} }, "agent", Missing,
			"does not listen", both},
		"agent denied": {func(f *Facts) { f.Agent = Agent{Denied: true, Problem: "no permission"} }, "agent",
			Unknown, "group kerf", both},
		"agent not ready": {func(f *Facts) { f.Agent = Agent{Answered: true, NotReady: []string{"no driver"}} },
			"agent", Warn, "no driver", nil},
		"agent without levels": {func(f *Facts) { f.Agent = Agent{Answered: true, Ready: true} }, "level driver",
			Missing, "no GPU offers it", nil},
		"agent on an old driver": {func(f *Facts) {
			f.Driver.MemoryLimits, f.Agent = false,
				Agent{Answered: true, Ready: true, Levels: []sharing.Level{sharing.LevelExclusive}}
		}, "level driver", Missing, "r615", one},
		"settings of no agent": {func(*Facts) {}, "GPU settings", Unknown, "no agent answers", both},
		"read-only settings": {func(f *Facts) {
			f.Agent = Agent{Answered: true, Ready: true, GPUSettings: "read-only",
				Levels: []sharing.Level{sharing.LevelDriver}}
		}, "GPU settings", Warn,
			"it does not change MIG mode, MIG instances, compute mode, time slice and power limit " +
				"| none if another tool", []string{"driver"}},
		"read-only, mig off": {func(f *Facts) {
			f.Driver.GPUs[0].MIGCapable, f.Agent = true, Agent{Answered: true, Ready: true, GPUSettings: "read-only",
				Levels: []sharing.Level{sharing.LevelDriver}}
		}, "level hardware", Info, noInstance, []string{"driver"}},
		"read-only, mig on": {func(f *Facts) {
			f.Driver.GPUs[0].MIG, f.Agent = true, Agent{Answered: true, Ready: true, GPUSettings: "read-only",
				Levels: []sharing.Level{sharing.LevelDriver}}
		}, "level hardware", Info, noInstance, []string{"driver"}},
		"agent sees more": {func(f *Facts) {
			f.Driver, f.Agent = Driver{}, Agent{Answered: true, Ready: true, DriverVersion: "615.1",
				Levels: []sharing.Level{sharing.LevelDriver}}
		}, "driver library", Warn, "LD_LIBRARY_PATH", []string{"driver"}},
		"agent's driver version": {func(f *Facts) {
			f.Driver, f.Agent = Driver{},
				Agent{Answered: true, DriverVersion: "615.1"}
		}, "driver version", OK, "from the agent", nil},
		"agent's devices": {func(f *Facts) {
			f.Driver, f.Agent = Driver{},
				Agent{Answered: true, DriverVersion: "615.1"}
		}, "device files", Unknown, "--dev-root", nil},
		"groups unread": {func(f *Facts) { f.Group = Group{Problem: "no database"} }, "group kerf", Unknown,
			"no database", both},
		"no group": {func(f *Facts) { f.Group = Group{Known: true} }, "group kerf", Warn, "groupadd",
			both},
		"not a member": {func(f *Facts) { f.Root, f.Group.Member = false, false }, "group kerf", Warn,
			"usermod -aG", both},
		"root need be no member": {func(f *Facts) { f.Group.Member = false }, "group kerf", OK, "exists", both},
		"no mps":                 {func(f *Facts) { f.MPSControl = "" }, "MPS", Warn, "nvidia-cuda-mps", both},
		"no cdi":                 {func(f *Facts) { f.CDISpecs = nil }, "CDI", Warn, "nvidia-ctk cdi generate", both},
		"no runtime": {func(f *Facts) { f.Runtime = Runtime{} }, "container runtime", Info,
			"processes only, no pods", both},
		"runtime denied": {func(f *Facts) { f.Runtime = Runtime{Socket: "/s", Problem: "no permission", Denied: true} },
			"container runtime", Unknown, "sudo kerf doctor", both},
		"runtime silent": {func(f *Facts) { f.Runtime = Runtime{Socket: "/s", Problem: "does not listen"} },
			"container runtime", Unknown, "systemctl status", both},
		"old runtime": {func(f *Facts) { f.Runtime.Report.Version = "1.6.20~ds1" }, "container runtime", Missing,
			"install containerd 2.1", both},
		"runtime without kubelet": {func(f *Facts) {
			f.Runtime.Report = containerd.Report{Name: "containerd", Version: "1.7.30", CRI: containerd.No}
		}, "container runtime", Missing, "disabled_plugins", both},
		"nri off": {func(f *Facts) { f.Runtime.Report.NRI = containerd.No }, "NRI", Missing,
			"disable = false", both},
		"nri unknown": {func(f *Facts) { f.Runtime.Report.NRI = containerd.Unknown }, "NRI", Unknown,
			"does not report", both},
		"runtime's cdi off": {func(f *Facts) { f.Runtime.Report.CDI = containerd.No }, "runtime's CDI", Missing,
			"enable_cdi = true", both},
		"cgroup driver unknown": {func(f *Facts) { f.Runtime.Report.CgroupDriver = "" }, "cgroup driver", Unknown,
			"does not report", both},
		"default unknown": {func(f *Facts) { f.Runtime.Report.DefaultRuntime = "" }, "default runtime", Unknown,
			"unknown whether", both},
		"nvidia by default": {func(f *Facts) {
			f.Runtime.Report.Handlers[0].Binary, f.Runtime.Toolkit.Env = "/usr/bin/nvidia-container-runtime",
				containerd.Yes
		}, "default runtime", Missing, "envvar-when-unprivileged = false", both},
		"nvidia next to": {func(f *Facts) {
			f.Runtime.Report.Handlers = append(f.Runtime.Report.Handlers,
				containerd.Handler{Name: "nvidia", Binary: "nvidia-container-runtime"})
		}, "runtime nvidia", Warn, "RuntimeClass", both},
		"nvidia's runtime takes mounts": {func(f *Facts) {
			f.Runtime.Report.Handlers = append(f.Runtime.Report.Handlers,
				containerd.Handler{Name: "nvidia", Binary: "nvidia-container-runtime"})
			f.Runtime.Toolkit = containerd.Toolkit{Env: containerd.No, Mounts: containerd.Yes}
		}, "NVIDIA's runtime", Warn, "as-volume-mounts = false", both},
		"annotations passed on": {func(f *Facts) { f.Runtime.Report.Handlers[0].PodAnnotations = []string{"*"} },
			"annotations", Missing, "pod_annotations", both},
		"parts unreported": {func(f *Facts) { f.Runtime.Report.Unchecked = []string{"it is silent"} },
			"runtime, unchecked", Unknown, "it is silent", both},
		"no mig instances": {func(*Facts) {}, "level hardware", Info, "no GPU supports MIG mode", both},
		"mig instances wanted": {func(f *Facts) { f.Driver.GPUs[0].MIGCapable = true }, "level hardware", Info,
			"the pool's field migLayouts enables it", both},
		"mig instances": {func(f *Facts) { f.Driver.GPUs[0].MIG = true }, "level hardware", OK, "MIG instances",
			[]string{"hardware"}},
		"mig next to a sound GPU": {func(f *Facts) {
			f.Driver.GPUs = append(f.Driver.GPUs, sharing.GPU{UUID: "GPU-b", MIG: true, Health: sharing.HealthOK})
		}, "level hardware", OK, "MIG instances", []string{"exclusive", "hardware", "driver"}},
		"mig on a lost GPU": {func(f *Facts) {
			f.Driver.GPUs[0].MIG, f.Driver.GPUs[0].Health = true, sharing.HealthLost
		}, "level hardware", Info, "no healthy GPU is in MIG mode", nil},
		"mig, but no cgroup v2": {func(f *Facts) { f.Driver.GPUs[0].MIG, f.Cgroup = true, Cgroup{} }, "level hardware",
			Info, "no cgroup v2", nil},
		"agent cuts none": {func(f *Facts) {
			f.Driver.GPUs[0].MIG, f.Agent = true,
				Agent{Answered: true, Ready: true, Levels: []sharing.Level{sharing.LevelExclusive}}
		}, "level hardware", Info, "no GPU offers it now", one},
		"agent cuts what is not seen": {func(f *Facts) {
			f.Driver, f.Agent = Driver{}, Agent{Answered: true, Ready: true, DriverVersion: "615.1",
				Levels: []sharing.Level{sharing.LevelHardware}}
		}, "level hardware", OK, "offered by the agent", []string{"hardware"}},
		"userspace not needed": {func(*Facts) {}, "level userspace", Info, "level driver is stronger", both},
		"userspace unknown": {func(f *Facts) { f.Driver.MemoryLimits = false }, "level userspace", Info,
			"unknown without an agent: it tests libkerf", one},
		"reactive not needed": {func(*Facts) {}, "level reactive", Info, "level driver is stronger", both},
		"reactive unknown": {func(f *Facts) { f.Driver.MemoryLimits = false }, "level reactive", Info,
			"it tests whether it sees the processes", one},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			f := whole()
			noAgent(&f)
			tt.change(&f)
			r := Examine(f)
			c := find(t, r, tt.check)
			if all := c.Found + " | " + c.Effect + " | " + c.Fix; c.Status != tt.status ||
				!strings.Contains(all, tt.text) {
				t.Errorf("got %+v, want %s with %q", c, tt.status, tt.text)
			}
			if diff := cmp.Diff(append([]string{}, tt.levels...), r.Levels); diff != "" {
				t.Errorf("levels (-want +got):\n%s", diff)
			}
			want := slices.ContainsFunc(tt.levels,
				func(l string) bool { return slices.Contains([]string{"driver", "exclusive", "hardware"}, l) })
			if r.Enforced != want {
				t.Errorf("enforced %t, want %t", r.Enforced, want)
			}
			for _, c := range r.Checks {
				if c.Name == "" || c.Found == "" || c.Effect == "" || strings.ContainsAny(c.Found+c.Effect+c.Fix,
					"\n\t") {
					t.Errorf("check without its words: %+v", c)
				}
				if c.Cause == "" {
					continue
				}
				if cause := find(t, r, c.Cause); cause.Status == OK || cause.Status == Info || cause.Cause != "" {
					t.Errorf("%+v is explained by %+v, which has no problem", c, cause)
				}
			}
		})
	}
}

// What the agent says of level reactive goes before any guess.
func TestReactiveByTheAgent(t *testing.T) {
	for name, tt := range map[string]struct {
		levels   []sharing.Level
		status   Status
		text     string
		backends []Backend
	}{
		"offered":    {[]sharing.Level{sharing.LevelExclusive, sharing.LevelReactive}, OK, "offered by the agent", nil},
		"not listed": {[]sharing.Level{sharing.LevelExclusive, sharing.LevelNone}, Info, "does not list it", nil},
		"stronger": {[]sharing.Level{sharing.LevelExclusive, sharing.LevelDriver}, Info, "level driver is stronger",
			nil},
		"cannot": {[]sharing.Level{sharing.LevelExclusive}, Info, "reactive not supported on GPU 1: no list",
			[]Backend{{"reactive", sharing.LevelReactive, true, false, "not supported on GPU 1: no list"}}},
	} {
		t.Run(name, func(t *testing.T) {
			f := whole()
			f.Agent.Levels, f.Agent.Backends = tt.levels, tt.backends
			r := Examine(f)
			if c := find(t, r, "level reactive"); c.Status != tt.status || !strings.Contains(c.Found, tt.text) {
				t.Errorf("got %+v, want %s with %q", c, tt.status, tt.text)
			}
			if got := slices.Contains(r.Levels, "reactive"); got != (tt.status == OK) {
				t.Errorf("levels %q", r.Levels)
			}
		})
	}
}

func TestKinds(t *testing.T) {
	h100 := sharing.GPU{Model: "H100", Memory: 80 * sharing.GiB}
	got := kinds([]sharing.GPU{h100, {Model: "T4", Memory: 16 * sharing.GiB}, h100})
	if diff := cmp.Diff([]string{"2 x H100 with 80GiB", "1 x T4 with 16GiB"}, got); diff != "" {
		t.Error(diff)
	}
}

func TestKernelVersion(t *testing.T) {
	for release, want := range map[string][3]int{
		"6.14.2-amd64": {6, 14, 1}, "5.3": {5, 3, 1}, "6.8-rc1": {6, 8, 1}, "5.15.0+": {5, 15, 1}, "": {0, 0, 0},
		"6": {0, 0, 0}, "6.": {6, 0, 0},
		"a.b": {0, 0, 0}, "-1.2": {0, 0, 0}, "99999999999999999999.1": {0, 0, 0},
	} {
		major, minor, ok := kernelVersion(release)
		if ok != (want[2] == 1) || ok && (major != want[0] || minor != want[1]) {
			t.Errorf("kernelVersion(%q) = %d, %d, %t", release, major, minor, ok)
		}
	}
}

func FuzzKernelVersion(f *testing.F) {
	for _, s := range []string{"6.14.2-amd64", "", "6.", ".", "5.3\x00"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if major, minor, ok := kernelVersion(s); ok && (major < 0 || minor < 0) {
			t.Errorf("kernelVersion(%q) = %d, %d", s, major, minor)
		}
	})
}
