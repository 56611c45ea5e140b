// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package survey reads a whole cluster once: its nodes, its pods and what Kerf's agents report of the GPUs.
//
// It promises to write nothing, and to read nothing but lists of nodes, pods and gpunodes, each as a user of the
// kubeconfig may. The three lists are read one after the other, so that they can be of moments that are seconds apart.
package survey

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kerf-gpu/kerf/internal/kube/access"
	"github.com/kerf-gpu/kerf/internal/kube/podspec"
	"github.com/kerf-gpu/kerf/sharing"
)

// Where the lists are.
const (
	nodesPath    = "/api/v1/nodes"
	podsPath     = "/api/v1/pods"
	gpuNodesPath = "/apis/" + sharing.Domain + "/v1alpha1/gpunodes"
)

// Cluster is what was read.
type Cluster struct {
	Nodes []Node
	// Pods are those that are not at their end, bound to a node or not.
	Pods []Pod
	// Reports are the statuses of the GPUNodes by the node's name, as the agents wrote them (api/gpunode has the
	// schema).
	Reports map[string]json.RawMessage
}

// Node is one node.
type Node struct {
	Name string
	// MilliCPU and Memory are what pods can have of it in all.
	MilliCPU int64
	Memory   sharing.Bytes
	// Closed nodes take no new pods: cordoned, or not ready.
	Closed bool
	// Labels are the node's.
	Labels map[string]string
	// Allocatable are the amounts of Kerf's resources that its kubelet gives out, by name; nil where there are none.
	Allocatable map[string]int64
}

// Pod is one pod, with what it asks of the machine.
type Pod struct {
	sharing.Pod
	Life

	MilliCPU int64
	Memory   sharing.Bytes
	// Owner is the controller that would replace it, as kind and name; empty if there is none.
	Owner string
	// Fixed pods belong to their node and go with it: those of a DaemonSet and static ones.
	Fixed bool
}

// Take reads a cluster. Errors: sharing.ErrDenied (no right to a list), sharing.ErrNotFound (the cluster does not know
// GPUNodes), sharing.ErrUnavailable.
func Take(ctx context.Context, api *access.Client) (Cluster, error) {
	c := Cluster{Reports: map[string]json.RawMessage{}}
	if err := api.List(ctx, nodesPath, nil, func(raw json.RawMessage) error {
		var n corev1.Node
		err := json.Unmarshal(raw, &n)
		c.Nodes = append(c.Nodes, node(&n))
		return err
	}); err != nil {
		return Cluster{}, err
	}
	var err error
	if c.Pods, err = pods(ctx, api, podsPath); err != nil {
		return Cluster{}, err
	}
	err = api.List(ctx, gpuNodesPath, nil, func(raw json.RawMessage) error {
		var n struct {
			Metadata struct{ Name string }
			Status   json.RawMessage
		}
		err := json.Unmarshal(raw, &n)
		if len(n.Status) > 0 {
			c.Reports[n.Metadata.Name] = n.Status
		}
		return err
	})
	return c, installed(err)
}

// pods reads a list of pods.
func pods(ctx context.Context, api *access.Client, path string) ([]Pod, error) {
	var out []Pod
	err := api.List(ctx, path, nil, func(raw json.RawMessage) error {
		var p corev1.Pod
		err := json.Unmarshal(raw, &p)
		if !podspec.Terminal(&p) {
			out = append(out, pod(&p))
		}
		return err
	})
	return out, err
}

// installed says what is missing where the cluster does not know GPUNodes.
func installed(err error) error {
	if errors.Is(err, sharing.ErrNotFound) {
		return fmt.Errorf("%w; is deploy/manifests applied?", err)
	}
	return err
}

// ReadNode reads a node's JSON.
func ReadNode(raw json.RawMessage) (Node, error) {
	var n corev1.Node
	if err := json.Unmarshal(raw, &n); err != nil {
		return Node{}, fmt.Errorf("read a node: %w (%w)", err, sharing.ErrUnavailable)
	}
	return node(&n), nil
}

// Scheduling is what a pod's status says of its scheduling.
type Scheduling struct {
	// Message is that of the condition PodScheduled while it is false.
	Message string
	// Created is when the pod was created.
	Created time.Time
}

// ReadPod reads a pod's JSON. A pod that is at its end is Terminal.
func ReadPod(raw json.RawMessage) (Pod, Scheduling, error) {
	var p corev1.Pod
	if err := json.Unmarshal(raw, &p); err != nil {
		return Pod{}, Scheduling{}, fmt.Errorf("read a pod: %w (%w)", err, sharing.ErrUnavailable)
	}
	s := Scheduling{Created: p.CreationTimestamp.Time}
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			s.Message = c.Message
		}
	}
	return pod(&p), s, nil
}

func node(n *corev1.Node) Node {
	out := Node{Name: n.Name, Labels: n.Labels, MilliCPU: n.Status.Allocatable.Cpu().MilliValue(),
		Closed: n.Spec.Unschedulable}
	out.Memory = bytes(n.Status.Allocatable)
	for name, q := range n.Status.Allocatable {
		if strings.HasPrefix(string(name), sharing.Domain+"/") {
			if out.Allocatable == nil {
				out.Allocatable = map[string]int64{}
			}
			out.Allocatable[string(name)] = q.Value()
		}
	}
	ready := slices.IndexFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
	out.Closed = out.Closed || ready < 0
	return out
}

func pod(p *corev1.Pod) Pod {
	out := Pod{Pod: podspec.Convert(p), Life: life(p)}
	out.MilliCPU, out.Memory = asked(p)
	_, out.Fixed = p.Annotations[corev1.MirrorPodAnnotationKey]
	for _, o := range p.OwnerReferences {
		if o.Controller != nil && *o.Controller {
			out.Owner, out.Fixed = o.Kind+" "+o.Name, out.Fixed || o.Kind == "DaemonSet" || o.Kind == "Node"
		}
	}
	return out
}

// asked is the scheduler's count for a pod: its containers and sidecars together, plus the overhead of the container
// runtime. If an init container with the sidecars before it is more, that counts.
func asked(p *corev1.Pod) (int64, sharing.Bytes) {
	cpu := func(r corev1.ResourceList) int64 { return r.Cpu().MilliValue() }
	memory := func(r corev1.ResourceList) int64 { return r.Memory().Value() }
	return sum(p, cpu), sharing.Bytes(max(0, sum(p, memory)))
}

func sum(p *corev1.Pod, of func(corev1.ResourceList) int64) int64 {
	sidecars, most, running := int64(0), int64(0), int64(0)
	for i := range p.Spec.InitContainers {
		c := &p.Spec.InitContainers[i]
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			sidecars += of(c.Resources.Requests)
			most = max(most, sidecars)
		} else {
			most = max(most, sidecars+of(c.Resources.Requests))
		}
	}
	for i := range p.Spec.Containers {
		running += of(p.Spec.Containers[i].Resources.Requests)
	}
	return max(most, sidecars+running) + of(p.Spec.Overhead)
}

func bytes(r corev1.ResourceList) sharing.Bytes {
	return sharing.Bytes(max(0, r.Memory().Value()))
}
