// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kerf-gpu/kerf/internal/failpoint"
	"github.com/kerf-gpu/kerf/sharing"
)

// The agent is killed at each point of an injection and an activate. The hook still waits; it asks the next agent
// and is activated, with caps that were read back, whether the driver kept them or not.
func TestAKillAtEachPoint(t *testing.T) {
	for _, point := range []string{"inject-after-record", "hook-after-record", "hook-after-caps", "hook-after-arm"} {
		for name, reloaded := range map[string]bool{"": false, ", driver reloaded": true} {
			t.Run(point+name, func(t *testing.T) {
				b := newPodBench(t)
				b.still()
				other := b.run(b.app("other", "gpu-memory-gib:60"))
				app := b.app("p", "gpu-memory-gib:40", "gpu-percent:10")
				if err := b.ReservePod(t.Context(), []sharing.ContainerRequest{app}); err != nil {
					t.Fatal(err)
				}
				grant := b.active(app, nil).Reservation
				c := &container{b: b, ask: b.initc("p", "prepare", "gpu-memory-gib:30"), id: b.newID()}
				inject := func() {
					in, err := b.Inject(context.WithoutCancel(t.Context()), c.ask, c.id)
					if err != nil {
						t.Error(err)
					}
					c.in = in
				}
				if point == "inject-after-record" {
					b.crash(point, inject)
				} else {
					inject()
					c.make()
					b.crash(point, func() { _ = b.ActivateContainer(context.WithoutCancel(t.Context()), c.calls()[0]) })
				}
				if reloaded {
					b.caps.forget()
					b.VerifyAll(t.Context())
				}
				// Before the container runtime reported anything, and before any other request.
				if g := b.grant(app); g == nil || g.ID != grant.ID {
					t.Fatalf("the grant is now %+v", g)
				}
				b.check()
				if point == "inject-after-record" { // the answer never arrived, and a runtime may go on without it
					refused(t, c.hooks(), sharing.ErrUnavailable, "not yet said")
					b.ContainerMade(c.id, "")
					refused(t, c.hooks(), sharing.ErrNotFound, "made without its grant")
					c.remove()
					c = b.inject(c.ask)
				}
				if err := c.hooks(); err != nil {
					t.Fatal(err)
				}
				b.active(app, c)
				c.limits(map[sharing.GPURef]sharing.Bytes{grant.Placement[0].GPU: 30 * sharing.GiB})
				if g := b.grant(app); len(g.InForce()) != 1 || g.InForce()[0].Memory != 30*sharing.GiB {
					t.Errorf("enforced %+v", g.InForce())
				}
				other.limits(map[sharing.GPURef]sharing.Bytes{other.in.Placement[0].GPU: 60 * sharing.GiB})
				c.exit()
				a := b.run(app)
				a.limits(map[sharing.GPURef]sharing.Bytes{grant.Placement[0].GPU: 40 * sharing.GiB})
				b.check()
				a.remove()
				other.remove()
				b.gone("p", "other")
			})
		}
	}
}

// Killed after the record, and the container is gone when the next agent starts: the grant is held, and no
// attachment or cap is left.
func TestAKillAndTheContainerIsGone(t *testing.T) {
	for _, point := range []string{"hook-after-record", "hook-after-caps", "hook-after-arm"} {
		t.Run(point, func(t *testing.T) {
			b := newPodBench(t)
			b.still()
			c := b.inject(b.app("p", "gpu-memory-gib:40")).make()
			b.crash(point, func() {
				_ = b.ActivateContainer(context.WithoutCancel(t.Context()),
					c.calls()[0])
				c.remove()
			})
			c.remove()
			b.still()
			b.Reconcile(t.Context())
			b.active(c.ask, nil)
			b.check()
			b.run(c.ask).remove()
			b.gone("p")
		})
	}
}

