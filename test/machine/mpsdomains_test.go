// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package machine_test

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kerf-gpu/kerf/sim/wire"
)

// The users of these tests. Each is a trust domain, unless the pool says otherwise.
const (
	ann = 2001
	bob = 2002
)

// mpsUsers is a machine whose first GPU several users share by MPS.
type mpsUsers struct {
	*machine
	kerf, gpuload string
}

func newMPSUsers(t *testing.T, more string) mpsUsers {
	t.Helper()
	m := newMPSOn(t, "a30x2", "r580", "driver, mps, reactive", more)
	if err := os.Chmod(filepath.Join(m.dir, "kerf.sock"), 0o777); err != nil {
		t.Fatal(err)
	}
	u := mpsUsers{machine: m}
	u.kerf, u.gpuload = asNobody(t, m)
	return u
}

// ofUser are the flags and the changes of a run that is a user's, with a grant of 2 GiB.
func (m mpsUsers) ofUser(uid uint32, name string) ([]string, []how) {
	m.t.Helper()
	return flags("--memory 2GiB --name " + name + " --gpu-uuid " + m.uuid(0)),
		[]how{asUser(uid, uid), withProgram(m.kerf)}
}

// starts runs a user's program.
func (m mpsUsers) starts(uid uint32, name string, argv []string) *run {
	m.t.Helper()
	flags, changes := m.ofUser(uid, name)
	return m.run(flags, argv, changes...)
}

// holder is a program of a user that holds 512 MiB, and takes more on request.
type holder struct {
	*asking
	has uint64
}

func (m mpsUsers) holds(uid uint32, name string) *holder {
	m.t.Helper()
	flags, changes := m.ofUser(uid, name)
	h := &holder{m.asks(flags, []string{m.gpuload, "--json", "--alloc", "512MiB", "--more", "64MiB", "--hold", "1h"},
		changes...), 512 * mib}
	wantLoad(m.t, h.next(), "", h.has, h.has)
	return h
}

// goesOn shows that the program is what it was: it takes more, in the context that it has.
func (h *holder) goesOn(after string) {
	h.m.t.Helper()
	h.has += 64 * mib
	if got := h.more(); got.err() != "" || got.Allocated != h.has {
		h.m.t.Errorf("after %s: %v, want %d bytes", after, got, h.has)
	}
}

// wantDomains waits until the first GPU has so many processes of MPS, and the compute mode.
func (m mpsUsers) wantDomains(processes, mode int) {
	m.t.Helper()
	eventually(m.t, fmt.Sprintf("%d processes of MPS, compute mode %d", processes, mode), func() error {
		got := decode[[]simModes](m.t, m.gpusim("gpus", "-o", "json").out)[0].ComputeMode
		if n := len(m.daemons()); n != processes || got != mode {
			return fmt.Errorf("%d, %d", n, got)
		}
		return nil
	})
}

// wantLevel waits until a grant has a level, with a reason that says so.
func (m mpsUsers) wantLevel(name, level, reason string) {
	m.t.Helper()
	eventually(m.t, name+" at level "+level, func() error {
		if g := m.grant(name); g.Level != level || !strings.Contains(g.LevelReason, reason) {
			return fmt.Errorf("level %s, %q", g.Level, g.LevelReason)
		}
		return nil
	})
}

// compute modes, as the driver numbers them.
const (
	modeDefault   = 0
	modeExclusive = 3
)

