// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package containerd

import (
	"context"
	"encoding/json"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	containersv1 "github.com/containerd/containerd/api/services/containers/v1"
	tasksv1 "github.com/containerd/containerd/api/services/tasks/v1"
	tasktypes "github.com/containerd/containerd/api/types/task"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kerf-gpu/kerf/sharing"
)

// The labels that kubelet gives a container; it writes them over an image's of the same name.
const (
	labelPodUID       = "io.kubernetes.pod.uid"
	labelPodName      = "io.kubernetes.pod.name"
	labelPodNamespace = "io.kubernetes.pod.namespace"
	labelContainer    = "io.kubernetes.container.name"
	// labelKind tells containers from the sandboxes that hold a pod's namespaces.
	labelKind     = "io.cri-containerd.kind"
	kindContainer = "container"
)

// hookName is the base name of the program that arms a container.
const hookName = "kerf-hook"

// gpuFile is the name of the file of a GPU, or of the right to use a MIG instance.
var gpuFile = regexp.MustCompile(`^nvidia(-cap)?[0-9]+$`)

// Containers lists the containers of a namespace, as a second source next to NRI. CDINames are the hook device and
// request devices of the createRuntime hooks in the stored OCI spec; only root can have written them. NRI alone reports
// the names themselves. Sandboxes are left out.
func (c *Client) Containers(ctx context.Context, namespace string) ([]sharing.Seen, error) {
	ctx, cancel := context.WithTimeout(namespaces.WithNamespace(ctx, namespace), callTimeout)
	defer cancel()
	// Read the ends before and after the list. The first read has containers that kubelet removes meanwhile, the
	// second those that end meanwhile. Containers come before tasks, so that a container deleted in between is seen
	// as ended.
	exited := map[string]bool{}
	if namespace == NamespaceKubernetes {
		c.addExited(ctx, exited)
	}
	list, err := containersv1.NewContainersClient(c.conn).List(ctx, &containersv1.ListContainersRequest{})
	if err != nil {
		return nil, c.Plain(ctx, fmt.Sprintf("list containers of %q", namespace), err)
	}
	tasks, err := tasksv1.NewTasksClient(c.conn).List(ctx, &tasksv1.ListTasksRequest{})
	if err != nil {
		return nil, c.Plain(ctx, fmt.Sprintf("list tasks of %q", namespace), err)
	}
	if namespace == NamespaceKubernetes {
		c.addExited(ctx, exited)
	}
	return seenOf(namespace, list.GetContainers(), tasks.GetTasks(), exited), nil
}

// Pods are the UIDs of the pods that the runtime has a sandbox of, running or not, by the CRI alone. Kubelet removes
// the sandboxes of a pod that it has forgotten within a minute or so.
func (c *Client) Pods(ctx context.Context) (map[string]bool, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	list, err := c.cri.ListPodSandbox(ctx, &criv1.ListPodSandboxRequest{})
	if err != nil {
		return nil, c.Plain(ctx, "list pods", err)
	}
	out := map[string]bool{}
	for _, box := range list.GetItems() {
		out[box.GetMetadata().GetUid()] = true
	}
	return out, nil
}

// addExited adds the ids of containers of which the CRI plugin says that they have ended. A plugin that does not
// answer says it of none: containerd's own list then tells less, and nothing wrong.
func (c *Client) addExited(ctx context.Context, exited map[string]bool) {
	list, err := c.cri.ListContainers(ctx, &criv1.ListContainersRequest{
		Filter: &criv1.ContainerFilter{State: &criv1.ContainerStateValue{State: criv1.ContainerState_CONTAINER_EXITED}},
	})
	if err != nil {
		return
	}
	for _, container := range list.GetContainers() {
		exited[container.GetId()] = true
	}
}

