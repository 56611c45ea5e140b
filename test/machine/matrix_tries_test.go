// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package machine_test

import (
	"cmp"
	"path/filepath"
	"strings"
)

// family is a way to get memory.
type family struct {
	api string
	// note is shown next to its name.
	note string
	// step is how much it takes at a time; empty for the usual.
	step string
	// hardware is the machine that it needs, and driver the version; empty for the usual ones.
	hardware, driver string
	// pool is what the pool says beyond its backends, as YAML; empty for nothing. Such a family is tried without
	// attacks.
	pool string
	// past is why a backend alone does not stop this, by the backend's name: the reactive backend finds it, or warns.
	past map[string]string
}

// attack is what a program does to get more than its cap, whatever way it gets memory.
type attack struct {
	// name is empty for none: the program asks for more, and that is all.
	name, what string
	// script is run by sh. %SETPID runs a program under a given PID. %LOAD is gpuload by a family, in its steps; %ONCE
	// the same in one call; %OTHER the UUID of another GPU, and %OWN of its GPU.
	script string
	// says is how many programs say what they have got; 0 means one.
	says int
	// fine are attacks of many small steps, which families are left out of whose least step is a process.
	fine bool
	// past is why a backend alone does not hold what is taken so, by the backend's name.
	past map[string]string
	// only is the one family that it is made by; empty for all.
	only string
}

// aside begins the name of the cgroup of a program that leaves its grant's, whose name follows: backends are tried side
// by side.
const aside = "kerf-test-aside"

// attempt is an attack by a family.
type attempt struct {
	family
	attack
}

func (a attempt) name() string { return strings.TrimSpace(a.family.name() + " " + a.attack.name) }

// name is what no other family is called.
func (f family) name() string { return strings.TrimSpace(f.api + " " + f.pool) }

// setPID is the program that runs others under a PID of choice, once TestMatrix has built it.
var setPID string

// scriptFor is what sh runs on its own GPU, with another GPU as the target. Both are UUIDs.
func (a attempt) scriptFor(own, other string) string {
	gpuload := program("gpuload") + " --json --api " + a.api
	return strings.NewReplacer(
		"%LOAD", gpuload+" --step "+cmp.Or(a.step, "64MiB"), "%ONCE", gpuload, "%OWN", own, "%OTHER", other, "%SETPID",
		setPID,
	).Replace(a.script)
}

// mayPass is why a backend alone does not hold it; empty where each byte too much is to be refused.
func (a attempt) mayPass(backend string) string {
	return cmp.Or(a.family.past[backend], a.attack.past[backend])
}

// leftOut says whether the attack means nothing by the family.
func (a attempt) leftOut() bool {
	return a.fine && a.step != "" || a.only != "" && a.only != a.api || a.pool != "" && a.attack.name != ""
}

