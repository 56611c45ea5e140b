// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package nri

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/adaptation"
	"github.com/containerd/nri/pkg/api"
	nrilog "github.com/containerd/nri/pkg/log"
	"go.uber.org/goleak"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/test/eventually"
)

func TestMain(m *testing.M) {
	nrilog.Set(stubLog{slog.New(slog.DiscardHandler)}) // the runtime's side logs to a global logger
	adaptation.SetPluginRequestTimeout(patience)       // or a slow machine's runtime drops the plugin
	goleak.VerifyTestMain(m)
}

// patience is how long a test waits for what must happen; no test passes by waiting.
const patience = 30 * time.Second

// containerd is the container runtime's side: NRI's own, behind a socket whose connections a test can close, as they
// close when the container runtime ends.
type containerd struct {
	t       testing.TB
	dir     string
	name    string
	version string
	pods    []*api.PodSandbox
	ctrs    []*api.Container

	nri   *adaptation.Adaptation
	front net.Listener
	wg    sync.WaitGroup
	mu    sync.Mutex
	conns []net.Conn
}

func newContainerd(t testing.TB) *containerd {
	dir, err := os.MkdirTemp("", "nri") // short: a unix socket's path has 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	c := &containerd{t: t, dir: dir, name: "containerd", version: "v2.4.2"}
	t.Cleanup(c.stop)
	return c
}

func (c *containerd) socket() string { return filepath.Join(c.dir, "nri.sock") }

func (c *containerd) start() *containerd {
	c.t.Helper()
	var err error
	back := filepath.Join(c.dir, "back.sock")
	sync := func(ctx context.Context, cb adaptation.SyncCB) error {
		_, err := cb(ctx, c.pods, c.ctrs)
		return err
	}
	update := func(context.Context, []*api.ContainerUpdate) ([]*api.ContainerUpdate, error) { return nil, nil }
	c.nri, err = adaptation.New(c.name, c.version, sync, update, adaptation.WithSocketPath(back),
		adaptation.WithPluginPath(filepath.Join(c.dir, "none")),
		adaptation.WithPluginConfigPath(filepath.Join(c.dir, "none")))
	if err == nil {
		err = c.nri.Start()
	}
	if err == nil {
		c.front, err = net.Listen("unix", c.socket())
	}
	if err != nil {
		c.t.Fatal(err)
	}
	front := c.front
	c.wg.Go(func() {
		for {
			in, err := front.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("unix", back)
			if err != nil {
				in.Close()
				continue
			}
			c.mu.Lock()
			c.conns = append(c.conns, in, out)
			c.mu.Unlock()
			pipe := func(a, b net.Conn) {
				_, _ = io.Copy(a, b)
				a.Close()
				b.Close()
			}
			c.wg.Go(func() { pipe(in, out) })
			c.wg.Go(func() { pipe(out, in) })
		}
	})
	return c
}

// stop ends the runtime as a kill does: all its connections close.
func (c *containerd) stop() {
	if c.nri == nil {
		return
	}
	c.front.Close()
	c.mu.Lock()
	for _, conn := range c.conns {
		conn.Close()
	}
	c.conns = nil
	c.mu.Unlock()
	c.wg.Wait()
	c.nri.Stop()
	c.nri = nil
}

func (c *containerd) runPod(pod *api.PodSandbox) error {
	defer c.nri.BlockPluginSync().Unblock()
	return c.nri.RunPodSandbox(context.Background(), &api.RunPodSandboxRequest{Pod: pod})
}

func (c *containerd) create(pod *api.PodSandbox, ctr *api.Container) (*api.ContainerAdjustment, error) {
	defer c.nri.BlockPluginSync().Unblock()
	rpl, err := c.nri.CreateContainer(context.Background(), &api.CreateContainerRequest{Pod: pod, Container: ctr})
	return rpl.GetAdjust(), err
}

func (c *containerd) startContainer(pod *api.PodSandbox, ctr *api.Container) error {
	defer c.nri.BlockPluginSync().Unblock()
	return c.nri.StartContainer(context.Background(), &api.StartContainerRequest{Pod: pod, Container: ctr})
}

// fakeNode answers what its functions answer, and notes its calls.
type fakeNode struct {
	grant  func(context.Context, []sharing.ContainerRequest) error
	inject func(context.Context, sharing.ContainerRequest, string) (sharing.Injection, error)
	look   func(context.Context, []sharing.Seen) error

	mu       sync.Mutex
	reserved [][]sharing.ContainerRequest
	asked    map[string]sharing.ContainerRequest
	seen     [][]sharing.Seen
	gone     []string
	made     []string // "id note" of each container
}

func (n *fakeNode) ReservePod(ctx context.Context, asks []sharing.ContainerRequest) error {
	n.mu.Lock()
	n.reserved = append(n.reserved, asks)
	n.mu.Unlock()
	if n.grant != nil {
		return n.grant(ctx, asks)
	}
	return nil
}

func (n *fakeNode) Inject(ctx context.Context, ask sharing.ContainerRequest, id string) (sharing.Injection, error) {
	n.mu.Lock()
	if n.asked == nil {
		n.asked = map[string]sharing.ContainerRequest{}
	}
	n.asked[id] = ask
	n.mu.Unlock()
	if n.inject != nil {
		return n.inject(ctx, ask, id)
	}
	return injection(), nil
}

func (n *fakeNode) SyncRuntime(ctx context.Context, seen []sharing.Seen) error {
	n.mu.Lock()
	n.seen = append(n.seen, seen)
	n.mu.Unlock()
	if n.look != nil {
		return n.look(ctx, seen)
	}
	return nil
}