// Two users on one GPU are two trust domains, each with a separate daemon and server. The GPU then takes any process.
// Kerf ends a process that is not its daemon's client and runs without limit, whatever the pool's policy over the cap
// is.
func TestMPSTwoTrustDomains(t *testing.T) {
	t.Parallel()
	// over its cap where that is no reason, and within it
	for overCap, takes := range map[string]uint64{"warn": 6, "kill": 1} {
		t.Run(overCap, func(t *testing.T) {
			m := newMPSUsers(t, ", onOverCap: "+overCap)
			one := m.holds(ann, "ann")
			m.wantDomains(2, modeExclusive)
			other := m.holds(bob, "bob")
			m.wantDomains(4, modeDefault)
			for _, pipe := range []struct{ is, script string }{
				{"missing", "unset CUDA_MPS_PIPE_DIRECTORY"},
				{"misspelt", `export CUDA_MPS_PIPE_DIRECTORY="${CUDA_MPS_PIPE_DIRECTORY}x"`},
			} {
				m.escapes(pipe.is, pipe.script, takes)
			}
			eventually(t, "the count of who was killed next to MPS", func() error {
				if kills := m.watched().kills; kills["escaped"] != 2 || m.killed() != 2 {
					return fmt.Errorf("%v, want the two", kills)
				}
				return nil
			})
			one.goesOn("both had gone")
			other.goesOn("both had gone")
			for _, name := range []string{"ann", "bob"} {
				m.wantLevel(name, "userspace", "")
			}
			other.end()
			m.wantDomains(2, modeExclusive)
		})
	}
}

// escapes runs a program of the first user without its pipe directory. The agent stands still until it has all that it
// wants, so that it has it on any machine.
func (m mpsUsers) escapes(is, script string, gibs uint64) {
	m.t.Helper()
	gate := filepath.Join(m.work, is)
	argv := []string{"sh", "-c", fmt.Sprintf(
		"echo begun; until [ -e %s ]; do sleep 0.05; done; %s; exec %s --json --alloc %dGiB --hold 1h", gate, script,
		m.gpuload, gibs)}
	r := m.starts(ann, is, argv)
	r.lines(1)
	m.agent.signal(syscall.SIGSTOP)
	defer func() { _ = m.agent.cmd.Process.Signal(syscall.SIGCONT) }() // also where the test ends here
	touch(m.t, gate)
	wantLoad(m.t, decode[loaded](m.t, r.lines(2)[1]), "", gibs*gib, gibs*gib)
	m.agent.signal(syscall.SIGCONT)
	from := time.Now()
	wantKilled(m.t, r)
	m.t.Logf("pipe directory %s: killed %s after the agent went on, whose watch looks every 100 ms and acts at the "+
		"second look", is, time.Since(from).Round(time.Millisecond))
}

// If the pool keeps the compute mode, other programs use the GPU together with MPS, and Kerf ends a program of a grant
// that leaves MPS.
func TestMPSKeepsTheComputeMode(t *testing.T) {
	t.Parallel()
	m := newMPSUsers(t, ", onOverCap: warn, mpsComputeMode: keep")
	one := m.holds(ann, "ann")
	m.wantDomains(2, modeDefault)
	outside := m.start(load("--alloc 256MiB --hold 1h"))
	wantLoad(t, decode[loaded](t, outside.lines(1)[0]), "", 256*mib, 256*mib)
	m.escapes("missing", "unset CUDA_MPS_PIPE_DIRECTORY", 1)
	other := m.holds(bob, "bob")
	m.wantDomains(4, modeDefault)
	m.restartAgent()
	m.wantDomains(4, modeDefault)
	other.end()
	m.wantDomains(2, modeDefault)
	one.goesOn("the others had gone")
	m.wantLevel("ann", "userspace", "")
	one.end()
	m.wantDomains(0, modeDefault)
}

// In a mode that the admin set and Kerf keeps, one user has the GPU by MPS. Another user's program does not start.
func TestMPSKeepsExclusiveMode(t *testing.T) {
	t.Parallel()
	m := newMPSUsers(t, ", mpsComputeMode: keep")
	m.setComputeMode(0, modeExclusive)
	one := m.holds(ann, "ann")
	m.wantDomains(2, modeExclusive)
	second := m.starts(bob, "bob", []string{"true"})
	if got := second.wait(); got.code != 125 || !strings.Contains(flat(got.err), "admits one MPS server") {
		t.Errorf("a second user: %v", got)
	}
	one.goesOn("another user was rejected")
	one.end()
	m.wantDomains(0, modeExclusive)
}