// families are the ways to get memory.
func families() []family {
	const (
		uncounted = "the driver's limit does not count managed memory, by NVIDIA's documentation"
		unasked   = "the library sees no call for this memory"
		beside    = "MPS limits only CUDA allocations of its clients"
		object    = "the memory of the object counts after the next sample"
		another   = "another interface allocates it"
		imported  = "its maker has freed it, and the driver lists it for its importer"
		inFile    = "its maker has released it, and the driver lists memory of a file for no process"
	)
	var all []family
	for _, api := range []string{
		"linear", "async", "vmm", "pitched", "managed", "pool", "array", "graph", "module", "heap", "context",
		"batch", "library", "printf", "green", "sparse", "mipmap", "external", "external-mipmap", "multicast",
		"multicast-v2", "checkpoint", "graphics", "gl", "gl-image", "egl", "vdpau", "gl-array", "gl-old",
		"egl-consumer", "egl-producer", "gl-context", "vdpau-context", "stack", "ipc", "import", "pool-import", "file",
	} {
		f := family{api: api}
		switch api {
		case "managed", "batch":
			f.past = map[string]string{"driver": uncounted, "mps": "the limit of MPS does not count managed memory"}
		case "module", "heap", "library", "printf", "stack":
			f.past = map[string]string{"libkerf": unasked}
		case "external", "external-mipmap":
			f.past = map[string]string{"libkerf": "another interface allocates it, and the library sees the import"}
		case "graphics", "gl", "gl-image", "egl", "vdpau", "gl-array", "gl-old", "egl-consumer":
			f.past = map[string]string{"libkerf": another, "mps": beside}
		case "ipc", "import", "pool-import":
			f.past = map[string]string{"libkerf": imported, "mps": imported}
		case "file":
			f.past = map[string]string{"libkerf": inFile, "mps": inFile}
		case "checkpoint": // each process has a context
			f.step = "512MiB"
		case "multicast": // only such GPUs have it
			f.hardware, f.past = switchedHardware, map[string]string{"libkerf": object}
		case "multicast-v2": // and the second form the newest driver alone, here without its own limits
			f.hardware, f.driver, f.past = switchedHardware, "r615", map[string]string{"libkerf": object}
			f.note = " (of CUDA 13.1; on r615, for all but the first backend one whose limits do not work)"
		}
		all = append(all, f)
	}
	const rejects = "managedMemory: reject"
	return append(all, family{
		api: "managed", pool: rejects, note: " in a pool with `" + rejects + "`",
		past: map[string]string{"driver": "only libkerf rejects managed memory",
			"mps": "only libkerf rejects managed memory"},
	})
}

// plain asks for more than the cap.
func plain() attack { return attack{script: "exec %LOAD --alloc 4GiB --hold 10s"} }

