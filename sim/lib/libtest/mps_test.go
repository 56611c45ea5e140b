// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package libtest_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kerf-gpu/kerf/sim/launch"
	"github.com/kerf-gpu/kerf/sim/mps"
	"github.com/kerf-gpu/kerf/test/eventually"
)

// gpusim builds the program that stands in for NVIDIA's, once.
var gpusim = sync.OnceValues(func() (string, error) {
	path := filepath.Join(built, "gpusim")
	out, err := exec.Command("go", "build", "-buildvcs=false", "-o", path,
		"github.com/kerf-gpu/kerf/sim/cmd/gpusim").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build gpusim: %w\n%s", err, out)
	}
	return path, nil
})

// domain is a control daemon and its pipe directory.
type domain struct {
	t    *testing.T
	dir  string // the node's
	pipe string
	env  []string
}

// mpsNode is node with MPS's programs.
func mpsNode(t *testing.T, name, driver string) string {
	t.Helper()
	dir := node(t, name, driver)
	exe, err := gpusim()
	if err != nil {
		t.Fatal(err)
	}
	if err := launch.InstallPrograms(exe, dir, mps.ControlName, mps.ServerName); err != nil {
		t.Fatal(err)
	}
	return dir
}

// mpsDomain starts a control daemon, which ends with the test.
func mpsDomain(t *testing.T, dir, name string, env ...string) domain {
	t.Helper()
	d := domain{t: t, dir: dir, pipe: filepath.Join(dir, name)}
	d.env = append([]string{"CUDA_MPS_PIPE_DIRECTORY=" + d.pipe, "CUDA_MPS_LOG_DIRECTORY=" + d.pipe + ".log"}, env...)
	if out, status := d.control("", "-d"); status != 0 {
		t.Fatalf("start the daemon: %s", out)
	}
	t.Cleanup(d.end)
	eventually.True(t, "the daemon answers", func() bool {
		_, status := d.control("get_server_list\n")
		return status == 0
	})
	return d
}

// end ends the daemon. quit is answered before the servers, and then the daemon, have ended; until then the pipe
// directory is taken, and the next daemon in it would find that and end, without a word.
func (d domain) end() {
	d.t.Helper()
	d.control("quit -t 0\n")
	lock, err := os.Open(filepath.Join(d.pipe, "control_lock"))
	if err != nil {
		d.t.Fatal(err)
	}
	defer lock.Close()
	eventually.True(d.t, "the daemon ends",
		func() bool { return unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil })
}

// daemons are the pids of the control daemons that were started from the node's programs, those too that have no
// pipe directory yet.
func (d domain) daemons() []string {
	d.t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		d.t.Fatal(err)
	}
	daemon := filepath.Join(d.dir, "bin", mps.ControlName) + "\x00-f\x00"
	var all []string
	for _, f := range files {
		if line, err := os.ReadFile(f); err == nil && string(line) == daemon { // one that has ended cannot be read
			all = append(all, filepath.Base(filepath.Dir(f)))
		}
	}
	return all
}

// control runs the control program with commands and returns what it printed, and its status.
func (d domain) control(commands string, args ...string) (string, int) {
	d.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(d.dir, "bin", mps.ControlName), args...)
	cmd.Env = d.env
	cmd.Stdin = strings.NewReader(commands)
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		d.t.Fatalf("control %q: %v", commands, err)
	}
	return strings.TrimSpace(string(out)), cmd.ProcessState.ExitCode()
}

// server returns the pid of the domain's server, which must be there.
func (d domain) server() int {
	d.t.Helper()
	out, _ := d.control("get_server_list\n")
	pid, err := strconv.Atoi(out)
	if err != nil {
		d.t.Fatalf("servers: %q, want one", out)
	}
	return pid
}

// startServer starts root's server, and waits until it takes clients.
func (d domain) startServer() {
	d.t.Helper()
	d.control("start_server -uid 0\n")
	eventually.True(d.t, "an active server", func() bool {
		out, _ := d.control(fmt.Sprintf("get_server_status %d\n", d.server()))
		return out == "ACTIVE"
	})
}

