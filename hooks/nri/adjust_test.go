// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package nri

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/stub"
	"github.com/google/go-cmp/cmp"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/kerf-gpu/kerf/sharing"
)

var update = flag.Bool("update", false, "rewrite testdata; commit the difference only if you understand it")

// golden compares v with testdata/NAME.json.
func golden(t *testing.T, name string, v any) {
	t.Helper()
	got, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	got = append(got, '\n')
	path := filepath.Join("testdata", strings.ReplaceAll(name, " ", "-")+".json")
	if *update {
		if err := os.WriteFile(path, got, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), string(got)); d != "" {
		t.Error(d)
	}
}

func TestGoldenAdjustments(t *testing.T) {
	two := injection()
	two.Placement = append(two.Placement, sharing.Share{GPU: sharing.GPURef{UUID: gpu1}, Memory: 10 * sharing.GiB})
	sneaky := injection()
	sneaky.Env = map[string]string{visibleEnv: "all"}
	forged := containerOf("main")
	forged.Annotations = map[string]string{sharing.GrantAnnotation: "mine"}
	held := injection()
	held.Mounts = preloading()
	onMIG := injection()
	onMIG.Placement = sharing.Placement{{GPU: sharing.GPURef{UUID: gpu1}, Memory: 10 * sharing.GiB,
		MIG: sharing.Instance{Profile: "1g.10gb", ID: 19, Start: 6, Size: 1}}}
	onMIG.Device = sharing.MIGDevice{GPU: gpu1, UUID: "MIG-00000000-0000-0000-0000-000000000001"}
	notMIG := onMIG
	notMIG.Device = sharing.MIGDevice{}
	if _, err := adjustGuarded(containerOf("main"), notMIG); !errors.Is(err, sharing.ErrUnavailable) {
		t.Errorf("an instance without a device: %v", err)
	}
	tests := map[string]struct {
		adjust func() (*api.ContainerAdjustment, error)
	}{
		"guarded with a library": {func() (*api.ContainerAdjustment, error) {
			return adjustGuarded(containerOf("main"),
				held)
		}},
		"guarded on one GPU": {func() (*api.ContainerAdjustment, error) {
			return adjustGuarded(containerOf("main"),
				injection())
		}},
		"guarded on two GPUs": {func() (*api.ContainerAdjustment, error) {
			return adjustGuarded(containerOf("main"),
				two)
		}},
		"guarded on an instance": {func() (*api.ContainerAdjustment, error) {
			return adjustGuarded(containerOf("main"),
				onMIG)
		}},
		"guarded with sneaky env": {func() (*api.ContainerAdjustment, error) {
			return adjustGuarded(containerOf("main"),
				sneaky)
		}},
		"guarded with forged note": {func() (*api.ContainerAdjustment, error) {
			return adjustGuarded(forged, injection())
		}},
		"other": {func() (*api.ContainerAdjustment,
			error) {
			return adjustOther(containerOf("main"), false)
		}},
		"other with forged note": {func() (*api.ContainerAdjustment,
			error) {
			return adjustOther(forged, false)
		}},
		"other exempt": {func() (*api.ContainerAdjustment,
			error) {
			return adjustOther(containerOf("main"), true)
		}},
		"other exempt with forged note": {func() (*api.ContainerAdjustment,
			error) {
			return adjustOther(forged, true)
		}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			a, err := tt.adjust()
			if err != nil {
				t.Fatal(err)
			}
			golden(t, name, a)
		})
	}
}

func preloading() []sharing.Mount {
	return []sharing.Mount{
		{Source: "/run/kerf/client/k-1", Target: "/usr/local/lib/kerf", ReadOnly: true},
		{Source: "/run/kerf/client/k-1/usage", Target: "/usr/local/lib/kerf/usage"},
		{Source: "/run/kerf/client/k-1/preload", Target: "/etc/ld.so.preload", ReadOnly: true},
	}
}

