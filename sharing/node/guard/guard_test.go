// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"fmt"
	"log/slog"
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/kerf-gpu/kerf/internal/cgroup"
	"github.com/kerf-gpu/kerf/internal/process"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/audit"
	"github.com/kerf-gpu/kerf/sharing/backend/reactive"
	"github.com/kerf-gpu/kerf/sharing/config"
	"github.com/kerf-gpu/kerf/sharing/ledger"
	"github.com/kerf-gpu/kerf/sharing/lists"
	"github.com/kerf-gpu/kerf/sharing/node/notify"
)

// machine is a node with one program, and what its kernel says of the program.
type machine struct {
	view   View
	dir    string
	closed bool  // the program has no device file open
	gone   error // of the cgroup of the grant
	// killed and spared are reasons. violations are what the audit log has.
	killed, spared []string
	violations     []audit.Entry
}

func (m *machine) Cgroup(int) (string, error)                { return m.dir, nil }
func (m *machine) OfProcess(int) (string, error)             { return m.dir, nil }
func (m *machine) Start(pid int) (uint64, error)             { return process.StartOf(pid) }
func (m *machine) hasOpen(int, int) (bool, error)            { return !m.closed, nil }
func (m *machine) Now() uint64                               { return 1 }
func (m *machine) Watched(time.Duration, int)                {}
func (m *machine) OverCap(time.Duration, sharing.Bytes)      {}
func (m *machine) Open(string, uint64) (cgroup.Group, error) { return cgroup.Group{}, m.gone }
func (m *machine) Killed(reason string, err error) {
	if err != nil {
		m.spared = append(m.spared, reason)
		return
	}
	m.killed = append(m.killed, reason)
}

// kernel is the machine as process lists ask it.
type kernel struct{ *machine }

func (k kernel) Open(pid, minor int) (bool, error) { return k.hasOpen(pid, minor) }

var gpu = sharing.GPURef{UUID: "GPU-0"}

// grant is an active grant of 4 GiB, which is watched.
func grant(id ledger.GrantID) Grant {
	return Grant{
		Grant: &ledger.Grant{
			Reservation: ledger.Reservation{ID: id, Placement: sharing.Placement{{GPU: gpu, Memory: 4 * sharing.GiB}}},
			Active:      &ledger.Attachment{Cgroup: "/kerf/own/" + string(id)},
		},
		Speaker: id, Backend: sharing.BackendReactive, Watched: true,
	}
}

func newMachine(pool config.Pool) (*machine, *Guard) {
	m := &machine{dir: "/kerf/own/k-1/child", view: View{
		GPUs: []sharing.GPU{{UUID: gpu.UUID}}, Grants: []Grant{grant("k-1")}, Complete: true, Config: config.Default(),
		Pool: pool,
	}}
	l := lists.New(kernel{m})
	l.Found(m.view.GPUs)
	return m, New(Options{
		Log: slog.New(slog.DiscardHandler), Lists: l, Cgroups: m, Observer: m, Agents: "/kerf", Own: "/kerf/own",
		Notify: &notify.Notifier{Audit: func(e audit.Entry) { m.violations = append(m.violations, e) }},
		View:   func() View { return m.view },
	})
}

