// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package source

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/kerf-gpu/kerf/api/gpunode"
	"github.com/kerf-gpu/kerf/internal/console/model"
	"github.com/kerf-gpu/kerf/internal/console/stream"
	"github.com/kerf-gpu/kerf/internal/kube/access"
	"github.com/kerf-gpu/kerf/internal/kube/survey"
	"github.com/kerf-gpu/kerf/internal/sleep"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/allocator/cluster"
	"github.com/kerf-gpu/kerf/sharing/config"
)

const (
	gpuNodesPath = "/apis/" + gpunode.Group + "/" + gpunode.Version + "/" + gpunode.Resource
	nodesPath    = "/api/v1/nodes"
	// slowly is how often heartbeats and config are read.
	slowly = 20 * time.Second
)

// Cluster reads a cluster. Make one with NewCluster.
type Cluster struct {
	api        *access.Client
	namespace  string
	prometheus string

	mu sync.Mutex
	// nodes are by name. A node is shown once its GPUNode is known. Machines are those with a Node object.
	nodes    map[string]stream.Node
	machines map[string]bool
	pods     map[string]bool
	beats    map[string]beat
	// problems are by what cannot be read.
	problems map[string]string
	prices   config.Prices
}

// NewCluster reads with a client. If namespace is not empty, and not all pods can be listed, only its pods are read.
// Prometheus is an address, or empty.
func NewCluster(api *access.Client, namespace, prometheus string) *Cluster {
	return &Cluster{api: api, namespace: namespace, prometheus: prometheus, nodes: map[string]stream.Node{},
		machines: map[string]bool{}, pods: map[string]bool{}, problems: map[string]string{}}
}

// Run implements Source.
func (c *Cluster) Run(ctx context.Context, hub *stream.Broadcaster) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { flush(ctx, hub); return nil })
	g.Go(func() error { c.poll(ctx, hub); return nil })
	for _, k := range []kind{{"gpunodes", gpuNodesPath, c.gpuNode, c.noGPUNode}, {"nodes", nodesPath, c.node, c.noNode},
		{"pods", c.podsPath(ctx), c.pod, c.noPod}} {
		g.Go(func() error { return c.follow(ctx, hub, k) })
	}
	return g.Wait()
}

// podsPath is that of all pods, or of the one namespace if the user may not list all.
func (c *Cluster) podsPath(ctx context.Context) string {
	const all = "/api/v1/pods"
	var one struct{}
	err := c.api.Get(ctx, all, url.Values{"limit": {"1"}}, &one)
	if c.namespace != "" && errors.Is(err, sharing.ErrDenied) {
		return "/api/v1/namespaces/" + url.PathEscape(c.namespace) + "/pods"
	}
	return all
}

// kind is a kind of objects that are followed.
type kind struct {
	what, path string
	// take records an object, or that it is gone, and returns its key. It keeps nothing of raw.
	take func(hub *stream.Broadcaster, raw json.RawMessage, gone bool) (key string, err error)
	// forget records that the object with a key is gone.
	forget func(hub *stream.Broadcaster, key string)
}

// follow keeps the hub at the objects of a kind.
func (c *Cluster) follow(ctx context.Context, hub *stream.Broadcaster, k kind) error {
	known := map[string]bool{}
	var listed map[string]bool // nil when no list is being read
	return c.api.Watch(ctx, k.path, nil, access.Follower{
		Begun: func() { listed = map[string]bool{} },
		Changed: func(raw json.RawMessage, gone bool) error {
			c.mu.Lock()
			defer c.mu.Unlock()
			key, err := k.take(hub, raw, gone)
			if listed != nil {
				listed[key] = true
			}
			if delete(known, key); !gone && err == nil {
				known[key] = true
			}
			return err
		},
		Listed: func() error {
			c.mu.Lock()
			defer c.mu.Unlock()
			for key := range known {
				if !listed[key] {
					k.forget(hub, key)
					delete(known, key)
				}
			}
			listed = nil
			return nil
		},
		Failed: func(err error) error { c.problem(hub, k.what, err); return nil },
	})
}