// startsNoServer starts root's server, which ends without a word and is never active.
func (d domain) startsNoServer(which string) {
	d.t.Helper()
	if out, status := d.control("start_server -uid 0\n"); out != "" || status != 0 {
		d.t.Errorf("start a server %s: %q, exit %d", which, out, status)
	}
	eventually.True(d.t, "the end of a server "+which, func() bool {
		out, status := d.control("get_server_list\n")
		if state, _ := d.control("get_server_status " + out + "\n"); state == "ACTIVE" {
			d.t.Fatalf("a server %s is active", which)
		}
		return out == "" && status == 0
	})
}

// hold starts a process that keeps memory until the test ends, and waits until it has it.
func (d domain) hold(want int, alloc string, env ...string) *exec.Cmd {
	d.t.Helper()
	cmd, _, _ := command(d.t, d.dir, append(append([]string{}, d.env...), env...), "gpuload", "--json", "--alloc",
		alloc, "--hold", "1h")
	if err := cmd.Start(); err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	eventually.True(d.t, "the load holds its memory", func() bool {
		return holders(d.t, d.dir)[cmd.Process.Pid] >= uint64(want)*gib
	})
	return cmd
}

func (d domain) load(env []string, args ...string) (line, result) {
	d.t.Helper()
	r := program(d.t, d.dir, append(append([]string{}, d.env...), env...), "gpuload",
		append([]string{"--json"}, args...)...)
	got := parse(d.t, r.out)
	return got[0], r
}

// A client is shown in NVML's list of MPS clients, and its server, which it started, in that of programs.
func TestMPSClient(t *testing.T) {
	dir := mpsNode(t, "h100x8", "r580")
	d := mpsDomain(t, dir, "a", "CUDA_VISIBLE_DEVICES=0")
	if out, status := d.control("get_server_list\n"); out != "" || status != 0 {
		t.Fatalf("before the first client: %q, exit %d", out, status)
	}
	cmd := d.hold(1, "1GiB")
	if got := nvml(t, dir, "init", "lists,0", "lists,1"); got[1] != "0 compute=1 graphics=0 mps=1" ||
		got[2] != "0 compute=0 graphics=0 mps=0" {
		t.Errorf("NVML's lists: %q", got[1:])
	}
	all := holders(t, dir)
	if s := d.server(); all[s] != h100Context || all[cmd.Process.Pid] != gib+h100Context || len(all) != 2 {
		t.Errorf("held: %v, want the server's context and the client's 1 GiB", all)
	}
	for _, c := range []struct{ command, want string }{
		{fmt.Sprintf("get_client_list %d", d.server()), strconv.Itoa(cmd.Process.Pid)},
		{fmt.Sprintf("get_server_status %d", d.server()), "ACTIVE"},
		{"get_client_list 1", "Server 1 is not found: not found"},
		{"hello", "Unknown command: hello: invalid"},
		{"set_default_active_thread_percentage 10", "10.0"},
		{"get_default_active_thread_percentage", "10.0"},
		{"set_default_active_thread_percentage 0", `invalid active thread percentage "0": invalid`},
		{"set_default_device_pinned_mem_limit 0 2G", ""},
		{"get_default_device_pinned_mem_limit 0", "2G"},
		{"set_default_device_pinned_mem_limit 0 2", `invalid memory limit "2": invalid`},
	} {
		if out, status := d.control(c.command + "\n"); out != c.want || status != 0 {
			t.Errorf("%s: %q, exit %d, want %q", c.command, out, status, c.want)
		}
	}
	space, err := os.Readlink("/proc/self/ns/pid")
	if err != nil {
		t.Fatal(err)
	}
	row := fmt.Sprintf(`(?m)^%-9d 1 {9}%-14d GPU(-[0-9a-f]+){3} {4}%-14s /\S+ *$`, cmd.Process.Pid, d.server(),
		strings.Trim(space, "pid:[]"))
	if out, _ := d.control("ps\n"); !regexp.MustCompile(row).MatchString(out) {
		t.Errorf("ps: %q, want %s", out, row)
	}
}

