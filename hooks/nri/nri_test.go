// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package nri

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/adaptation"
	"github.com/containerd/nri/pkg/api"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/test/eventually"
)

func TestNewRefusesWhatIsMissing(t *testing.T) {
	if _, err := New(Options{}); !errors.Is(err, sharing.ErrInvalid) {
		t.Errorf("New() = %v, want ErrInvalid", err)
	}
}

func TestPodAndContainer(t *testing.T) {
	c := newContainerd(t).start()
	b := plug(t, c.socket(), &fakeNode{}).serving(t)
	spec := specOf("train", memory("prepare", sharing.ContainerInit, "2"), memory("log", sharing.ContainerSidecar, "1"),
		sharing.PodContainer{Name: "proxy"}, memory("train", sharing.ContainerApp, "10"))
	spec.Priority = 1000
	b.know(spec)
	pod := podOf("train", sharing.PlacementAnnotation("train"), string(gpu1), "kerf.dev/min-enforcement", "driver")
	if err := c.runPod(pod); err != nil {
		t.Fatal(err)
	}
	want := []sharing.ContainerRequest{
		{Kind: sharing.ContainerInit, Requests: []sharing.ResourceRequest{{Resource: "gpu-memory-gib", Count: 2}}},
		{Kind: sharing.ContainerSidecar, Requests: []sharing.ResourceRequest{{Resource: "gpu-memory-gib", Count: 1}}},
		{Kind: sharing.ContainerApp, Requests: []sharing.ResourceRequest{{Resource: "gpu-memory-gib", Count: 10}},
			Advice: sharing.Advice{GPUs: []sharing.GPUID{gpu1}}},
	}
	for i, name := range []string{"prepare", "log", "train"} {
		want[i].Ref, want[i].Priority = sharing.ContainerRef{PodUID: "uid-train", Namespace: "default", Pod: "train",
			Container: name}, 1000
	}
	got := b.node.reserved
	if len(got) != 1 {
		t.Fatalf("%d grants, want 1", len(got))
	}
	if d := cmp.Diff(want, got[0], cmpopts.IgnoreFields(sharing.ContainerRequest{}, "Request"),
		cmpopts.EquateEmpty()); d != "" {
		t.Error(d)
	}
	for _, ask := range got[0] {
		if ask.Request.MinLevel != sharing.LevelDriver {
			t.Errorf("the request of %s has level %v: the annotation did not count", ask.Ref.Container,
				ask.Request.MinLevel)
		}
	}
	for i, name := range []string{"prepare", "log", "train"} {
		a, err := c.create(pod, containerOf(name, sharing.HookDevice, want[i].Requests[0].Device(),
			"kerf.dev/numa=1:1"))
		if err != nil {
			t.Fatal(err)
		}
		if len(a.GetCDIDevices()) != 1 || a.GetCDIDevices()[0].GetName() != "kerf.dev/gpu="+string(gpu0) {
			t.Errorf("%s got CDI devices %v", name, a.GetCDIDevices())
		}
		ask := want[i]
		ask.Advice.NUMA = []sharing.NUMAAffinity{{NUMA: 1, Count: 1}}
		if d := cmp.Diff(ask, b.node.asked["id-"+name], cmpopts.IgnoreFields(sharing.ContainerRequest{}, "Request"),
			cmpopts.EquateEmpty()); d != "" {
			t.Error(d)
		}
	}
}

// What a container requests is what kubelet admitted, whatever the spec or the annotations say.
func TestAmountsComeFromCDINames(t *testing.T) {
	c := newContainerd(t).start()
	b := plug(t, c.socket(), &fakeNode{}).serving(t)
	b.know(specOf("train", memory("train", sharing.ContainerApp, "70")))
	ctr := containerOf("train", guarded()...)
	ctr.Annotations = map[string]string{"cdi.k8s.io/x": "kerf.dev/ask=gpu-memory-gib:70"}
	if _, err := c.create(podOf("train", "cdi.k8s.io/x", "kerf.dev/ask=gpu-memory-gib:70"), ctr); err != nil {
		t.Fatal(err)
	}
	ask := b.node.asked["id-train"]
	if ask.Request.Memory != 10*sharing.GiB || len(ask.Requests) != 1 || ask.Requests[0].Count != 10 {
		t.Errorf("requested %v (%v), want 10GiB", ask.Request, ask.Requests)
	}
}