// What a stop and a start in the middle of everything keeps.
func TestARestartUnderRunningPods(t *testing.T) {
	b := newPodBench(t)
	stop := b.started()
	runs := b.run(b.app("runs", "gpu-memory-gib:30"))
	ends := b.run(b.app("ends", "gpu-memory-gib:30"))
	waits := b.inject(b.app("waits", "gpu-memory-gib:30")).make()
	reserved := b.app("claimed", "gpu:1")
	if err := b.ReservePod(t.Context(), []sharing.ContainerRequest{reserved}); err != nil {
		t.Fatal(err)
	}
	b.inject(reserved) // and so it is on record
	back := b.run(b.app("back", "gpu-percent:50"))
	back.exit()
	b.eventually("it is in back-off", func() bool { return b.grant(back.ask).Active == nil })
	before := b.State(t.Context())
	b.restart(stop, ends.remove)
	b.eventually("the attachment that ended meanwhile ends", func() bool { return b.grant(ends.ask).Active == nil })
	after := b.State(t.Context())
	for i, g := range after.GPUs {
		if w := before.GPUs[i]; g.Granted != w.Granted || g.GrantedPercent != w.GrantedPercent {
			t.Errorf("GPU %d: %v granted, there were %v", i, g.Granted, w.Granted)
		}
	}
	b.active(runs.ask, runs)
	runs.limits(map[sharing.GPURef]sharing.Bytes{runs.in.Placement[0].GPU: 30 * sharing.GiB})
	if err := runs.hooks(); err != nil { // a hook of it whose answer was lost
		t.Error(err)
	}
	if err := waits.hooks(); err != nil {
		t.Error(err)
	}
	again := b.run(back.ask)
	if again.in.Grant != back.in.Grant {
		t.Errorf("grant %s, and it was %s", again.in.Grant, back.in.Grant)
	}
	if got := b.active(reserved, nil); got.Level != sharing.LevelExclusive || !got.Placement[0].Whole {
		t.Errorf("whole GPU is now %+v", got.Reservation)
	}
	b.check()
	for _, c := range []*container{runs, waits, again} {
		c.remove()
	}
	b.gone("runs", "ends", "waits", "claimed", "back")
}

// The agent restarts in back-off between two instances. The checkpoint must not tie the next one to the cgroup of the
// former, which its runtime has not removed yet.
func TestARestartBetweenTwoInstances(t *testing.T) {
	b := newPodBench(t)
	b.still()
	ask := b.app("p", "gpu-memory-gib:30")
	former := b.run(ask)
	former.exit()
	b.Reconcile(t.Context())
	next := b.inject(ask)
	b.still()
	b.active(ask, nil)
	b.Reconcile(t.Context())
	if err := next.hooks(); err != nil {
		t.Fatal(err)
	}
	b.active(ask, next)
	next.remove()
	b.gone("p")
}

// The machine was booted: kubelet starts the pods' containers again, with their grants where they were.
func TestPodsOverABoot(t *testing.T) {
	b := newPodBench(t)
	b.still()
	share, whole := b.run(b.app("share", "gpu-memory-gib:30")), b.run(b.app("whole", "gpu:1"))
	p := b.tenant()
	b.activate(p, "own", gib(10))
	held := map[string]sharing.Placement{"share": share.in.Placement, "whole": whole.in.Placement}
	old := share.p.PID
	for _, c := range []*container{share, whole} {
		c.remove()
	}
	p.end()
	b.eventually("its cgroup is empty", func() bool {
		b.Reconcile(t.Context())
		return len(b.State(t.Context()).Grants) == 2
	})
	// As a record of the moment before: with attachments. A cgroup of the next boot may have the name and the inode
	// of one of this.
	share, whole = b.run(share.ask), b.run(whole.ask)
	b.opt.BootID = "the next boot"
	b.caps.forget()
	whole.remove()
	b.still()
	if n := len(b.State(t.Context()).Grants); n != 2 {
		t.Errorf("%d grants", n)
	}
	b.active(share.ask, nil)
	b.active(whole.ask, nil)
	// The ids of the other boot mean nothing.
	refused(t, b.ActivateContainer(t.Context(), sharing.HookCall{ContainerID: share.id, PID: old}), sharing.ErrNotFound)
	share.remove()
	b.witness()
	for _, ask := range []sharing.ContainerRequest{share.ask, whole.ask} {
		c := b.run(ask)
		if got, want := c.in.Placement, held[ask.Ref.Pod]; len(got) != 1 || got[0] != want[0] {
			t.Errorf("%s is on %+v, and was on %+v", ask.Ref, got, want)
		}
		c.remove()
	}
	b.gone("share", "whole")
}

// A pod that was forgotten while no agent ran: who asks kubelet tells of it afterwards.
func TestAPodForgottenWhileNoAgentRan(t *testing.T) {
	b := newPodBench(t)
	b.still()
	c := b.run(b.app("p", "gpu-memory-gib:30"))
	c.remove()
	b.still()
	b.Reconcile(t.Context())
	if got := containersOf(b.PodGrants()); len(got) != 1 {
		t.Errorf("grants of %v: the end of the pod was not reported", got)
	}
	b.gone("p")
}