// Whichever of the limits is the least holds, for each process by itself; the size shown stays the whole GPU's.
func TestMPSLimits(t *testing.T) {
	dir := mpsNode(t, "h100x8", "r580")
	for name, test := range map[string]struct {
		daemon string
		env    string
		limit  uint64 // 0: none
	}{
		"none":            {"", "", 0},
		"default":         {"set_default_device_pinned_mem_limit 0 4G", "", 4 * gib},
		"default by uuid": {"set_default_device_pinned_mem_limit UUID 3000M", "", 3000 * mib},
		"of no such gpu":  {"set_default_device_pinned_mem_limit 7 4G", "", 0},
		"last one counts": {
			"set_default_device_pinned_mem_limit UUID 4G\nset_default_device_pinned_mem_limit 0 3G", "", 3 * gib},
		"own":                     {"", "0=2G", 2 * gib},
		"own by uuid":             {"", "UUID=2048MB", 2 * gib},
		"own below":               {"set_default_device_pinned_mem_limit 0 4G", "0=2G", 2 * gib},
		"own above is no way out": {"set_default_device_pinned_mem_limit 0 4G", "0=9G", 4 * gib},
		// The trap: one entry that names no visible GPU, and none holds.
		"own of an invisible gpu": {"set_default_device_pinned_mem_limit 0 4G", "0=2G,1=2G", 0},
		"own of no form":          {"", "0=2", 0},
	} {
		t.Run(name, func(t *testing.T) {
			uuid := strings.Fields(nvml(t, dir, "init", "identity,2")[1])[1]
			d := mpsDomain(t, dir, "l", "CUDA_VISIBLE_DEVICES="+uuid)
			if out, _ := d.control(strings.ReplaceAll(test.daemon, "UUID", uuid) + "\n"); out != "" {
				t.Fatalf("set: %s", out)
			}
			got, _ := d.load([]string{"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=" + strings.ReplaceAll(test.env, "UUID", uuid)},
				"--alloc", "6GiB", "--step", "256MiB")
			if *got.Total != h100Total-h100Reserved {
				t.Errorf("total is %d, want the whole GPU's", *got.Total)
			}
			if test.limit == 0 {
				if got.Allocated != 6*gib || got.Error != nil {
					t.Errorf("got %+v, want no limit", got)
				}
				return
			}
			room := (test.limit - h100Context) / (256 * mib) * 256 * mib
			if got.Allocated != room || got.Error == nil || *got.Error != oom ||
				*got.Free != test.limit-h100Context-room {
				t.Errorf("allocated %d, free %d, want %d of a limit of %d", got.Allocated, *got.Free, room, test.limit)
			}
		})
	}
}