func (n *fakeNode) ContainerMade(id, note string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.made = append(n.made, id+" "+note)
}

func (n *fakeNode) ContainerRemoved(id string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.gone = append(n.gone, id)
}

func (n *fakeNode) isGone(id string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Contains(n.gone, id)
}

func (n *fakeNode) witnessed() [][]sharing.Seen {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.seen)
}

// fakeStarts refuses containers by id, and notes whom it was asked for.
type fakeStarts struct {
	mu     sync.Mutex
	refuse map[string]error
	asked  []string
}

func (f *fakeStarts) Starting(_ context.Context, id string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked = append(f.asked, id)
	return f.refuse[id]
}

// fakePods knows pods by UID; one that it does not know is waited for, as the API server's view does.
type fakePods struct {
	unread bool
	mu     sync.Mutex
	byUID  map[string]sharing.Pod
	asked  []string
	waits  []time.Duration
}

func (p *fakePods) Pod(ctx context.Context, uid string) (sharing.Pod, bool, error) {
	end, _ := ctx.Deadline()
	p.mu.Lock()
	p.asked, p.waits = append(p.asked, uid), append(p.waits, time.Until(end))
	pod, ok := p.byUID[uid]
	p.mu.Unlock()
	if ok {
		return pod, true, nil
	}
	<-ctx.Done()
	if p.unread {
		return sharing.Pod{}, false, fmt.Errorf("not read: %w", sharing.ErrUnavailable)
	}
	return sharing.Pod{}, false, nil
}

// conditions notes what the plugin said of itself.
type conditions struct {
	mu  sync.Mutex
	all []string
}

func (c *conditions) add(s string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all = append(c.all, s)
}

func (c *conditions) last() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.all) == 0 {
		return "nothing was said"
	}
	return c.all[len(c.all)-1]
}

func (c *conditions) list() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.all)
}

// bench is a plugin that runs, and what it works with.
type bench struct {
	node   *fakeNode
	pods   *fakePods
	starts *fakeStarts
	said   *conditions
	stop   func() // ends Run and waits for it
}

// plug runs a plugin at the socket until the test ends.
func plug(t testing.TB, socket string, node *fakeNode, change ...func(*Options)) *bench {
	t.Helper()
	b := &bench{node: node, pods: &fakePods{byUID: map[string]sharing.Pod{}},
		starts: &fakeStarts{refuse: map[string]error{}}, said: &conditions{}}
	o := Options{Socket: socket, Log: slog.New(slog.DiscardHandler), Node: node, Pods: b.pods, Starts: b.starts,
		Edits: editsOfGPU, Exempt: []string{"kerf-system"}, Condition: b.said.add}
	for _, f := range change {
		f(&o)
	}
	p, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	b.stop = sync.OnceFunc(func() {
		cancel()
		select {
		case err := <-ended:
			if err != nil {
				t.Errorf("Run() = %v, want nil", err)
			}
		case <-time.After(patience):
			t.Error("Run did not end")
		}
	})
	t.Cleanup(b.stop)
	return b
}

// serving waits until the plugin says that all is well.
func (b *bench) serving(t testing.TB) *bench {
	t.Helper()
	eventually.True(t, "the plugin serves", func() bool { return b.said.last() == "" })
	return b
}

func (b *bench) know(p sharing.Pod) {
	b.pods.mu.Lock()
	defer b.pods.mu.Unlock()
	b.pods.byUID[p.UID] = p
}

const (
	gpu0 = sharing.GPUID("GPU-00000000-0000-0000-0000-000000000000")
	gpu1 = sharing.GPUID("GPU-11111111-1111-1111-1111-111111111111")
)

func injection() sharing.Injection {
	return sharing.Injection{
		Grant: "k-1", Level: sharing.LevelDriver, Annotation: `{"grant":"k-1"}`,
		Placement: sharing.Placement{{GPU: sharing.GPURef{UUID: gpu0}, Memory: 10 * sharing.GiB}},
		Env:       map[string]string{"KERF_GRANT": "k-1", "KERF_GPUS": string(gpu0)},
	}
}

// podOf is a pod "default/NAME" as kubelet makes it for the API server.
func podOf(name string, annotations ...string) *api.PodSandbox {
	all := map[string]string{sourceAnnotation: sourceAPI}
	for i := 0; i+1 < len(annotations); i += 2 {
		all[annotations[i]] = annotations[i+1]
	}
	return &api.PodSandbox{Id: "box-" + name, Name: name, Uid: "uid-" + name, Namespace: "default", Annotations: all}
}

func containerOf(name string, cdi ...string) *api.Container {
	c := &api.Container{Id: "id-" + name, PodSandboxId: "box-train", Name: name, Env: []string{"PATH=/bin"}}
	for _, d := range cdi {
		c.CDIDevices = append(c.CDIDevices, &api.CDIDevice{Name: d})
	}
	return c
}

// guarded are the CDI names of a container that kubelet admitted with 10 GiB.
func guarded() []string {
	return []string{sharing.HookDevice, sharing.CDIRequest + "=gpu-memory-gib:10"}
}

// memory is a container of a pod's spec with so many GiB.
func memory(name string, kind sharing.ContainerKind, gib string) sharing.PodContainer {
	return sharing.PodContainer{Name: name, Kind: kind, Limits: map[string]string{sharing.ResourceMemory: gib}}
}

// specOf is the API server's pod for podOf(name).
func specOf(name string, containers ...sharing.PodContainer) sharing.Pod {
	return sharing.Pod{UID: "uid-" + name, Namespace: "default", Name: name, Containers: containers}
}