func TestOtherContainers(t *testing.T) {
	c := newContainerd(t).start()
	b := plug(t, c.socket(), &fakeNode{}).serving(t)
	b.know(specOf("dcgm", memory("main", sharing.ContainerApp, "10")))
	system := podOf("dcgm")
	system.Namespace = "kerf-system"
	tests := map[string]struct {
		pod  *api.PodSandbox
		cdi  []string
		want []string // values of NVIDIA_VISIBLE_DEVICES
	}{
		"no request":          {podOf("web"), nil, []string{"void"}},
		"devices of others":   {podOf("web"), []string{"nvidia.com/gpu=all", "example.com/nic=1"}, []string{"void"}},
		"exempt":              {system, nil, []string{"all"}},
		"guarded, yet exempt": {system, guarded(), []string{"void"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			ctr := containerOf("main", tt.cdi...)
			ctr.Env = append(ctr.Env, "NVIDIA_VISIBLE_DEVICES=all")
			a, err := c.create(tt.pod, ctr)
			if err != nil {
				t.Fatal(err)
			}
			spec, err := applied(&api.Container{Env: []string{"PATH=/bin", "NVIDIA_VISIBLE_DEVICES=all"}}, a, nil)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(tt.want, envOf(spec, visibleEnv)); d != "" {
				t.Error(d)
			}
		})
	}
	if n := len(b.node.asked); n != 1 {
		t.Errorf("%d containers requested a grant, want the guarded one", n)
	}
}

func TestWrongCDINamesAreRefused(t *testing.T) {
	c := newContainerd(t).start()
	b := plug(t, c.socket(), &fakeNode{}).serving(t)
	for name, cdi := range map[string][]string{
		"guard alone":       {sharing.HookDevice},
		"ask without guard": {"kerf.dev/ask=gpu-memory-gib:1"},
		"two amounts":       {sharing.HookDevice, "kerf.dev/ask=gpu-memory-gib:1", "kerf.dev/ask=gpu-memory-gib:2"},
		"a GPU by name":     {"kerf.dev/gpu=" + string(gpu0)},
		"unknown kind":      {sharing.HookDevice, "kerf.dev/all=all"},
	} {
		t.Run(name, func(t *testing.T) {
			if a, err := c.create(podOf("train"), containerOf("main", cdi...)); err == nil {
				t.Errorf("created with %v", a)
			}
		})
	}
	if len(b.node.asked) > 0 {
		t.Errorf("the node was asked: %v", b.node.asked)
	}
}

func TestRefusedGrantSaysWhy(t *testing.T) {
	c := newContainerd(t).start()
	node := &fakeNode{grant: func(context.Context, []sharing.ContainerRequest) error {
		return fmt.Errorf("container %q: %w", "train",
			fmt.Errorf("not enough free for 10GiB of one GPU: none of the 2 GPUs that can give it has enough free "+
				"now\n  GPU 0 (H100): 4GiB free of 79GiB, 10GiB requested\n  GPU 1 (H100): suspect: %w",
				sharing.ErrExhausted))
	}}
	b := plug(t, c.socket(), node).serving(t)
	b.know(specOf("train", memory("train", sharing.ContainerApp, "10")))
	err := c.runPod(podOf("train"))
	if err == nil {
		t.Fatal("the sandbox was made")
	}
	const want = `kerf: pod default/train requests kerf.dev/gpu-memory-gib=10 in container train: container "train": not enough free for 10GiB of one GPU: none of the 2 GPUs that can give it has enough free now; ` +
		`kubelet tries again until enough is free: request less, or end a pod that holds GPUs of this node (kerf status shows them) (GPU 0 (H100): 4GiB free of 79GiB, 10GiB requested; GPU 1 (H100): suspect: exhausted)`
	if !strings.HasSuffix(err.Error(), want) {
		t.Errorf("got  %s\nwant %s", err, want)
	}
}

func TestWrongRequestsAreReportedTogether(t *testing.T) {
	c := newContainerd(t).start()
	b := plug(t, c.socket(), &fakeNode{}).serving(t)
	b.know(specOf("train", sharing.PodContainer{Name: "a", Limits: map[string]string{sharing.ResourceGPU: "1",
		sharing.ResourceMemory: "3"}},
		sharing.PodContainer{Name: "b", Limits: map[string]string{"kerf.dev/mig-1g.10gb": "2"}}))
	err := c.runPod(podOf("train"))
	if err == nil {
		t.Fatal("the sandbox was made")
	}
	for _, want := range []string{`container "a": `, "cannot be mixed", `container "b": `, "kerf.dev/mig-1g.10gb",
		"fix this in the pod and create it again"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in: %s", want, err)
		}
	}
	if strings.Contains(err.Error(), "\n") {
		t.Errorf("more than one line: %s", err)
	}
	if len(b.node.reserved) > 0 {
		t.Error("the node was asked")
	}
}