// seenOf joins containers with their tasks, in the order of their ids.
func seenOf(namespace string, list []*containersv1.Container, tasks []*tasktypes.Process,
	exited map[string]bool) []sharing.Seen {
	byID := make(map[string]*tasktypes.Process, len(tasks))
	for _, t := range tasks {
		// The container's id is empty in what some versions answer, and the process's id is then it.
		id := t.GetContainerID()
		if id == "" {
			id = t.GetID()
		}
		byID[id] = t
	}
	out := []sharing.Seen{}
	for _, container := range list {
		labels := container.GetLabels()
		if kind := labels[labelKind]; kind != "" && kind != kindContainer {
			continue
		}
		s := sharing.Seen{ID: container.GetID(), Removed: exited[container.GetID()]}
		if namespace == NamespaceKubernetes {
			s.Ref = sharing.ContainerRef{
				PodUID: labels[labelPodUID], Namespace: labels[labelPodNamespace],
				Pod: labels[labelPodName], Container: labels[labelContainer],
			}
		}
		if t := byID[container.GetID()]; t != nil {
			switch t.GetStatus() {
			case tasktypes.Status_CREATED, tasktypes.Status_RUNNING, tasktypes.Status_PAUSED, tasktypes.Status_PAUSING:
				s.Running, s.PID, s.Removed = true, int(t.GetPid()), false
			case tasktypes.Status_STOPPED:
				s.Removed = true
			case tasktypes.Status_UNKNOWN:
			}
		}
		if container.GetSpec() != nil {
			readSpec(&s, container.GetSpec().GetValue())
		}
		out = append(out, s)
	}
	slices.SortFunc(out, func(a, b sharing.Seen) int { return strings.Compare(a.ID, b.ID) })
	return out
}

// readSpec adds what a stored OCI spec says of a grant. A spec that cannot be read says nothing.
func readSpec(s *sharing.Seen, text []byte) {
	var spec struct {
		Annotations map[string]string `json:"annotations"`
		Hooks       specs.Hooks       `json:"hooks"`
		Mounts      []specs.Mount     `json:"mounts"`
		Linux       specs.Linux       `json:"linux"`
	}
	if json.Unmarshal(text, &spec) != nil {
		return
	}
	s.Devices = devicesOf(spec.Linux, spec.Mounts)
	s.Annotation = spec.Annotations[sharing.GrantAnnotation]
	for _, h := range spec.Hooks.CreateRuntime {
		if path.Base(h.Path) != hookName {
			continue
		}
		if grant := argument(h.Args, "--grant"); grant != "" {
			s.Grant = grant
		}
		name := sharing.HookDevice
		if ask, err := sharing.ParseResourceRequest(sharing.RequestOfHook(h.Args)); err == nil {
			name = ask.Device()
		}
		if !slices.Contains(s.CDINames, name) {
			s.CDINames = append(s.CDINames, name)
		}
	}
}

// devicesOf are the driver's files that are given one by one, as devices or mounted.
func devicesOf(l specs.Linux, mounts []specs.Mount) []string {
	if l.Resources != nil && slices.ContainsFunc(l.Resources.Devices, everyDevice) {
		return nil
	}
	var names []string
	add := func(file string) {
		if folder := path.Dir(file); gpuFile.MatchString(path.Base(file)) &&
			(folder == "/dev" || folder == "/dev/nvidia-caps") {
			names = append(names, path.Base(file))
		}
	}
	for _, d := range l.Devices {
		add(d.Path)
	}
	for _, m := range mounts {
		add(path.Clean(m.Destination))
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// everyDevice is the rule of a privileged container.
func everyDevice(d specs.LinuxDeviceCgroup) bool {
	return d.Allow && d.Major == nil && d.Minor == nil && (d.Type == "" || d.Type == "a")
}

// argument is the value that follows a flag in args, or empty.
func argument(args []string, flag string) string {
	for i, a := range args {
		if a == flag && i+1 < len(args) {
			return args[i+1]
		}
		if v, ok := strings.CutPrefix(a, flag+"="); ok {
			return v
		}
	}
	return ""
}