// A daemon whose server is slow to end still has its pipe directory when quit has answered.
func TestMPSEndsAfterItsAnswer(t *testing.T) {
	dir := mpsNode(t, "h100x8", "r580")
	d := mpsDomain(t, dir, "a", "CUDA_VISIBLE_DEVICES=0")
	d.startServer()
	server := d.server()
	if err := syscall.Kill(server, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	d.control("quit -t 0\n")
	eventually.True(t, "no one answers", func() bool {
		_, status := d.control("get_server_list\n")
		return status == 1
	})
	if out, status := d.control("", "-d"); status != 0 {
		t.Errorf("a daemon in its place: exit %d, %q, want no word", status, out)
	}
	// It must find the directory taken. If that were free by then, it would be a daemon that the test never ends.
	eventually.True(t, "the one in its place ends", func() bool { return len(d.daemons()) == 1 })
	if out, status := d.control("get_server_list\n"); status != 1 {
		t.Errorf("no one answers, but: exit %d, %q", status, out)
	}
	if err := syscall.Kill(server, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	d.end()
	mpsDomain(t, dir, "a", "CUDA_VISIBLE_DEVICES=0")
}

// Two processes of one container hold the limit twice: it is each process's.
func TestMPSLimitIsEachProcesss(t *testing.T) {
	dir := mpsNode(t, "h100x8", "r580")
	d := mpsDomain(t, dir, "a", "CUDA_VISIBLE_DEVICES=0")
	d.control("set_default_device_pinned_mem_limit 0 4G\n")
	d.hold(3, "3GiB")
	d.hold(3, "3GiB")
}

// No answer says that a process runs without its limit.
func TestMPSWithoutItsPipe(t *testing.T) {
	dir := mpsNode(t, "h100x8", "r580")
	d := mpsDomain(t, dir, "a", "CUDA_VISIBLE_DEVICES=0")
	d.control("set_default_device_pinned_mem_limit 0 2G\n")
	for _, pipe := range []string{"", dir + "/misspelt", "/" + strings.Repeat("x", 200)} {
		got, r := d.load([]string{"CUDA_MPS_PIPE_DIRECTORY=" + pipe}, "--alloc", "5GiB")
		if r.code != 0 || got.Allocated != 5*gib || r.errout != "" {
			t.Errorf("pipe %q: exit %d, %s%s", pipe, r.code, r.out, r.errout)
		}
	}
	// Where the GPU takes one process alone, and the server is it, they fail instead.
	nvml(t, dir, "init", "mode,0,3")
	d.startServer()
	r := program(t, dir, []string{"CUDA_MPS_PIPE_DIRECTORY=/nowhere", "CUDA_VISIBLE_DEVICES=0"}, "gpuload", "--json",
		"--alloc", "1GiB")
	if r.code == 0 || strings.Contains(r.out, `"allocated_bytes":1073741824`) {
		t.Errorf("in exclusive mode: exit %d, %s", r.code, r.out)
	}
	if got, r := d.load(nil, "--alloc", "1GiB"); r.code != 0 || got.Allocated != gib {
		t.Errorf("a client in exclusive mode: exit %d, %s%s", r.code, r.out, r.errout)
	}
	// A second server is one process too many, and says nothing of it.
	other := mpsDomain(t, dir, "b", "CUDA_VISIBLE_DEVICES=0")
	other.startsNoServer("of a second domain")
}

// Clients of a server that dies lose what they held, and learn it at their next call.
func TestMPSServerDies(t *testing.T) {
	dir := mpsNode(t, "h100x8", "r580")
	d := mpsDomain(t, dir, "a", "CUDA_VISIBLE_DEVICES=0")
	cmd, out, _ := command(t, dir, d.env, "check/cudacheck", "until")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	eventually.True(t, "the client holds memory", func() bool { return holders(t, dir)[cmd.Process.Pid] > gib })
	if err := syscall.Kill(d.server(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if out.String() != "806\n" {
		t.Errorf("the client met %q, want 806 (RPC failure)", out)
	}
	eventually.True(t, "all memory back", func() bool { return len(holders(t, dir)) == 0 })
	eventually.True(t, "the daemon knows that its server is dead", func() bool {
		servers, _ := d.control("get_server_list\n")
		return servers == ""
	})
	if got, r := d.load(nil, "--alloc", "1GiB"); r.code != 0 || got.Allocated != gib {
		t.Errorf("the next client gets a new server: exit %d, %s%s", r.code, r.out, r.errout)
	}
}

// A fault of one client ends all clients of the server, which takes no new one until they have exited.
func TestMPSFault(t *testing.T) {
	dir := mpsNode(t, "h100x8", "r580")
	d := mpsDomain(t, dir, "a", "CUDA_VISIBLE_DEVICES=0")
	idle := d.hold(1, "1GiB")
	cmd, out, _ := command(t, dir, d.env, "check/cudacheck", "until")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	eventually.True(t, "the client holds memory", func() bool { return holders(t, dir)[cmd.Process.Pid] > gib })
	set(t, dir, "gpu=0", fmt.Sprintf("fault.%d=31", idle.Process.Pid))
	_ = cmd.Wait() // it prints its error
	if out.String() != "700\n" {
		t.Errorf("the other client met %q, want 700 (illegal address)", out)
	}
	status := fmt.Sprintf("get_server_status %d\n", d.server())
	if got, _ := d.control(status); got != "FAULT" {
		t.Errorf("server with a client that has not exited: %q, want FAULT", got)
	}
	if _, r := d.load(nil, "--alloc", "1GiB"); !strings.Contains(r.out+r.errout, "CUDA_ERROR_MPS_SERVER_NOT_READY") {
		t.Errorf("a new client: exit %d, %s%s", r.code, r.out, r.errout)
	}
	if err := idle.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	eventually.True(t, "the server has recovered", func() bool {
		got, _ := d.control(status)
		return got == "ACTIVE"
	})
	if got, r := d.load(nil, "--alloc", "1GiB"); r.code != 0 || got.Allocated != gib {
		t.Errorf("a client after that: exit %d, %s%s", r.code, r.out, r.errout)
	}
}

// What cannot serve says nothing: only an answer tells.
func TestMPSThatCannotServe(t *testing.T) {
	dir := mpsNode(t, "mixed", "r580")
	absent := mpsDomain(t, dir, "a", "CUDA_VISIBLE_DEVICES=GPU-00000000")
	absent.startsNoServer("of an absent GPU")
	if _, r := absent.load(nil, "--alloc", "1GiB"); r.code == 0 ||
		!strings.Contains(r.out+r.errout, "CUDA_ERROR_MPS_CONNECTION_FAILED") {
		t.Errorf("its client: exit %d, %s%s", r.code, r.out, r.errout)
	}
	uuid := strings.Fields(nvml(t, dir, "init", "identity,1")[1])[1] // in MIG mode
	mig := mpsDomain(t, dir, "m", "CUDA_VISIBLE_DEVICES="+uuid)
	mig.startsNoServer("in MIG mode")
	long := domain{t: t, dir: dir, env: []string{"CUDA_MPS_PIPE_DIRECTORY=" + dir + "/" + strings.Repeat("x", 100),
		"CUDA_MPS_LOG_DIRECTORY=" + dir + "/log"}}
	if out, status := long.control("", "-d"); status != 0 {
		t.Errorf("a path too long: %q, exit %d, want no word of it", out, status)
	}
	if out, status := long.control("get_server_list\n"); status != 1 ||
		out != "Cannot find MPS control daemon process" {
		t.Errorf("a path too long: %q, exit %d", out, status)
	}
	if out, status := mig.control("", "-d"); status != 1 ||
		!strings.HasPrefix(out, "An instance of this daemon is already running") {
		t.Errorf("a second daemon: %q, exit %d", out, status)
	}
}

// A share of the threads is what the process sees of the GPU, and no more than the daemon lets it have.
func TestMPSThreads(t *testing.T) {
	dir := mpsNode(t, "h100x8", "r580")
	d := mpsDomain(t, dir, "a", "CUDA_VISIBLE_DEVICES=0")
	d.control("set_default_active_thread_percentage 50\n")
	for own, want := range map[string]string{"": "66", "25": "33", "80": "66"} {
		r := program(t, dir, append([]string{"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=" + own}, d.env...), "check/cudacheck",
			"processors")
		if r.out != want {
			t.Errorf("with %q: %q multiprocessors, want %s %s", own, r.out, want, r.errout)
		}
	}
}

// A server belongs to one user. A client of another user waits until the server has no client, and then gets a new one.
func TestMPSOfAnotherUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can be two users")
	}
	dir := mpsNode(t, "h100x8", "r580")
	for _, p := range []string{dir, built} {
		if err := os.Chmod(p, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	d := mpsDomain(t, dir, "a", "CUDA_VISIBLE_DEVICES=0")
	if err := os.Chmod(d.pipe+".log", 0o777); err != nil {
		t.Fatal(err)
	}
	first := d.hold(1, "1GiB")
	server := d.server()
	cmd, out, errout := command(t, dir, d.env, "check/cudacheck", "processors")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 1000, Gid: 1000}}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	eventually.True(t, "the daemon knows the second client", func() bool {
		log, err := os.ReadFile(d.pipe + ".log/control.log")
		return err == nil && strings.Contains(string(log), fmt.Sprintf("NEW CLIENT %d from user 1000", cmd.Process.Pid))
	})
	if got, _ := d.control(fmt.Sprintf("get_client_list %d\n", server)); got != strconv.Itoa(first.Process.Pid) {
		t.Errorf("clients: %q, want the first alone", got)
	}
	if err := first.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil || out.String() != "132\n" {
		t.Errorf("the second client: %v, %q %s", err, out, errout)
	}
	if now := d.server(); now == server {
		t.Error("both users had one server")
	}
}