// The GPU of a grant left the machine while it was off. The grant stays visible, and its container cannot be activated
// without it.
func TestARestoredGrantWithoutItsGPU(t *testing.T) {
	b := newPodBench(t)
	b.still()
	c := b.inject(b.app("p", "gpu-memory-gib:30"))
	gone := c.in.Placement[0].GPU
	b.gpus = b.gpus[1:]
	b.still()
	if b.active(c.ask, nil).Placement[0].GPU != gone {
		t.Error("moved")
	}
	if err := c.hooks(); err == nil {
		t.Error("activated on a GPU that is not there")
	}
	if b.caps.count() != 0 {
		t.Error("a limit is set")
	}
	b.check()
	c.remove()
	b.gone("p")
}

// All containers of a node start at once. Every one is on record before it runs, and they share the writes.
func TestManyContainersAtOnce(t *testing.T) {
	const pods = 110
	b := newPodBench(t)
	b.still()
	all := make([]*container, pods)
	for i := range all {
		all[i] = (&container{b: b, ask: b.app(fmt.Sprintf("p%d", i), "gpu-memory-gib:1", "gpu-percent:1"),
			id: b.newID()}).make()
	}
	writes := b.writes()
	// While a write takes long, all others wait for the one that begins after it.
	at := func(do func(*container) error) {
		t.Helper()
		blocked, resume := make(chan struct{}), make(chan struct{})
		slow, err := failpoint.Parse("record-after-temporary=1*sleep(1s)",
			failpoint.Actions{Sleep: func(time.Duration) { close(blocked); <-resume }})
		if err != nil {
			t.Fatal(err)
		}
		b.Runtime.Failpoints = slow
		var wg sync.WaitGroup
		wg.Go(func() {
			if err := b.Store.Save(); err != nil {
				t.Error(err)
			}
		})
		<-blocked
		for _, c := range all {
			wg.Go(func() {
				if err := do(c); err != nil {
					t.Error(err)
				}
			})
		}
		b.eventually("all wait for the disk", func() bool {
			return b.Store.Waiting() == pods+1 || t.Failed()
		})
		close(resume)
		wg.Wait()
	}
	at(func(c *container) (err error) {
		c.in, err = b.Inject(context.WithoutCancel(t.Context()), c.ask, c.id)
		return err
	})
	if n := writes(); n != 2 {
		t.Errorf("%d writes of the record for %d injections that waited for one disk", n, pods)
	}
	at(func(c *container) error { return b.ActivateContainer(context.WithoutCancel(t.Context()), c.calls()[0]) })
	if n := writes(); n != 2 {
		t.Errorf("%d writes of the record for %d activates that waited for one disk", n, pods)
	}
	b.check()
	onRecord := map[string]bool{}
	for _, g := range b.recorded() {
		onRecord[g.Use.ContainerID] = g.Cgroup != ""
	}
	sum := map[sharing.GPURef]sharing.Bytes{}
	for _, c := range all {
		b.active(c.ask, c)
		f := c.in.Placement[0]
		c.limits(map[sharing.GPURef]sharing.Bytes{f.GPU: sharing.GiB})
		sum[f.GPU] += f.Memory
		if !onRecord[c.id] {
			t.Errorf("container %s runs and is not on record with its cgroup", c.ask.Ref)
		}
	}
	for _, g := range b.gpus {
		if sum[g.Ref()] > g.Usable() {
			t.Errorf("GPU %d: %v granted of %v", g.Index, sum[g.Ref()], g.Usable())
		}
	}
	// A restart finds all of them.
	b.still()
	for _, c := range all {
		b.active(c.ask, c)
	}
	var names []string
	for _, c := range all {
		c.remove()
		names = append(names, c.ask.Ref.Pod)
	}
	writes()
	b.Reconcile(t.Context())
	if n := writes(); n != 1 {
		t.Errorf("%d writes of the record for %d attachments that ended at once", n, pods)
	}
	for _, c := range all {
		b.active(c.ask, nil)
	}
	b.gone(names...)
}

// writes returns a function that counts the writes of the checkpoint since its last call. It counts the temporary files
// in the directory, which have different names.
func (b *bench) writes() func() int {
	b.t.Helper()
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { _ = unix.Close(fd) })
	if _, err := unix.InotifyAddWatch(fd, filepath.Dir(b.opt.RecordPath), unix.IN_CREATE); err != nil {
		b.t.Fatal(err)
	}
	return func() int {
		n, buf := 0, make([]byte, 64<<10)
		for {
			read, err := unix.Read(fd, buf)
			if err != nil || read <= 0 {
				return n
			}
			for at := 0; at+unix.SizeofInotifyEvent <= read; {
				// The length of the name is in the last four bytes of the head.
				name := at + unix.SizeofInotifyEvent
				at = name + int(buf[at+12]) + int(buf[at+13])<<8
				if strings.HasPrefix(string(buf[name:at]), ".kerf-tmp-record.json-") {
					n++
				}
			}
		}
	}
}