// A pod that requests nothing is left alone, whatever its annotations.
func TestPodsOfOthersAreLeftAlone(t *testing.T) {
	c := newContainerd(t).start()
	b := plug(t, c.socket(), &fakeNode{}).serving(t)
	b.know(specOf("web", sharing.PodContainer{Name: "web"}))
	if err := c.runPod(podOf("web", "kerf.dev/nonsense", "1")); err != nil {
		t.Error(err)
	}
	static := podOf("apiserver")
	static.Annotations[sourceAnnotation] = "file"
	if err := c.runPod(static); err != nil {
		t.Error(err)
	}
	bare := podOf("crictl")
	bare.Annotations = nil
	if err := c.runPod(bare); err != nil {
		t.Error(err)
	}
	if d := cmp.Diff([]string{"uid-web"}, b.pods.asked); d != "" {
		t.Errorf("looked up: %s", d)
	}
}

// While the API server cannot be read, a pod is made without its grants, and all but the first soon.
func TestUnreadAPIServerDelaysNoPod(t *testing.T) {
	c := newContainerd(t).start()
	b := plug(t, c.socket(), &fakeNode{}).serving(t)
	b.pods.unread = true
	for i := range 4 {
		if err := c.runPod(podOf(fmt.Sprintf("p%d", i))); err != nil {
			t.Error(err)
		}
	}
	if _, err := c.create(podOf("p0"), containerOf("main", guarded()...)); err != nil {
		t.Error(err)
	}
	if k := b.node.asked["id-main"].Kind; k != sharing.ContainerApp {
		t.Errorf("kind %v, want app where the spec is not known", k)
	}
	for i, w := range b.pods.waits {
		if i == 0 && w < glance || i > 0 && w > glance {
			t.Errorf("look-up %d may wait %s", i, w)
		}
	}
	b.pods.unread = false
	b.know(specOf("p9", memory("main", sharing.ContainerApp, "1")))
	if err := c.runPod(podOf("p9")); err != nil {
		t.Error(err)
	}
	if len(b.node.reserved) != 1 {
		t.Errorf("%d grants, want that of p9", len(b.node.reserved))
	}
}

// A node that does not answer fails the request in time: the runtime neither goes on without the plugin nor
// drops it. What was begun goes on, and is let go of when its container will never be.
func TestSlowNode(t *testing.T) {
	// A quarter of it is what the plugin's answer has on its way: enough on a machine that is busy, too.
	adaptation.SetPluginRequestTimeout(4 * time.Second)
	defer adaptation.SetPluginRequestTimeout(patience)
	c := newContainerd(t).start()
	release := make(chan struct{})
	var slow atomic.Bool
	slow.Store(true)
	hold := func(ctx context.Context) error {
		if !slow.Load() {
			return nil
		}
		select {
		case <-release:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	node := &fakeNode{
		grant: func(ctx context.Context, _ []sharing.ContainerRequest) error { return hold(ctx) },
		inject: func(ctx context.Context, _ sharing.ContainerRequest, _ string) (sharing.Injection, error) {
			return injection(), hold(ctx)
		},
	}
	b := plug(t, c.socket(), node).serving(t)
	b.know(specOf("train", memory("main", sharing.ContainerApp, "10")))
	const want = "is not done after "
	if err := c.runPod(podOf("train")); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("RunPodSandbox: %v, want an error with %q", err, want)
	}
	a, err := c.create(podOf("train"), containerOf("main", guarded()...))
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("CreateContainer: %v, %v, want an error with %q", a, err, want)
	}
	if b.node.isGone("id-main") {
		t.Error("the container was let go of while its grant was being made")
	}
	slow.Store(false)
	close(release)
	eventually.True(t, "the late grant is looked at", func() bool { return b.node.isGone("id-main") })
	if _, err := c.create(podOf("train"), containerOf("main", guarded()...)); err != nil {
		t.Errorf("the next try: %v", err)
	}
	if got := b.said.list(); got[len(got)-1] != "" || len(b.node.witnessed()) != 1 {
		t.Errorf("the plugin was dropped: %q", got)
	}
}