// setComputeMode sets it as an admin does.
func (m *machine) setComputeMode(gpu, mode int) {
	m.t.Helper()
	if r := m.ask(gpu, wire.Request{Op: wire.OpComputeMode, Args: [6]uint64{uint64(mode)}}); r.Status != wire.OK {
		m.t.Fatalf("set compute mode %d: status %v", mode, r.Status)
	}
}

// Where the pool says that all share, two users have one daemon. A server is of one user, so one waits for the other's
// end.
func TestMPSSharedByThePool(t *testing.T) {
	t.Parallel()
	m := newMPSUsers(t, ", mpsDaemonScope: pool")
	one := m.holds(ann, "ann")
	m.wantDomains(2, modeExclusive)
	other := m.starts(bob, "bob", []string{m.gpuload, "--json", "--alloc", "512MiB", "--hold", "1h"})
	eventually(t, "the other user's grant", func() error {
		if g, ok := m.state().grant("bob"); !ok || g.Level != "userspace" || len(g.PIDs) == 0 {
			return fmt.Errorf("%+v", g)
		}
		return nil
	})
	m.wantDomains(2, modeExclusive)
	one.goesOn("another user had come")
	if out := other.stdout(); out != "" {
		t.Errorf("with another user's server it has %s", out)
	}
	one.end()
	wantLoad(t, other.loads(1)[0], "", 512*mib, 512*mib)
	m.wantDomains(2, modeExclusive)
}

// A user without a grant cannot reach the daemon of another. Its folder cannot be computed from GPU and user, its name
// cannot be listed, and the known name leads nowhere. The job goes on. So it does if it was started in a new mount
// namespace.
func TestMPSDaemonIsOutOfReachForOthers(t *testing.T) {
	t.Parallel()
	m := newMPSUsers(t, "")
	job := m.holds(ann, "job")
	places, err := filepath.Glob(m.dir + "/mps/*/*/v/pipe/control")
	if err != nil || len(places) != 1 {
		t.Fatalf("control sockets %q, %v", places, err)
	}
	pipe := filepath.Dir(places[0])
	computed := sha256.Sum256(fmt.Appendf(nil, "uid/%d", ann))
	if strings.Contains(pipe, hex.EncodeToString(computed[:5])) {
		t.Errorf("the folder's name can be computed: %s", pipe)
	}
	for _, attack := range []string{
		`CUDA_MPS_PIPE_DIRECTORY="$1" sh -c 'echo quit | nvidia-cuda-mps-control'`,
		`CUDA_MPS_PIPE_DIRECTORY="$1" sh -c 'echo get_server_list | nvidia-cuda-mps-control'`,
		`ls "$1"`, `ls "$1/../.."`, `ls "$1/../../.."`, `ls "$1/../../../.."`, `echo quit > "$1/control"`,
	} {
		if out := asStranger(t, "PATH="+m.sim+"/bin:$PATH; "+attack+" && echo done", pipe); strings.Contains(out,
			"done") {
			t.Errorf("%s: %q", attack, out)
		}
	}
	job.goesOn("another user tried to end its daemon")
	m.wantLevel("job", "userspace", "")

	apart := m.run(flags("--memory 2GiB --name apart --min-enforcement userspace --gpu-uuid "+m.uuid(0)),
		load("--alloc 4GiB --step 256MiB --hold 1h"), inOwnMounts)
	if got := apart.loads(1)[0]; got.err() != oom || got.Allocated > 2*gib {
		t.Errorf("a program with its own mounts: %v", got)
	}
}

// inOwnMounts starts it in a mount namespace that no later mount of the machine reaches.
func inOwnMounts(c *exec.Cmd) {
	c.Args = append([]string{"unshare", "-m", c.Path}, c.Args[1:]...)
	c.Path = "/usr/bin/unshare"
}