// problem records that something cannot be read, or can be read again.
func (c *Cluster) problem(hub *stream.Broadcaster, what string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if delete(c.problems, what); err != nil {
		c.problems[what] = fmt.Sprintf("Cannot read %s: %v", what, err)
	}
	m := stream.Meta{Source: "cluster", Problems: []string{}, Prometheus: c.prometheus != ""}
	for _, text := range c.problems {
		m.Problems = append(m.Problems, text)
	}
	slices.Sort(m.Problems)
	hub.Describe(m)
}

func (c *Cluster) gpuNode(hub *stream.Broadcaster, raw json.RawMessage, gone bool) (string, error) {
	var o gpunode.Object
	if err := json.Unmarshal(raw, &o); err != nil {
		return "", fmt.Errorf("read a GPUNode: %w (%w)", err, sharing.ErrUnavailable)
	}
	name := o.Metadata.Name
	if gone {
		c.noGPUNode(hub, name)
		return name, nil
	}
	o.Status.Cordon(o.Spec)
	n := c.nodes[name]
	n.Live.Name, n.Live.Report = name, &o.Status
	c.put(hub, n)
	return name, nil
}

// noGPUNode forgets a report. A node without a Node object is forgotten, too.
func (c *Cluster) noGPUNode(hub *stream.Broadcaster, name string) {
	if !c.machines[name] {
		c.noNode(hub, name)
		return
	}
	n := c.nodes[name]
	n.Live.Report, n.Silent = nil, false
	c.put(hub, n)
}

func (c *Cluster) node(hub *stream.Broadcaster, raw json.RawMessage, gone bool) (string, error) {
	read, err := survey.ReadNode(raw)
	if err != nil {
		return "", err
	}
	if gone {
		c.noNode(hub, read.Name)
		return read.Name, nil
	}
	c.machines[read.Name] = true
	n := c.nodes[read.Name]
	before := n.Live
	n.Live.Name, n.Live.CPU, n.Live.Memory = read.Name, cluster.Milli(read.MilliCPU), read.Memory
	n.Live.Closed, n.Live.Allocatable, n.Labels = read.Closed, read.Allocatable, read.Labels
	if before.Name == "" || n.Live.CPU != before.CPU || n.Live.Memory != before.Memory ||
		n.Live.Closed != before.Closed || !maps.Equal(n.Live.Allocatable, before.Allocatable) {
		c.put(hub, n) // a node's status changes every some seconds
	}
	c.nodes[read.Name] = n
	return read.Name, nil
}

func (c *Cluster) noNode(hub *stream.Broadcaster, name string) {
	delete(c.nodes, name)
	delete(c.machines, name)
	hub.RemoveNode(name)
}

// put tells the hub of a node.
func (c *Cluster) put(hub *stream.Broadcaster, n stream.Node) {
	c.nodes[n.Live.Name] = n
	hub.Node(n)
}

func (c *Cluster) pod(hub *stream.Broadcaster, raw json.RawMessage, gone bool) (string, error) {
	read, at, err := survey.ReadPod(raw)
	if err != nil {
		return "", err
	}
	if gone || read.Terminal {
		c.noPod(hub, read.UID)
		return read.UID, nil
	}
	c.pods[read.UID] = true
	hub.Pod(model.SeenPod{Pod: read.Pod, Message: at.Message, Since: at.Created, CPU: cluster.Milli(read.MilliCPU),
		Memory: read.Memory, Owner: read.Owner, Fixed: read.Fixed})
	return read.UID, nil
}

func (c *Cluster) noPod(hub *stream.Broadcaster, uid string) {
	if c.pods[uid] {
		delete(c.pods, uid)
		hub.RemovePod(uid)
	}
}

// poll reads heartbeats and config until ctx ends.
func (c *Cluster) poll(ctx context.Context, hub *stream.Broadcaster) {
	for {
		beats, err := survey.Heartbeats(ctx, c.api)
		c.problem(hub, "heartbeats", err)
		if err == nil {
			c.heard(hub, beats)
		}
		data, err := survey.Config(ctx, c.api)
		if errors.Is(err, sharing.ErrNotFound) {
			err = nil
		}
		c.problem(hub, "config", err)
		if files := config.FilesOf(data); len(files) > 0 {
			if read, err := config.DecodeFiles(files...); err == nil {
				hub.Configure(&read)
				c.mu.Lock()
				c.prices = read.Prices()
				c.mu.Unlock()
			}
		}
		if !sleep.For(ctx, slowly) {
			return
		}
	}
}