// attacks are the others.
func attacks() []attack {
	const want = "--alloc 4GiB --hold 10s"
	// Where there is no library, nothing is written over.
	counters := "U=$(cat /etc/ld.so.preload 2>/dev/null) || exec %LOAD " + want +
		"; U=${U%/*}/usage; [ -w \"$U\" ] || exec %LOAD " + want + "; "
	held := "%LOAD --alloc 1GiB --hold 15s & sleep 0.5; "
	orphaned := "%LOAD --alloc 1536MiB --loaders 2 --hold 1h & P=$!; sleep 0.7; kill -9 $P; wait $P 2>/dev/null; " +
		"sleep 1.2; "
	hidden := "umount /etc/ld.so.preload 2>/dev/null; unset LD_PRELOAD; "
	const gone = "the grant ends when its cgroup is empty"
	each := map[string]string{"mps": "MPS limits each client, and not their sum"}
	counted := map[string]string{
		"libkerf": "the counters are the program's to write, and no enforcement by others reads them"}
	unheld := map[string]string{"libkerf": "the program does not come to the library"}
	const ownCgroup = `C=$(sed -n s/^0:://p /proc/self/cgroup); M=$(awk '$3=="cgroup2"{print $2; exit}' /proc/mounts); `
	return []attack{
		{name: "page", what: "4 KiB more than the cap, in one call",
			script: "exec %ONCE --alloc 2097156KiB --hold 10s"},
		{name: "twice", what: "twice the cap, in one call", script: "exec %ONCE " + want},
		{name: "small steps", what: "steps of 1 MiB", fine: true, script: "exec %ONCE --step 1MiB " + want},
		{name: "two processes", past: each, what: "two processes that take three quarters of the cap each", says: 2,
			script: "%LOAD --alloc 1536MiB --hold 10s & exec %LOAD --alloc 1536MiB --hold 10s"},
		{name: "eight at once", past: each, what: "eight forked workers that race for the cap", says: 8, fine: true,
			script: "exec %ONCE --step 16MiB --fork 8 --alloc 1GiB --hold 10s"},
		{name: "two hundred", past: each, what: "two hundred forked workers that take a hundredth of the cap each",
			only: "linear", says: 200, script: "exec %ONCE --fork 200 --alloc 20MiB --hold 10s"},
		{name: "contexts at once", past: each,
			what: "thirty-two programs that start at once, each with a context and 2 MiB", says: 32,
			script: "for i in $(seq 32); do %LOAD --alloc 2MiB --hold 15s & done; wait"},
		{name: "no preload", past: unheld,
			what:   "the loader's file unmounted and LD_PRELOAD emptied, as a static program would have it",
			script: hidden + "exec %LOAD " + want},
		{name: "no preload, page", past: unheld, what: "the same, and 4 KiB more than the cap in one call",
			script: hidden + "exec %ONCE --alloc 2097156KiB --hold 10s"},
		{name: "no preload, small steps", past: unheld, what: "the same, and steps of 1 MiB", fine: true,
			script: hidden + "exec %ONCE --step 1MiB " + want},
		{name: "deepbind", what: "libcuda.so.1 opened with RTLD_DEEPBIND", script: "exec %LOAD --driver deepbind " +
			want},
		{name: "name space", what: "libcuda.so.1 opened in a separate namespace, by dlmopen",
			script: "exec %LOAD --driver namespace " + want},
		{name: "deepbind apart",
			what:   "a library that was opened with RTLD_DEEPBIND, and so has the C library's own dlsym first",
			script: "exec %LOAD --driver apart " + want},
		{name: "constructor", past: unheld,
			what:   "a library that was opened with RTLD_DEEPBIND, and looks for libcuda.so.1 in its constructor",
			script: "exec %LOAD --driver early " + want},
		{name: "name space apart", past: unheld,
			what:   "a library in a separate namespace, by dlmopen, that looks for libcuda.so.1",
			script: "exec %LOAD --driver elsewhere " + want},
		{name: "no pipe", what: "CUDA_MPS_PIPE_DIRECTORY set to a directory that does not exist",
			script: "export CUDA_MPS_PIPE_DIRECTORY=/nowhere; exec %LOAD " + want},
		{name: "foreign limit", past: map[string]string{"mps": "MPS drops its limits then"},
			what:   "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT naming a GPU that is not visible, which drops the limits of MPS",
			script: "export CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=7=1G; exec %LOAD " + want},
		{name: "larger limit", what: "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT raised to 8 GiB",
			script: "export CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=8G; exec %LOAD " + want},
		{name: "control pipe", what: "the client sets a limit of 8 GiB at the control daemon of MPS",
			script: tellMPS("set_default_device_pinned_mem_limit 0 8G") + "exec %LOAD " + want},
		{name: "control quit", past: map[string]string{"mps": "without MPS there is no limit of MPS"},
			what: "the client tells the control daemon of MPS to quit", script: tellMPS("quit") +
				"sleep 0.3; exec %LOAD " + want},
		{name: "child cgroup", what: "a new cgroup below the grant's, which it moves to", script: ownCgroup +
			`mkdir "$M$C/child" && echo $$ > "$M$C/child/cgroup.procs" || exit 1; exec %LOAD ` + want},
		{name: "cgroup next to", past: map[string]string{"driver": gone, "mps": gone, "libkerf": gone},
			what: "a cgroup outside of the grant's, which it moves to, with rights that no container has",
			script: ownCgroup + `A="$M/` + aside +
				`-${C##*/}"; mkdir -p "$A" && echo $$ > "$A/cgroup.procs" || exit 1; exec %LOAD ` + want},
		{name: "cgroup name space", what: "a new cgroup namespace", script: "exec unshare --cgroup %LOAD " + want},
		{name: "other GPU", what: "CUDA_VISIBLE_DEVICES naming a GPU that is another's",
			script: "export CUDA_VISIBLE_DEVICES=%OTHER; exec %LOAD " + want},
		{name: "counters cleared", past: counted, what: "zeros written over the library's counters, again and again",
			script: counters + "(while :; do dd if=/dev/zero of=$U bs=4096 count=1 conv=notrunc; sleep 0.05; done) " +
				">/dev/null 2>&1 & exec %LOAD " + want},
		{name: "counters filled", past: counted,
			what: "random bytes in the library's counters while a program has half of the cap, then another program",
			says: 2, script: counters + held +
				"dd if=/dev/urandom of=$U bs=4096 count=64 conv=notrunc 2>/dev/null; exec %LOAD " + want},
		{name: "counters cut", past: counted,
			what: "the library's counters truncated while a program has half of the cap, then another program", says: 2,
			script: counters + held + "truncate -s 0 $U; exec %LOAD " + want},
		{name: "limits written", past: map[string]string{"libkerf": "the library believes its limits"},
			what: "the library's limits remounted as writable, as no container may, and 8 GiB written there",
			script: "U=$(cat /etc/ld.so.preload 2>/dev/null) && D=${U%/*} && mount -o remount,bind,rw \"$D\" && " +
				"printf '\\0\\0\\0\\0\\2\\0\\0\\0' | dd of=\"$D/limits\" bs=1 seek=32 conv=notrunc 2>/dev/null; exec " +
				"%LOAD " + want},
		{name: "foreign hook", only: "linear",
			past: map[string]string{"driver": "the node's root replaced the limit after Kerf had set it"},
			what: "NVIDIA's hook `" + limitHook +
				"`, run on the grant's cgroup by the node's root, with `NVIDIA_GPU_MEMORY_REQUEST=1`",
			script: ownCgroup + foreignHook() + "exec %LOAD " + want},
		{name: "killed holder", what: "a program killed with three quarters of the cap, then another", says: 2,
			script: "%LOAD --alloc 1536MiB --hold 1h & sleep 0.7; kill -9 $!; sleep 1.2; exec %LOAD " + want},
		{name: "orphaned memory", only: "linear", past: each,
			what: "a program killed with three quarters of the cap, whose two forked children have its files open, " +
				"then another", says: 2, script: orphaned + "exec %LOAD " + want},
		{name: "orphans in turn", only: "linear", past: each,
			what:   "four programs in turn that take three quarters of the cap, fork a child and end before any sample",
			says:   4,
			script: `for i in 1 2 3 4; do %LOAD --alloc 1536MiB --loaders 1 --leave --hold 10s; done; sleep 10`},
		{name: "reused PID", only: "linear", past: each, what: "the same, and the other has the PID of the killed one",
			says: 2, script: orphaned + "exec %SETPID $P %LOAD " + want},
		{name: "fork and exec", past: each,
			what: "a child that takes three quarters, and its parent that becomes another program", says: 2,
			script: "%LOAD --alloc 1536MiB --hold 15s & exec sh -c 'exec %LOAD " + want + "'"},
	}
}

// foreignHook runs NVIDIA's limit hook on the cgroup of the shell, as an OCI runtime does for a container with a
// variable that lifts the limit. Where the driver has no limits the hook fails, and the shell goes on.
func foreignHook() string {
	hook := filepath.Join(filepath.Dir(bin), ".cache", "bin", "nvidia-cdi-hook")
	return `B=$(mktemp -d); echo '{"process":{"env":["NVIDIA_GPU_MEMORY_REQUEST=1"]}}' >$B/config.json; ` +
		`echo "{\"ociVersion\":\"1.0.2\",\"id\":\"x\",\"status\":\"creating\",\"pid\":$$,\"bundle\":\"$B\"}" >$B/state.json; ` +
		`unshare -m sh -c 'mount --bind "$1" /sys/fs/cgroup && exec ` + hook + ` ` + limitHook +
		` --driver-root "${LD_LIBRARY_PATH%%:*}" --gpu-id %OWN' sh "$M" <$B/state.json; rm -r $B; `
}

// tellMPS tells the daemon of MPS something, where there is one.
func tellMPS(command string) string {
	return `if [ -n "$CUDA_MPS_PIPE_DIRECTORY" ]; then echo "` + command + `" | nvidia-cuda-mps-control; fi; `
}
