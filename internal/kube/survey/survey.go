// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package survey reads a whole cluster once: its nodes, its pods and what Kerf's agents report of the GPUs.
//
// It promises to write nothing, and to read nothing but lists of nodes, pods and gpunodes, each as a user of the
// kubeconfig may. The three lists are read one after the other, so that they can be of moments that are seconds apart.
// It does without the client library's typed clients, which would cost every program that can take a survey some
// milliseconds at its start.
package survey

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kerf-gpu/kerf/internal/kube/podspec"
	"github.com/kerf-gpu/kerf/sharing"
)

const (
	// pageTimeout bounds one request, pageSize what it answers, and pageBytes what is read of the answer.
	pageTimeout = 30 * time.Second
	pageSize    = 500
	pageBytes   = 256 << 20
)

// Cluster is what was read.
type Cluster struct {
	Nodes []Node
	// Pods are those that are not at their end, bound to a node or not.
	Pods []Pod
	// Reports are the statuses of the GPUNodes by the node's name, as the agents wrote them (api/gpunode has the schema).
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
	// Offers are the amounts of Kerf's resources that its kubelet gives out, by name; nil where there are none.
	Offers map[string]int64
}

// Pod is one pod, with what it asks of the machine.
type Pod struct {
	sharing.Pod
	MilliCPU int64
	Memory   sharing.Bytes
	// Owner is the controller that would make it anew, as kind and name; empty where nobody would.
	Owner string
	// Fixed pods belong to their node and go with it: those of a DaemonSet and static ones.
	Fixed bool
}

// Take reads the cluster that a kubeconfig file names, or that of the pod that this process runs in where the name is
// empty. Errors: sharing.ErrInvalid (the configuration), sharing.ErrDenied (no right to a list), sharing.ErrNotFound (the
// cluster does not know GPUNodes), sharing.ErrUnavailable.
func Take(ctx context.Context, kubeconfig string) (Cluster, error) {
	s, end, err := open(kubeconfig)
	if err != nil {
		return Cluster{}, err
	}
	defer end()
	return s.take(ctx)
}

// open makes the client; end closes its connections.
func open(kubeconfig string) (s surveyor, end func(), err error) {
	config, err := rest.InClusterConfig()
	if kubeconfig != "" {
		config, err = clientcmd.BuildConfigFromFlags("", kubeconfig)
	}
	if err != nil {
		return s, nil, fmt.Errorf("read kubeconfig %q: %w (%w)", kubeconfig, err, sharing.ErrInvalid)
	}
	config.UserAgent = "kerf"
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return s, nil, fmt.Errorf("make a client for %q: %w (%w)", config.Host, err, sharing.ErrInvalid)
	}
	base, _, err := rest.DefaultServerURL(config.Host, "", schema.GroupVersion{}, true)
	if err != nil {
		return s, nil, fmt.Errorf("read the address %q: %w (%w)", config.Host, err, sharing.ErrInvalid)
	}
	return surveyor{client: client, base: base}, client.CloseIdleConnections, nil
}

