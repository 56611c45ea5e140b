// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kerf-gpu/kerf/mig"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/node/instances"
)

// fakeMIG creates instances on a GPU of seven units: of one unit ("1g") or three ("3g").
type fakeMIG struct {
	gpu  sharing.GPUID
	mu   sync.Mutex
	made map[sharing.Instance]string
	n    int
	// fail is what Ensure says, and hold keeps it waiting until it is closed.
	fail error
	hold chan struct{}
}

var fakeSizes = map[string]int{"1g": 1, "3g": 3}

func (m *fakeMIG) Candidate(gpu sharing.GPUID, profile string, start int, reserved []mig.Granted) mig.Candidate {
	if profile == ">= 8GiB" {
		profile = "1g"
	}
	size := fakeSizes[profile]
	if gpu != m.gpu || size == 0 {
		return mig.Candidate{Detail: "has no such profile", Never: true, Reason: mig.NoProfile}
	}
	for at := 7 - size; at >= 0; at-- {
		in := sharing.Instance{Profile: profile, ID: size, Start: at, Size: size}
		if (start == mig.AnyStart || start == at) &&
			!slices.ContainsFunc(reserved, func(c mig.Granted) bool { return c.Instance.Overlaps(in) }) {
			return mig.Candidate{Share: sharing.Share{GPU: sharing.GPURef{UUID: gpu},
				Memory: sharing.Bytes(size) * 10 * sharing.GiB, MIG: in}}
		}
	}
	return mig.Candidate{Detail: "is full", Reason: mig.Full}
}

func (m *fakeMIG) Would(gpu sharing.GPUID, profile string, start int, reserved []mig.Granted) mig.Candidate {
	return m.Candidate(gpu, profile, start, reserved)
}

func (m *fakeMIG) ModeSwitchable(sharing.GPUID) bool { return false }

func (m *fakeMIG) SwitchMode(context.Context, sharing.GPUID, bool) error { return sharing.ErrDenied }

func (m *fakeMIG) Fits(_ sharing.GPUID, profile string, in sharing.Instance) bool {
	return profile == in.Profile
}