// A volume in the place of the library or its limits would set them aside.
func TestVolumesOverTheLibraryAreRefused(t *testing.T) {
	in := injection()
	in.Mounts = preloading()
	for at, refused := range map[string]bool{
		"/etc/ld.so.preload": true, "/usr/local/lib/kerf": true, "/usr/local/lib/kerf/limits": true,
		"/usr/local/lib/../lib/kerf/libkerf.so": true,
		"/etc":                                  false, "/usr/local/lib": false, "/usr/local/lib/kerfuffle": false,
		"/data": false,
	} {
		c := containerOf("main")
		c.Mounts = []*api.Mount{{Destination: at}}
		if _, err := adjustGuarded(c, in); errors.Is(err, sharing.ErrInvalid) != refused {
			t.Errorf("%s: %v", at, err)
		}
		if _, err := adjustGuarded(c, injection()); err != nil {
			t.Errorf("%s without a library: %v", at, err)
		}
	}
}

func TestInjectionWithoutGPUIsRefused(t *testing.T) {
	for name, change := range map[string]func(*sharing.Injection){
		"no placement": func(in *sharing.Injection) { in.Placement = nil },
		"no note":      func(in *sharing.Injection) { in.Annotation = "" },
	} {
		in := injection()
		change(&in)
		if a, err := adjustGuarded(containerOf("main"), in); !errors.Is(err, sharing.ErrUnavailable) {
			t.Errorf("%s: %v, %v, want ErrUnavailable", name, a, err)
		}
	}
}

// What a tenant writes under Kerf's names does not reach the program, through the runtime's real code.
func TestForgedEnvironmentAndAnnotations(t *testing.T) {
	c := newContainerd(t).start()
	plug(t, c.socket(), &fakeNode{}).serving(t).know(specOf("train", memory("main", sharing.ContainerApp, "10")))
	for range 50 { // the runtime applies annotations in the order of a map
		ctr := containerOf("main", guarded()...)
		ctr.Env = []string{"KERF_GRANT=k-666", "NVIDIA_VISIBLE_DEVICES=all", "KERF_GPUS=" + string(gpu1),
			"KERF_GRANT=k-667"}
		ctr.Annotations = map[string]string{sharing.GrantAnnotation: "mine", "other": "kept"}
		raw := containerOf("main")
		raw.Env, raw.Annotations = append([]string(nil), ctr.Env...), map[string]string{sharing.GrantAnnotation: "mine",
			"other": "kept"}
		a, err := c.create(podOf("train", sharing.GrantAnnotation+"x", "no key of ours"), ctr)
		if err == nil {
			t.Fatalf("a pod with an unknown annotation of ours got %v", a)
		}
		if a, err = c.create(podOf("train"), ctr); err != nil {
			t.Fatal(err)
		}
		spec, err := applied(raw, a, nil)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(map[string]string{sharing.GrantAnnotation: injection().Annotation, "other": "kept"},
			spec.Annotations); d != "" {
			t.Fatal(d)
		}
		if got := envOf(spec, visibleEnv); len(got) != 1 || got[0] != visibleVoid {
			t.Fatalf("%s is %q", visibleEnv, got)
		}
		if got := envOf(spec, "KERF_GPUS"); len(got) != 1 || got[0] != string(gpu0) {
			t.Fatalf("KERF_GPUS is %q", got)
		}
	}
}