func (s surveyor) take(ctx context.Context) (Cluster, error) {
	c := Cluster{Reports: map[string]json.RawMessage{}}
	if err := s.list(ctx, "/api/v1/nodes", func(raw json.RawMessage) error {
		var n corev1.Node
		err := json.Unmarshal(raw, &n)
		c.Nodes = append(c.Nodes, node(&n))
		return err
	}); err != nil {
		return Cluster{}, err
	}
	if err := s.list(ctx, "/api/v1/pods", func(raw json.RawMessage) error {
		var p corev1.Pod
		err := json.Unmarshal(raw, &p)
		if !podspec.Terminal(&p) {
			c.Pods = append(c.Pods, pod(&p))
		}
		return err
	}); err != nil {
		return Cluster{}, err
	}
	return c, s.list(ctx, "/apis/"+sharing.Domain+"/v1alpha1/gpunodes", func(raw json.RawMessage) error {
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
}

type surveyor struct {
	client *http.Client
	base   *url.URL
}

// list gives each item of a list, page by page.
func (s surveyor) list(ctx context.Context, path string, item func(json.RawMessage) error) error {
	for next := ""; ; {
		page, err := s.page(ctx, path, next)
		if err != nil {
			return fmt.Errorf("list %s: %w", nameOf(path), err)
		}
		for _, raw := range page.Items {
			if err := item(raw); err != nil {
				return fmt.Errorf("list %s: %w (%w)", nameOf(path), err, sharing.ErrUnavailable)
			}
		}
		if next = page.Metadata.Continue; next == "" {
			return nil
		}
	}
}

// nameOf is what a path is the list of.
func nameOf(path string) string {
	path, _, _ = strings.Cut(path, "?")
	return path[strings.LastIndex(path, "/")+1:]
}

type page struct {
	Metadata struct{ Continue string }
	Items    []json.RawMessage
}

func (s surveyor) page(ctx context.Context, path, next string) (page, error) {
	ctx, cancel := context.WithTimeout(ctx, pageTimeout)
	defer cancel()
	var p page
	err := s.get(ctx, path, url.Values{"limit": {fmt.Sprint(pageSize)}, "continue": {next}}, &p)
	return p, err
}

// get reads one answer.
func (s surveyor) get(ctx context.Context, path string, query url.Values, into any) error {
	path, selector, _ := strings.Cut(path, "?fieldSelector=")
	if selector != "" {
		query.Set("fieldSelector", selector)
	}
	at := s.base.JoinPath(path)
	at.RawQuery = query.Encode()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, at.String(), nil)
	if err != nil {
		return fmt.Errorf("%w (%w)", err, sharing.ErrInvalid)
	}
	request.Header.Set("Accept", "application/json")
	answer, err := s.client.Do(request)
	if err != nil {
		return fmt.Errorf("%w (%w)", err, sharing.ErrUnavailable)
	}
	defer func() { _ = answer.Body.Close() }()
	switch answer.StatusCode {
	case http.StatusOK:
	case http.StatusUnauthorized, http.StatusForbidden:
		return fmt.Errorf("the API server says %s: %w", answer.Status, sharing.ErrDenied)
	case http.StatusNotFound:
		return fmt.Errorf("the API server says %s; is deploy/manifests applied?: %w", answer.Status, sharing.ErrNotFound)
	default:
		return fmt.Errorf("the API server says %s: %w", answer.Status, sharing.ErrUnavailable)
	}
	if err := json.NewDecoder(io.LimitReader(answer.Body, pageBytes)).Decode(into); err != nil {
		return fmt.Errorf("read the answer: %w (%w)", err, sharing.ErrUnavailable)
	}
	return nil
}

func node(n *corev1.Node) Node {
	out := Node{Name: n.Name, Labels: n.Labels, MilliCPU: n.Status.Allocatable.Cpu().MilliValue(), Closed: n.Spec.Unschedulable}
	out.Memory = bytes(n.Status.Allocatable)
	for name, q := range n.Status.Allocatable {
		if strings.HasPrefix(string(name), sharing.Domain+"/") {
			if out.Offers == nil {
				out.Offers = map[string]int64{}
			}
			out.Offers[string(name)] = q.Value()
		}
	}
	ready := slices.IndexFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
	out.Closed = out.Closed || ready < 0
	return out
}

func pod(p *corev1.Pod) Pod {
	out := Pod{Pod: podspec.Convert(p)}
	out.MilliCPU, out.Memory = asked(p)
	_, out.Fixed = p.Annotations[corev1.MirrorPodAnnotationKey]
	for _, o := range p.OwnerReferences {
		if o.Controller != nil && *o.Controller {
			out.Owner, out.Fixed = o.Kind+" "+o.Name, out.Fixed || o.Kind == "DaemonSet" || o.Kind == "Node"
		}
	}
	return out
}

// asked is what the scheduler counts for a pod: its containers and sidecars together, or what an init container needs
// while it runs beside the sidecars before it, if that is more; and what the runtime needs for itself.
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