// running is a real process, which ends with the test.
func running(t *testing.T) (reactive.Process, *exec.Cmd) {
	t.Helper()
	cmd := exec.Command("sleep", "600")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	start, err := process.StartOf(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	return reactive.Process{PID: cmd.Process.Pid, Start: start}, cmd
}

// The guard checks a process again before it kills it. It kills none whose pid another process has now, or that left
// the cgroup or the GPU. The same if its grant has another cap, another cgroup or another policy by now.
func TestCheckBeforeKill(t *testing.T) {
	unmanaged := func(m *machine, v *reactive.Verdict) { v.Reason, v.Grant, m.dir = reactive.Unmanaged, "", "/user" }
	for name, c := range map[string]struct {
		change func(*machine, *reactive.Verdict)
		killed bool
	}{
		"over its cap":    {func(*machine, *reactive.Verdict) {}, true},
		"pid taken over":  {func(_ *machine, v *reactive.Verdict) { v.Victim.Start++ }, false},
		"left its cgroup": {func(m *machine, _ *reactive.Verdict) { m.dir = "/kerf/own/k-10" }, false},
		"left the GPU":    {func(m *machine, _ *reactive.Verdict) { m.closed = true }, false},
		"another cap":     {func(_ *machine, v *reactive.Verdict) { v.Cap++ }, false},
		"no such grant":   {func(_ *machine, v *reactive.Verdict) { v.Grant = "k-2" }, false},
		"not active":      {func(m *machine, _ *reactive.Verdict) { m.view.Grants[0].Active = nil }, false},
		"another policy":  {func(m *machine, _ *reactive.Verdict) { m.view.Pool.OverCap = config.OverCapWarn }, false},
		"to be evicted": {func(m *machine, _ *reactive.Verdict) {
			m.view.Pool.OverCap, m.view.Grants[0].Evictable = config.OverCapEvict, true
		}, false},
		"another cgroup": {func(m *machine, _ *reactive.Verdict) {
			m.gone = fmt.Errorf("another inode: %w",
				sharing.ErrStale)
		}, false},
		"not watched": {func(m *machine, _ *reactive.Verdict) { m.view.Grants[0].Watched = false }, false},
		"escaped": {func(m *machine, v *reactive.Verdict) {
			m.view.Pool.OverCap, v.Reason = config.OverCapWarn, reactive.Escaped
		}, true},
		"unmanaged":   {unmanaged, true},
		"has a grant": {func(m *machine, v *reactive.Verdict) { unmanaged(m, v); m.dir = "/kerf/own/k-1" }, false},
		"activating": {func(m *machine, v *reactive.Verdict) {
			unmanaged(m, v)
			m.view.Activating = []string{
				"/user"}
		}, false},
		"of another agent": {func(m *machine, v *reactive.Verdict) { unmanaged(m, v); m.dir = "/kerf/other/k-1" },
			false},
		"not sure": {func(m *machine, v *reactive.Verdict) { unmanaged(m, v); m.view.Complete = false }, false},
		"to be reported": {func(m *machine, v *reactive.Verdict) {
			unmanaged(m, v)
			m.view.Pool.OnUnmanagedProcess = config.UnmanagedWarn
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			m, g := newMachine(config.Pool{Name: "a", OverCap: config.OverCapKill,
				OnUnmanagedProcess: config.UnmanagedKill})
			victim, cmd := running(t)
			v := reactive.Verdict{Action: reactive.Kill, GPU: gpu, Grant: "k-1", Used: 5 * sharing.GiB,
				Cap: 4 * sharing.GiB, Victim: victim}
			c.change(m, &v)
			g.act(t.Context(), v)
			if c.killed {
				if err := cmd.Wait(); err == nil || err.Error() != "signal: killed" {
					t.Errorf("the process ended with %v", err)
				}
			}
			reasons := []string{v.Reason.String()}
			if c.killed && (!slices.Equal(m.killed, reasons) || m.spared != nil) || !c.killed &&
				(m.killed != nil || !slices.Equal(m.spared, reasons)) {
				t.Errorf("killed %v, spared %v", m.killed, m.spared)
			}
			if len(m.violations) != 1 || (m.violations[0].Error == "") != c.killed {
				t.Errorf("audit log: %+v", m.violations)
			}
		})
	}
}

// The audit log names the grant of a killed process, although the grant ends with the process.
func TestAuditNamesTheGrant(t *testing.T) {
	m, g := newMachine(config.Pool{OverCap: config.OverCapKill})
	victim, _ := running(t)
	calls := 0
	g.opt.View = func() View {
		if calls++; calls > 2 { // act and the check before the kill
			return View{}
		}
		return m.view
	}
	g.act(t.Context(), reactive.Verdict{Action: reactive.Kill, GPU: gpu, Grant: "k-1", Cap: 4 * sharing.GiB,
		Victim: victim})
	if len(m.violations) != 1 || m.violations[0].Grant != "k-1" {
		t.Errorf("audit log: %+v", m.violations)
	}
}

// Findings follow what samples show. They forget grants that are gone, and keep the times over the cap of those that
// stay.
func TestFindings(t *testing.T) {
	var f Findings
	v := View{Grants: []Grant{grant("k-1"), grant("k-2")}, Contexts: Contexts{gpu: {Size: sharing.GiB}}}
	v.Grants[1].Backend = sharing.BackendMPS
	caps := append(v.caps(v.Grants[0]), v.caps(v.Grants[1])...)
	stand := func(held sharing.Bytes) []reactive.Standing {
		return []reactive.Standing{{Grant: "k-2", GPU: gpu, Known: held > 0, Used: held}}
	}
	f.breached(reactive.Verdict{Grant: "k-1", GPU: gpu, First: true, Delay: time.Second})
	f.breached(reactive.Verdict{Grant: "k-1", GPU: gpu, Delay: time.Minute}) // still the same time
	if !f.note(v, caps, stand(6*sharing.GiB), map[ledger.GrantID]string{"k-1": "no answer"}) {
		t.Error("levels change, and that is not said")
	}
	if one := f.Of("k-1"); !one.Watched || one.Lost != "no answer" || one.Exceeds != "" {
		t.Errorf("k-1: %+v", one)
	}
	if n, delay := f.Of("k-1").Breaches(gpu); n != 1 || delay != time.Second {
		t.Errorf("%d times over the cap, %s", n, delay)
	}
	if f.Of("k-2").Exceeds == "" {
		t.Error("two programs of MPS hold more than the cap, and that is not said")
	}
	if f.note(v, caps, stand(0), map[ledger.GrantID]string{"k-1": "no answer"}) || f.Of("k-2").Exceeds == "" {
		t.Error("while the usage is unknown, what was said before does not stay")
	}
	if !f.note(v, nil, stand(5*sharing.GiB), nil) || f.Of("k-2").Exceeds != "" || f.Of("k-1").Lost != "" ||
		f.Of("k-1").Watched {
		t.Errorf("within the caps: %+v, %+v", f.Of("k-1"), f.Of("k-2"))
	}
	if n, _ := f.Of("k-1").Breaches(gpu); n != 1 {
		t.Errorf("%d times over the cap", n)
	}
	v.Grants = v.Grants[1:]
	f.note(v, caps, nil, nil)
	if n, _ := f.Of("k-1").Breaches(gpu); n != 0 || f.Of("k-1").Watched {
		t.Error("a grant that is gone is not forgotten")
	}
}

// Compare keeps what was said of a GPU whose usage is unknown. A grant that no container uses holds nothing.
func TestCompare(t *testing.T) {
	var f Findings
	active := *grant("k-1").Grant
	contexts := Contexts{gpu: {Size: sharing.GiB}}
	for i, step := range []struct {
		held             sharing.Bytes
		changed, exceeds bool
	}{{5, false, false}, {6, true, true}, {7, false, true}, {0, false, true}, {4, true, false}} {
		holds := map[sharing.GPURef]sharing.Bytes{}
		if step.held > 0 {
			holds[gpu] = step.held * sharing.GiB
		}
		if changed := f.Compare([]ledger.Grant{active}, contexts, holds); changed != step.changed ||
			(f.Of("k-1").Exceeds != "") != step.exceeds {
			t.Errorf("step %d: changed %v, %q", i, changed, f.Of("k-1").Exceeds)
		}
	}
	f.Compare([]ledger.Grant{active}, contexts, map[sharing.GPURef]sharing.Bytes{gpu: 9 * sharing.GiB})
	f.Released("k-1")
	if f.Of("k-1").Exceeds != "" {
		t.Error("a released grant exceeds its cap")
	}
	active.Active = nil
	if f.Compare([]ledger.Grant{active}, contexts, map[sharing.GPURef]sharing.Bytes{gpu: 9 * sharing.GiB}) ||
		f.Of("k-1").Exceeds != "" {
		t.Error("a grant that is not active exceeds its cap")
	}
}
