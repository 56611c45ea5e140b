// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package containerd

import (
	"encoding/json"
	"testing"

	containersv1 "github.com/containerd/containerd/api/services/containers/v1"
	tasktypes "github.com/containerd/containerd/api/types/task"
	"github.com/google/go-cmp/cmp"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/kerf-gpu/kerf/sharing"
)

func stored(t *testing.T, id, kind string, s specs.Spec) *containersv1.Container {
	t.Helper()
	text, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	return &containersv1.Container{
		ID: id, Spec: &anypb.Any{TypeUrl: "types.containerd.io/opencontainers/runtime-spec/1/Spec", Value: text},
		Labels: map[string]string{
			labelKind: kind, labelPodUID: "u1", labelPodNamespace: "team", labelPodName: "train",
			labelContainer:   "main",
			"kerf.dev/grant": "forged",
		},
	}
}

// armed is a spec with the hooks of these arguments.
func armed(args ...[]string) specs.Spec {
	s := specs.Spec{Annotations: map[string]string{sharing.GrantAnnotation: "note"}, Hooks: &specs.Hooks{
		// Hooks of others, and of other stages, say nothing of us.
		CreateRuntime: []specs.Hook{{Path: "/usr/bin/other-hook", Args: []string{"other", "--request", "gpu:8",
			"--grant",
			"k-9"}}},
		CreateContainer: []specs.Hook{{Path: "/opt/kerf/1/kerf-hook", Args: []string{"kerf-hook", "activate", "--grant",
			"k-8"}}},
	}}
	for _, a := range args {
		s.Hooks.CreateRuntime = append(s.Hooks.CreateRuntime, specs.Hook{Path: "/opt/kerf/1/kerf-hook",
			Args: append([]string{"kerf-hook", "activate", "--socket", "/run/kerf/hook.sock"}, a...)})
	}
	return s
}