func (m *fakeMIG) Ensure(ctx context.Context, gpu sharing.GPUID, in sharing.Instance, _ string) (sharing.MIGDevice,
	bool, error) {
	m.mu.Lock()
	hold := m.hold
	m.mu.Unlock()
	if hold != nil {
		select {
		case <-hold:
		case <-ctx.Done():
			return sharing.MIGDevice{}, false, ctx.Err()
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.fail != nil {
		return sharing.MIGDevice{}, false, m.fail
	}
	uuid, warm := m.made[in]
	if !warm {
		m.n++
		uuid = fmt.Sprintf("MIG-%d", m.n)
		m.made[in] = uuid
	}
	return sharing.MIGDevice{GPU: gpu, UUID: uuid, GI: in.Start, CI: 0}, warm, nil
}

func (m *fakeMIG) Wake() {}

func (m *fakeMIG) States() []mig.State {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := mig.State{GPU: m.gpu, Able: true, On: true, Units: 7, MaxInstances: map[string]int{"1g": 7, "3g": 2}}
	for in, uuid := range m.made {
		s.Instances = append(s.Instances, mig.Instance{Instance: in, Managed: true, Ready: true, UUID: uuid})
	}
	return []mig.State{s}
}

func (m *fakeMIG) set(f func()) { m.mu.Lock(); defer m.mu.Unlock(); f() }

// migBench is a pod bench whose GPU 0 is in MIG mode.
type migBench struct {
	*bench
	mig *fakeMIG
	mu  sync.Mutex
	// shown is the last list that the container runtime received. The notices are those for users.
	shown   []instances.Shown
	notices []instances.Notice
	refuse  error
}

func newMIGBench(t *testing.T) *migBench {
	t.Helper()
	b := &migBench{bench: newPodBench(t)}
	b.gpus[0].MIG, b.gpus[0].MIGCapable = true, true
	b.mig = &fakeMIG{gpu: b.gpus[0].UUID, made: map[sharing.Instance]string{}}
	root := t.TempDir()
	b.opt.CapsRoot = root
	b.number(100)
	if err := os.WriteFile(filepath.Join(root, "proc/devices"),
		[]byte("Character devices:\n195 nvidia\n236 nvidia-caps\n"), 0o444); err != nil {
		t.Fatal(err)
	}
	return b
}

// number gives the capabilities of each instance that can be numbers from the first one on, as a driver has them.
func (b *migBench) number(first int) {
	b.t.Helper()
	for gi := range 7 {
		for i, dir := range []string{fmt.Sprintf("gi%d", gi), fmt.Sprintf("gi%d/ci0", gi)} {
			dir = filepath.Join(b.opt.CapsRoot, "proc/driver/nvidia/capabilities", "gpu0/mig", dir)
			if err := os.MkdirAll(dir, 0o755); err != nil {
				b.t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, "access"), fmt.Appendf(nil, "DeviceFileMinor: %d\n",
				first+10*gi+i), 0o600); err != nil {
				b.t.Fatal(err)
			}
		}
	}
}

// numbers are the last ones that the container runtime received for a device.
func (b *migBench) numbers(uuid string) []int {
	b.mu.Lock()
	defer b.mu.Unlock()
	var out []int
	for _, s := range b.shown {
		for _, c := range s.Capabilities {
			if s.Device.UUID == uuid {
				out = append(out, c.Minor)
			}
		}
	}
	return out
}

// The driver may give an instance other capability numbers. Then the agent updates the container runtime, at run time
// and at start. A query returns the current numbers.
func TestCapabilityNumbersAreReadAnew(t *testing.T) {
	b := newMIGBench(t)
	stop := b.begin()
	ask := b.app("train", "mig-3g:1")
	ask.Advice = sharing.Advice{GPUs: []sharing.GPUID{b.gpus[0].UUID},
		MIG: sharing.InstanceRef{Profile: "3g", Start: 1}}
	c := b.run(ask)
	if got := b.numbers("MIG-1"); !slices.Equal(got, []int{110, 111}) {
		t.Fatalf("numbers %v", got)
	}
	b.number(500)
	b.eventually("other numbers", func() bool { return slices.Equal(b.numbers("MIG-1"), []int{510, 511}) })
	stop()
	b.number(300)
	b.begin()
	b.eventually("other numbers after a restart",
		func() bool { return slices.Equal(b.numbers("MIG-1"), []int{310, 311}) })
	b.number(700)
	files, err := b.Instances.Files.Capabilities(b.gpus[0], c.in.Device)
	if err != nil || len(files) != 2 || !strings.HasSuffix(files[0].Host, "nvidia-cap710") ||
		!strings.HasSuffix(files[1].Host, "nvidia-cap711") {
		t.Errorf("%v, %v", files, err)
	}
	seen := []sharing.Seen{{Running: true, ID: "x", Devices: []string{"nvidia0", "nvidia-cap710"}},
		{Running: true, ID: "y", Devices: []string{"nvidia0", "nvidia-cap310"}}}
	if got := b.UnaccountedOn(b.gpus[0].UUID, seen); len(got) != 2 || got[0].GI != 1 || got[1].GI != mig.AnyInstance {
		t.Errorf("who holds what: %+v", got)
	}
	c.remove()
}

// begin starts the runtime, as each agent does.
func (b *migBench) begin() (stop func()) {
	b.t.Helper()
	b.Runtime = New(b.opt)
	b.Instances.ShowTo(func(_ context.Context, devices []instances.Shown) error {
		b.mu.Lock()
		defer b.mu.Unlock()
		if b.refuse != nil {
			return b.refuse
		}
		b.shown = devices
		return nil
	})
	b.Instances.NotifyTo(func(_ context.Context, n instances.Notice) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.notices = append(b.notices, n)
	})
	if err := b.Restore(b.t.Context()); err != nil {
		b.t.Fatal(err)
	}
	b.SetMIG(b.mig)
	b.attach()
	return b.loops()
}