// Whatever the environment, a container is refused or sees no GPU by NVIDIA_VISIBLE_DEVICES.
func TestNoEnvironmentShowsGPUs(t *testing.T) {
	split := []string{"NVIDIA_VISIBLE_DEVICES=all", "NVIDIA_VISIBLE_DEVICES=void", "NVIDIA_VISIBLE_DEVICES=none",
		"NVIDIA_VISIBLE_DEVICES=", "NVIDIA_VISIBLE_DEVICES=0,1",
		"NVIDIA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES_X=all", "PATH=/bin", "A=NVIDIA_VISIBLE_DEVICES=all", "=", ""}
	rng := rand.New(rand.NewPCG(1, 2))
	refused := 0
	for range 20_000 {
		ctr := &api.Container{Name: "main"}
		for range rng.IntN(5) {
			ctr.Env = append(ctr.Env, split[rng.IntN(len(split))])
		}
		grant := rng.IntN(2) == 0
		a, err := adjustOther(ctr, false)
		if grant {
			a, err = adjustGuarded(ctr, injection())
		}
		if err != nil {
			if _, ok := errors.AsType[*sharing.FieldError](err); !ok || grant {
				t.Fatal(err)
			}
			refused++
			continue
		}
		// The runtime's adaptation takes the removals out, as TestOtherPlugin shows.
		var env []*api.KeyValue
		for _, e := range a.Env {
			if _, gone := e.IsMarkedForRemoval(); !gone {
				env = append(env, e)
			}
		}
		a.Env = env
		spec, err := applied(ctr, a, voidByCDI)
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range envOf(spec, visibleEnv) {
			if v != visibleVoid && v != "none" && v != "" {
				t.Fatalf("%q shows %q", ctr.Env, v)
			}
		}
	}
	if refused == 0 {
		t.Error("nothing was refused")
	}
}

// voidByCDI is what the CDI spec of kerf.dev/gpu does to the environment.
func voidByCDI(s *specs.Spec, devices []string) error {
	for i, e := range s.Process.Env {
		if len(devices) > 0 && strings.HasPrefix(e, visibleEnv+"=") {
			s.Process.Env[i] = visibleEnv + "=" + visibleVoid
		}
	}
	return nil
}