func TestContainers(t *testing.T) {
	const container, sandbox = "container", "sandbox"
	guarded := armed(nil, []string{"--request", "gpu-memory-gib:10"}, []string{"--ask=gpu-percent:25"})
	process := func(id string, pid uint32, s tasktypes.Status) *tasktypes.Process {
		return &tasktypes.Process{ContainerID: id, ID: id, Pid: pid, Status: s}
	}
	f := &fake{
		name: "containerd", version: "2.4.2", exited: []string{"ended", "again"},
		containers: []*containersv1.Container{
			stored(t, "runs", container, guarded), stored(t, "made", container, guarded),
			stored(t, "waits", container, guarded),
			stored(t, "stopped", container, guarded), stored(t, "ended", container, guarded),
			stored(t, "again", container, guarded),
			stored(t, "plain", container, specs.Spec{}), stored(t, "pause", sandbox, guarded),
			{ID: "odd", Spec: &anypb.Any{Value: []byte("{")}}, {ID: "bare"},
		},
		tasks: []*tasktypes.Process{
			process("runs", 10, tasktypes.Status_RUNNING), process("made", 11, tasktypes.Status_CREATED),
			process("stopped", 12, tasktypes.Status_STOPPED),
			process("again", 13, tasktypes.Status_PAUSED), process("pause", 14, tasktypes.Status_RUNNING),
			{ID: "plain", Pid: 15, Status: tasktypes.Status_RUNNING},
		},
	}
	c, _ := open(t, f)
	got, err := c.Containers(t.Context(), NamespaceKubernetes)
	if err != nil {
		t.Fatal(err)
	}
	ref := sharing.ContainerRef{PodUID: "u1", Namespace: "team", Pod: "train", Container: "main"}
	names := []string{sharing.HookDevice, "kerf.dev/ask=gpu-memory-gib:10", "kerf.dev/ask=gpu-percent:25"}
	with := func(s sharing.Seen) sharing.Seen {
		s.Ref, s.CDINames, s.Annotation = ref, names, "note"
		return s
	}
	want := []sharing.Seen{
		with(sharing.Seen{ID: "again", Running: true, PID: 13}), // a task that runs says more than CRI's memory
		{ID: "bare"},
		with(sharing.Seen{ID: "ended", Removed: true}),
		with(sharing.Seen{ID: "made", Running: true, PID: 11}),
		{ID: "odd"},
		{ID: "plain", Ref: ref, Running: true, PID: 15},
		with(sharing.Seen{ID: "runs", Running: true, PID: 10}),
		with(sharing.Seen{ID: "stopped", Removed: true}),
		with(sharing.Seen{ID: "waits"}),
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for _, s := range got {
		if _, err := sharing.AdmittedBy(s.CDINames); err != nil {
			t.Errorf("%s: %v", s.ID, err)
		}
	}
}

// The GPUs of a container are those whose files it is given one by one: who may use every device of the node is given
// none.
func TestContainersSayWhichGPUsTheyHave(t *testing.T) {
	device := func(file string) specs.LinuxDevice { return specs.LinuxDevice{Path: file, Type: "c"} }
	some := &specs.LinuxResources{Devices: []specs.LinuxDeviceCgroup{{Access: "rwm"},
		{Allow: true, Type: "c", Access: "m"}, {Allow: true, Type: "c", Major: new(int64), Access: "rw"}}}
	every := &specs.LinuxResources{Devices: []specs.LinuxDeviceCgroup{{Allow: true, Access: "rwm"}}}
	for name, tt := range map[string]struct {
		spec specs.Spec
		want []string
	}{
		"devices": {specs.Spec{Linux: &specs.Linux{Resources: some, Devices: []specs.LinuxDevice{
			device("/dev/nvidiactl"), device("/dev/nvidia1"), device("/dev/nvidia-caps/nvidia-cap12"),
			device("/dev/null"), device("/dev/nvidia-uvm"),
		}}}, []string{"nvidia-cap12", "nvidia1"}},
		"mounted": {specs.Spec{Mounts: []specs.Mount{
			{Destination: "/dev/nvidia0"}, {Destination: "/dev/nvidia0"}, {Destination: "/data/nvidia3"},
			{Destination: "/dev"},
		}}, []string{"nvidia0"}},
		"privileged": {specs.Spec{Linux: &specs.Linux{Resources: every,
			Devices: []specs.LinuxDevice{device("/dev/nvidia0")}}}, nil},
		"none": {specs.Spec{}, nil},
	} {
		c, _ := open(t, &fake{name: "containerd", version: "2.4.2",
			containers: []*containersv1.Container{stored(t, "a", "container", tt.spec)}})
		got, err := c.Containers(t.Context(), NamespaceKubernetes)
		if err != nil || len(got) != 1 {
			t.Fatalf("%s: %+v, %v", name, got, err)
		}
		if diff := cmp.Diff(tt.want, got[0].Devices); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// Containers that end, or that kubelet removes, while the list is made have ended all the same.
func TestContainersThatGoMeanwhile(t *testing.T) {
	guarded := armed(nil, []string{"--request", "gpu-memory-gib:10"})
	f := &fake{
		name: "containerd", version: "2.4.2", exited: []string{"removed"},
		containers: []*containersv1.Container{stored(t, "ends", "container", guarded),
			stored(t, "removed", "container", guarded)},
	}
	f.meanwhile = func() { f.exited = []string{"ends"} }
	c, _ := open(t, f)
	got, err := c.Containers(t.Context(), NamespaceKubernetes)
	if err != nil || len(got) != 2 {
		t.Fatalf("%+v, %v", got, err)
	}
	for _, s := range got {
		if !s.Removed {
			t.Errorf("%s has ended, and is seen as %+v", s.ID, s)
		}
	}
}

func TestPods(t *testing.T) {
	c, _ := open(t, &fake{name: "containerd", version: "2.4.2", pods: []string{"u1", "u2", "u1"}})
	got, err := c.Pods(t.Context())
	if diff := cmp.Diff(map[string]bool{"u1": true, "u2": true}, got); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	c, _ = open(t, nil)
	if got, err := c.Pods(t.Context()); err == nil {
		t.Errorf("without a runtime: %v", got)
	}
}

// In kerf's own namespace a container's labels are its image's, and name no pod; the hook names the grant.
func TestContainersOfKerf(t *testing.T) {
	f := &fake{version: "2.4.2", containers: []*containersv1.Container{
		stored(t, "a", "", armed([]string{"--grant", "k-1"}))}}
	c, _ := open(t, f)
	got, err := c.Containers(t.Context(), NamespaceKerf)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]sharing.Seen{{ID: "a", CDINames: []string{sharing.HookDevice}, Annotation: "note",
		Grant: "k-1"}},
		got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func FuzzReadSpec(f *testing.F) {
	for _, s := range []string{
		`{"hooks":{"createRuntime":[{"path":"/a/kerf-hook","args":["kerf-hook","--request"]}]}}`,
		`{"annotations":{"kerf.dev/grant":"x"}}`, `{"hooks":7}`, "",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var s sharing.Seen
		readSpec(&s, text)
		if a, err := sharing.AdmittedBy(s.CDINames); err != nil && a.Guarded {
			t.Errorf("%q: %v", text, err)
		}
	})
}