func (b *migBench) told() (uuids []string, last instances.Notice) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, s := range b.shown {
		uuids = append(uuids, s.Device.UUID)
	}
	if n := len(b.notices); n > 0 {
		last = b.notices[n-1]
	}
	return uuids, last
}

// A pod's instance is reserved with its sandbox and created at once. The container gets its device once the container
// runtime knows it, and the entry is removed with the pod.
func TestPodGetsAnInstance(t *testing.T) {
	b := newMIGBench(t)
	b.mig.hold = make(chan struct{})
	b.begin()
	ask := b.app("train", "mig-3g:1")
	ask.Advice = sharing.Advice{GPUs: []sharing.GPUID{b.gpus[0].UUID},
		MIG: sharing.InstanceRef{Profile: "3g", Start: 1}}
	if err := b.ReservePod(t.Context(), []sharing.ContainerRequest{ask}); err != nil {
		t.Fatal(err)
	}
	b.eventually("the cut is known", func() bool { return len(b.PendingInstances()) == 1 })
	if why := b.PendingInstances()[0]; !strings.Contains(why, "3g at 1") || !strings.Contains(why, "ns/train") {
		t.Errorf("pending: %s", why)
	}
	late, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	_, err := b.Inject(late, ask, b.newID())
	refused(t, err, sharing.ErrUnavailable, "still being created")
	close(b.mig.hold)
	c := b.run(ask)
	// The container may have its device before the word of it is out.
	b.eventually("the notice", func() bool { _, n := b.told(); return n.Container == ask.Ref })
	uuids, notice := b.told()
	if c.in.Device.UUID != "MIG-1" || !slices.Equal(uuids, []string{"MIG-1"}) || len(b.PendingInstances()) != 0 {
		t.Errorf("device %+v, shown %v, pending %v", c.in.Device, uuids, b.PendingInstances())
	}
	want := []instances.Capability{
		{Path: "/dev/nvidia-caps/nvidia-cap110", Host: filepath.Join(b.opt.CapsRoot, "dev/nvidia-caps/nvidia-cap110"),
			Major: 236, Minor: 110},
		{Path: "/dev/nvidia-caps/nvidia-cap111", Host: filepath.Join(b.opt.CapsRoot, "dev/nvidia-caps/nvidia-cap111"),
			Major: 236, Minor: 111},
	}
	b.mu.Lock()
	got := b.shown[0].Capabilities
	b.mu.Unlock()
	if !slices.Equal(got, want) {
		t.Errorf("capabilities %+v", got)
	}
	if notice.Container != ask.Ref || notice.Warm || notice.Err != nil || notice.Instance.Start != 1 {
		t.Errorf("notice %+v", notice)
	}
	if g := b.grant(ask); g == nil || g.Level != sharing.LevelHardware || g.Placement[0].MIG.Start != 1 ||
		g.Active == nil {
		t.Errorf("grant %+v", g)
	}
	c.remove()
	b.PodRemoved(ask.Ref.PodUID)
	b.eventually("the instance is hidden", func() bool { uuids, _ := b.told(); return len(uuids) == 0 })
}

// The container that waits gets the error of a failed creation, others do not. The creation is tried again.
func TestAFailedCutIsTriedAgain(t *testing.T) {
	b := newMIGBench(t)
	b.mig.fail = fmt.Errorf("in use by process 7: %w", sharing.ErrConflict)
	b.begin()
	ask := b.app("train", "mig-1g:1")
	if err := b.ReservePod(t.Context(), []sharing.ContainerRequest{ask}); err != nil {
		t.Fatal(err)
	}
	_, err := b.Inject(t.Context(), ask, b.newID())
	refused(t, err, sharing.ErrConflict, "process 7")
	if why := b.PendingInstances(); len(why) != 0 {
		t.Errorf("others wait for %v", why)
	}
	if _, n := b.told(); !errors.Is(n.Err, sharing.ErrConflict) {
		t.Errorf("notice %+v", n)
	}
	b.mig.set(func() { b.mig.fail = nil })
	b.eventually("the instance is cut", func() bool { uuids, _ := b.told(); return len(uuids) == 1 })
	b.run(ask).remove()
}