// Ending the plugin ends what it has begun, and waits for it.
func TestStopJoinsWork(t *testing.T) {
	c := newContainerd(t).start()
	begun := make(chan struct{})
	var ended atomic.Bool
	node := &fakeNode{inject: func(ctx context.Context, _ sharing.ContainerRequest, _ string) (sharing.Injection,
		error) {
		close(begun)
		<-ctx.Done()
		ended.Store(true)
		return sharing.Injection{}, ctx.Err()
	}}
	b := plug(t, c.socket(), node).serving(t)
	b.know(specOf("train", memory("main", sharing.ContainerApp, "10")))
	var wg sync.WaitGroup
	wg.Go(func() {
		if a, err := c.create(podOf("train"), containerOf("main", guarded()...)); err == nil {
			t.Errorf("created with %v", a)
		}
	})
	<-begun
	b.stop()
	if !ended.Load() {
		t.Error("Run came back before its work")
	}
	wg.Wait()
}

func TestManyAtOnce(t *testing.T) {
	c := newContainerd(t).start()
	node := &fakeNode{inject: func(_ context.Context, ask sharing.ContainerRequest, id string) (sharing.Injection,
		error) {
		in := injection()
		in.Annotation = id + " of " + ask.Ref.Pod
		return in, nil
	}}
	plug(t, c.socket(), node).serving(t)
	var wg sync.WaitGroup
	for i := range 110 {
		wg.Go(func() {
			pod := podOf(fmt.Sprintf("p%d", i))
			pod.Annotations = nil
			ctr := containerOf("main", guarded()...)
			ctr.Id = fmt.Sprintf("c%d", i)
			if err := c.runPod(pod); err != nil {
				t.Error(err)
			}
			a, err := c.create(pod, ctr)
			if err != nil {
				t.Error(err)
			}
			if got, want := a.GetAnnotations()[sharing.GrantAnnotation], ctr.Id+" of "+pod.Name; got != want {
				t.Errorf("note %q, want %q", got, want)
			}
		})
	}
	wg.Wait()
}

func TestEndsAreHinted(t *testing.T) {
	c := newContainerd(t).start()
	b := plug(t, c.socket(), &fakeNode{}).serving(t)
	defer c.nri.BlockPluginSync().Unblock()
	ctx := context.Background()
	pod, ctr := podOf("train"), containerOf("main", guarded()...)
	other := containerOf("other")
	if _, err := c.nri.StopContainer(ctx, &api.StopContainerRequest{Pod: pod, Container: ctr}); err != nil {
		t.Error(err)
	}
	if err := c.nri.RemoveContainer(ctx, &api.RemoveContainerRequest{Pod: pod, Container: other}); err != nil {
		t.Error(err)
	}
	if err := c.nri.StopPodSandbox(ctx, &api.StopPodSandboxRequest{Pod: pod}); err != nil {
		t.Error(err)
	}
	if err := c.nri.RemovePodSandbox(ctx, &api.RemovePodSandboxRequest{Pod: podOf("gone")}); err != nil {
		t.Error(err)
	}
	if d := cmp.Diff([]string{"id-main", "id-other", "box-train", "box-gone"}, b.node.gone); d != "" {
		t.Error(d)
	}
}

// The node hears of each guarded container whether it was made with its grant.
func TestMade(t *testing.T) {
	c := newContainerd(t).start()
	b := plug(t, c.socket(), &fakeNode{}).serving(t)
	with, without := containerOf("with", guarded()...), containerOf("without", guarded()...)
	with.Annotations = map[string]string{sharing.GrantAnnotation: "note"}
	forged := containerOf("forged")
	forged.Annotations = with.Annotations
	defer c.nri.BlockPluginSync().Unblock() // until then the runtime may not have the plugin yet
	for _, ctr := range []*api.Container{with, without, forged} {
		if err := c.nri.PostCreateContainer(context.Background(), &api.PostCreateContainerRequest{Pod: podOf("train"),
			Container: ctr}); err != nil {
			t.Error(err)
		}
	}
	if d := cmp.Diff([]string{"id-with note", "id-without "}, b.node.made); d != "" {
		t.Error(d)
	}
}

// points makes the points that it has fail.
type points map[string]error

func (p points) Eval(name string) error { return p[name] }

func TestFailpoints(t *testing.T) {
	for _, name := range Failpoints() {
		t.Run(name, func(t *testing.T) {
			c := newContainerd(t).start()
			b := plug(t, c.socket(), &fakeNode{},
				func(o *Options) { o.Failpoints = points{name: errors.New("on purpose")} }).serving(t)
			b.know(specOf("train", memory("main", sharing.ContainerApp, "10")))
			err := errors.Join(c.runPod(podOf("train")), func() error {
				_, err := c.create(podOf("train"), containerOf("main", guarded()...))
				return err
			}())
			if err == nil || !strings.Contains(err.Error(), "on purpose") {
				t.Errorf("got %v", err)
			}
		})
	}
}