// The one case that is refused is one where the runtime would let the tenant's value win.
func TestTwiceIsRefusedForAReason(t *testing.T) {
	ctr := &api.Container{Name: "main", Env: []string{"NVIDIA_VISIBLE_DEVICES=all", "NVIDIA_VISIBLE_DEVICES=all"}}
	a := &api.ContainerAdjustment{}
	a.AddEnv(visibleEnv, visibleVoid)
	spec, err := applied(ctr, a, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := envOf(spec, visibleEnv); len(got) == 1 && got[0] == visibleVoid {
		t.Errorf("the runtime overrides both values now (%q): checkVisible can go", got)
	}
	// A CDI device that sets the variable fixes it: the container runtime resolves CDI devices after the environment.
	a.AddCDIDevice(&api.CDIDevice{Name: "kerf.dev/gpu=" + string(gpu0)})
	spec, err = applied(ctr, a, voidByCDI)
	if err != nil {
		t.Fatal(err)
	}
	if got := envOf(spec, visibleEnv); len(got) != 1 || got[0] != visibleVoid {
		t.Errorf("%s is %q", visibleEnv, got)
	}
	if _, err := adjustOther(ctr, false); !errors.Is(err, sharing.ErrInvalid) {
		t.Errorf("adjustOther() = %v, want ErrInvalid", err)
	}
	if _, err := adjustOther(ctr, true); err != nil {
		t.Errorf("an exempt container is refused: %v", err)
	}
}

// A mount asks NVIDIA's runtime for GPUs as the environment does, and is heard first. Single GPUs are refused like all
// of them, however the path is written, with a grant and without.
func TestGPUsByMountAreRefused(t *testing.T) {
	for at, want := range map[string]bool{
		"/var/run/nvidia-container-devices/all":                    true,
		"/run/nvidia-container-devices/all":                        true,
		"/var/run//nvidia-container-devices/./all":                 true,
		"/var/run/nvidia-container-devices/cdi/nvidia.com/gpu/all": true,
		"/var/run/nvidia-container-devices/GPU-1":                  true,
		"/var/run/nvidia-container-devices/0":                      true,
		"/var/run/x/../nvidia-container-devices/0":                 true,
		"/run/../run/nvidia-container-devices/all":                 true,
		"/../var/run/nvidia-container-devices/0":                   true,
		"var/run/nvidia-container-devices/0":                       true,
		"/var/run/nvidia-container-devices/0/":                     true,
		"/var/run/nvidia-container-devices/../elsewhere":           false,
		"/var/run/nvidia-container-devices-of-mine/all":            false,
		"/data/all": false,
	} {
		ctr := &api.Container{Name: "main", Mounts: []*api.Mount{{Source: "/dev/null", Destination: at}}}
		_, guarded := adjustGuarded(ctr, sharing.Injection{Grant: "k-1", Annotation: "n",
			Placement: sharing.Placement{{GPU: sharing.GPURef{UUID: gpu0}}}})
		_, other := adjustOther(ctr, false)
		for i, err := range []error{guarded, other} {
			if (err != nil) != want || err != nil &&
				(!errors.Is(err, sharing.ErrInvalid) ||
					!strings.Contains(err.Error(), "that the container was not given; leave it out of the pod")) {
				t.Errorf("%s, without a grant: %t: %v, want a refusal: %t", at, i == 1, err, want)
			}
		}
		if _, err := adjustOther(ctr, true); err != nil {
			t.Errorf("%s: an exempt container is refused: %v", at, err)
		}
	}
}

// nosy is another plugin, which acts before ours and sets what we set.
type nosy struct{}

func (nosy) CreateContainer(context.Context, *api.PodSandbox, *api.Container) (*api.ContainerAdjustment,
	[]*api.ContainerUpdate, error) {
	a := &api.ContainerAdjustment{}
	a.AddEnv(visibleEnv, "all")
	a.AddEnv("KERF_GRANT", "k-666")
	return a, nil, nil
}

func TestOtherPlugin(t *testing.T) {
	c := newContainerd(t).start()
	plug(t, c.socket(), &fakeNode{}).serving(t).know(specOf("train", memory("main", sharing.ContainerApp, "10")))
	other, err := stub.New(nosy{}, stub.WithPluginName("nosy"), stub.WithPluginIdx("10"),
		stub.WithSocketPath(c.socket()))
	if err != nil {
		t.Fatal(err)
	}
	if err := other.Start(context.Background()); err != nil {
		t.Fatal(err)
	}
	defer other.Stop()
	for name, cdi := range map[string][]string{"guarded": guarded(), "other": nil} {
		a, err := c.create(podOf("train"), containerOf("main", cdi...))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for _, e := range a.Env {
			if _, removal := e.IsMarkedForRemoval(); removal || e.Key == visibleEnv && e.Value != visibleVoid ||
				e.Key == "KERF_GRANT" && cdi != nil && e.Value != "k-1" {
				t.Errorf("%s: env %s=%s", name, e.Key, e.Value)
			}
		}
	}
}

func TestSeen(t *testing.T) {
	box := podOf("train")
	note := map[string]string{sharing.GrantAnnotation: "note"}
	ref := sharing.ContainerRef{PodUID: "uid-train", Namespace: "default", Pod: "train", Container: "main"}
	devices := func(names ...string) []*api.CDIDevice { return containerOf("", names...).CDIDevices }
	tests := map[string]struct {
		c    *api.Container
		want sharing.Seen
	}{
		"running": {&api.Container{State: api.ContainerState_CONTAINER_RUNNING, Pid: 7,
			CDIDevices: devices(guarded()...), Annotations: note},
			sharing.Seen{Ref: ref, PID: 7, Running: true, CDINames: guarded(), Annotation: "note"}},
		"paused": {&api.Container{State: api.ContainerState_CONTAINER_PAUSED, Pid: 7},
			sharing.Seen{Ref: ref, PID: 7, Running: true}},
		"not made by the OCI runtime": {&api.Container{State: api.ContainerState_CONTAINER_CREATED,
			CDIDevices: devices(guarded()...), Annotations: note},
			sharing.Seen{Ref: ref, CDINames: guarded(), Annotation: "note"}},
		"in its hooks": {&api.Container{State: api.ContainerState_CONTAINER_CREATED, Pid: 7},
			sharing.Seen{Ref: ref, PID: 7, Running: true}},
		"ended": {&api.Container{State: api.ContainerState_CONTAINER_STOPPED, Pid: 7},
			sharing.Seen{Ref: ref, Removed: true}},
		"unknown": {&api.Container{}, sharing.Seen{Ref: ref}},
		"a note without the guard is none": {&api.Container{State: api.ContainerState_CONTAINER_RUNNING, Pid: 7,
			Annotations: note, CDIDevices: devices("a.b/c=d")},
			sharing.Seen{Ref: ref, PID: 7, Running: true, CDINames: []string{"a.b/c=d"}}},
		"a guard with names of a newer agent": {&api.Container{State: api.ContainerState_CONTAINER_RUNNING, Pid: 7,
			Annotations: note, CDIDevices: devices(sharing.HookDevice, "kerf.dev/new=1")},
			sharing.Seen{Ref: ref, PID: 7, Running: true, CDINames: []string{sharing.HookDevice, "kerf.dev/new=1"},
				Annotation: "note"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			tt.c.Id, tt.c.Name, tt.c.PodSandboxId, tt.want.ID = "id", "main", box.Id, "id"
			if d := cmp.Diff([]sharing.Seen{tt.want}, seenOf([]*api.PodSandbox{box}, []*api.Container{tt.c})); d != "" {
				t.Error(d)
			}
		})
	}
	if got := seenOf(nil, []*api.Container{nil, {PodSandboxId: "?"}}); len(got) != 2 || got[1].Ref.PodUID != "" {
		t.Errorf("containers without a pod: %v", got)
	}
}

func TestRefusalText(t *testing.T) {
	ask := []sharing.ContainerRequest{
		{Ref: sharing.ContainerRef{Container: "a"}, Requests: []sharing.ResourceRequest{{Resource: "gpu-memory-gib",
			Count: 20},
			{Resource: "gpu-percent", Count: 50}}, Request: sharing.Request{GPUs: 2}},
		{Ref: sharing.ContainerRef{Container: "b"}, Requests: []sharing.ResourceRequest{{Resource: "gpu", Count: 2}},
			Request: sharing.Request{Kind: sharing.KindWhole, GPUs: 2}},
	}
	box := sandbox{namespace: "ns", name: "p"}
	wrap := func(text string, kind error) error { return &refusal{text: text, cause: kind} }
	tests := map[string]struct {
		asks []sharing.ContainerRequest
		err  error
		want string
	}{
		"not enough free": {ask, wrap("not enough free\n  GPU 0: full\n  GPU 1: full", sharing.ErrExhausted),
			"kerf: pod ns/p requests kerf.dev/gpu-memory-gib=20 and kerf.dev/gpu-percent=50 in container a over 2 " +
				"GPUs, kerf.dev/gpu=2 in container b: not enough free; kubelet tries again until enough is free: " +
				"request less, or end a pod that holds GPUs of this node (kerf status shows them) (GPU 0: full; GPU " +
				"1: full)"},
		"never": {nil, wrap("no GPU", sharing.ErrUnsupported),
			"kerf: pod ns/p: no GPU; this node will never give it: request less, or choose another node"},
		"not ready": {nil, wrap("agent is not ready", sharing.ErrUnavailable),
			"kerf: pod ns/p: agent is not ready; kubelet tries again by itself"},
		"errors": {nil, errors.Join(sharing.Invalid("f", "1", "", "is bad"),
			sharing.Invalid("g", "2", "", "is bad")),
			`kerf: pod ns/p: f "1" is bad; g "2" is bad; fix this in the pod and create it again`},
		"of no kind":  {nil, errors.New("disk full"), "kerf: pod ns/p: disk full"},
		"two reasons": {nil, wrap("a\nb", nil), "kerf: pod ns/p: a (b)"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			err := refused(box, tt.asks, tt.err)
			if d := cmp.Diff(tt.want, err.Error()); d != "" {
				t.Error(d)
			}
			if !errors.Is(err, tt.err) {
				t.Error("the cause is lost")
			}
		})
	}
}