// A new agent finds the instances of what runs, and creates a lost one again for the next container, whose device is
// another one.
func TestInstancesOverARestart(t *testing.T) {
	b := newMIGBench(t)
	stop := b.begin()
	runs, next := b.app("runs", "mig-1g:1"), b.app("next", "mig-1g:1")
	c, d := b.run(runs), b.run(next)
	d.remove()
	stop()
	b.mig.set(func() { delete(b.mig.made, b.grant(next).Placement[0].MIG) })
	b.begin()
	b.eventually("both are known", func() bool {
		uuids, _ := b.told()
		return slices.Equal(uuids,
			[]string{"MIG-1", "MIG-3"})
	})
	if e := b.run(next); e.in.Device.UUID != "MIG-3" {
		t.Errorf("device %+v", e.in.Device)
	} else {
		e.remove()
	}
	c.remove()
}

// An init container uses the instance of a later one with the same profile. Memory that only hardware may enforce is
// the smallest instance that has it.
func TestWhatAnswersWithAnInstance(t *testing.T) {
	b := newMIGBench(t)
	b.begin()
	app, first := b.app("p", "mig-1g:1"), b.initc("p", "first", "mig-1g:1")
	if err := b.ReservePod(t.Context(), []sharing.ContainerRequest{first, app}); err != nil {
		t.Fatal(err)
	}
	if b.grant(first) != nil || b.grant(app) == nil {
		t.Errorf("init %+v, app %+v", b.grant(first), b.grant(app))
	}
	i := b.run(first)
	if i.in.Grant != string(b.grant(app).ID) || i.in.Device.UUID == "" {
		t.Errorf("the init container got %+v", i.in)
	}
	i.remove()
	hard := b.app("hard", "gpu-memory-gib:8")
	hard.Request.MinLevel = sharing.LevelHardware
	c := b.run(hard)
	if g := b.grant(hard); c.in.Device.UUID == "" || g.Placement[0].MIG.Profile != "1g" ||
		!slices.Equal(c.in.Requests, hard.Requests) {
		t.Errorf("%+v of %+v", c.in, g)
	}
	c.remove()
	_, err := b.Inject(t.Context(), b.app("q", "mig-7g:1"), b.newID())
	refused(t, err, sharing.ErrUnsupported, "has no such profile")
	b.mu.Lock()
	b.refuse = fmt.Errorf("no space: %w", sharing.ErrUnavailable)
	b.mu.Unlock()
	_, err = b.Inject(t.Context(), b.app("r", "mig-1g:1"), b.newID())
	refused(t, err, sharing.ErrUnavailable, "no space")
}

// A container of no pod gets its instance with its grant. The instance exists and is known to the container runtime
// before the answer.
func TestAContainerOfNoPodGetsAnInstance(t *testing.T) {
	b := newMIGBench(t)
	b.begin()
	root := b.tenant().Peer
	root.UID = 0
	id, err := b.ReserveForContainer(t.Context(), root, "run", sharing.Request{Kind: sharing.KindMIG, MIG: "1g",
		GPUs: 1},
		0)
	if err != nil {
		t.Fatal(err)
	}
	in, err := b.InjectionOf(id)
	uuids, n := b.told()
	if err != nil || in.Device.UUID != "MIG-1" || !slices.Equal(uuids, []string{"MIG-1"}) || n.Instance.Profile != "" {
		t.Errorf("%+v, shown %v, a pod was notified of %+v: %v", in, uuids, n, err)
	}
	if err := b.Release(t.Context(), root, id); err != nil {
		t.Error(err)
	}
	b.eventually("the instance is hidden", func() bool { uuids, _ := b.told(); return len(uuids) == 0 })
}
