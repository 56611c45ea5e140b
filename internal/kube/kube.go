// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package kube is the adapter to the Kubernetes API server for an agent on one node. It has the node's pods, whether a
// pod is gone, and events for users.
//
// It keeps no more of a pod than sharing.Pod has, and only the pods of its node. It works while the API server is away,
// at start and later. What was known stays known. It concludes nothing from an error, from silence, or from an answer
// that is not the API server's own. It writes nothing but events.
//
// It does not decide what follows from a pod's end. Of static pods it knows no more than their mirrors show: those
// belong to kubelet alone.
package kube

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/gentype"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kerf-gpu/kerf/sharing"
)

// The deadlines of what is asked of the API server, and how soon it is asked again.
const (
	callTimeout = 5 * time.Second
	listTimeout = 30 * time.Second
	firstRetry  = 200 * time.Millisecond
	lastRetry   = 5 * time.Second

	protobuf = runtime.ContentTypeProtobuf
	either   = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
)

// Options say which API server, which node, and where to log.
type Options struct {
	// Kubeconfig is a file; empty means the service account of the pod that this process runs in.
	Kubeconfig string
	// Node is this node's name in Kubernetes.
	Node string
	// Log may be nil, for no log.
	Log *slog.Logger
}

// Client speaks to the API server. Its methods may be called at the same time, before, during and after Run.
type Client struct {
	node   string
	log    *slog.Logger
	config *rest.Config
	http   *http.Client
	core   *core
	pods   *pods
	events *events
	owner  *owner
	reach  reach
}

// reach knows whether the API server can be reached.
type reach struct {
	log *slog.Logger

	mu   sync.Mutex
	away bool
	// over is true once Run returns: a list of the client library may end after it, and then says nothing.
	over bool
}

// Open reads the configuration and makes a Client; it does not connect. The error is one of configuration:
// it wraps sharing.ErrInvalid.
func Open(o Options) (*Client, error) {
	if o.Node == "" {
		return nil, sharing.Invalid("the node's name", "", "set it, in a pod from the field spec.nodeName", "is empty")
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	config, err := configure(o.Kubeconfig)
	if err != nil {
		return nil, err
	}
	config.UserAgent = "kerf-agent"
	config.ContentType, config.AcceptContentTypes = protobuf, either
	config.QPS, config.Burst = 20, 50
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("make a client for %q: %w (%w)", config.Host, err, sharing.ErrInvalid)
	}
	core, err := newCore(config, client)
	if err != nil {
		return nil, fmt.Errorf("make a client for %q: %w (%w)", config.Host, err, sharing.ErrInvalid)
	}
	c := &Client{node: o.Node, log: o.Log, config: config, http: client, core: core, pods: newPods(), owner: newOwner(),
		reach: reach{log: o.Log}}
	c.events = newEvents(core, o.Node, o.Log)
	return c, nil
}

func configure(kubeconfig string) (*rest.Config, error) {
	if kubeconfig == "" {
		config, err := rest.InClusterConfig()
		if err != nil {
			return nil, fmt.Errorf("read the pod's service account: %w (%w; name a kubeconfig outside of a pod)", err,
				sharing.ErrInvalid)
		}
		return config, nil
	}
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig %q: %w (%w)", kubeconfig, err, sharing.ErrInvalid)
	}
	return config, nil
}

// Run follows the node's pods and sends events until ctx ends, and returns nil when all that it started has
// ended. It is called once.
func (c *Client) Run(ctx context.Context) error {
	var g errgroup.Group
	g.Go(func() error { c.followPods(ctx); return nil })
	g.Go(func() error { c.events.run(ctx); return nil })
	err := g.Wait()
	c.reach.end()
	closeIdle(c.http)
	return err
}

// closeIdle closes what is kept open for the next request. The client library wraps its transport in others
// that http.Client does not look into.
func closeIdle(h *http.Client) { utilnet.CloseIdleConnectionsFor(h.Transport) }

// followPods asks for this node's pods alone.
func (c *Client) followPods(ctx context.Context) {
	all := c.core.Pods(metav1.NamespaceAll)
	follow(ctx, c.log, followed{
		of: &corev1.Pod{}, name: "pods of the node", resource: "pods", store: c.pods,
		selector: fields.OneTermEqualSelector("spec.nodeName", c.node).String(),
		list: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			list, err := all.List(ctx, o)
			c.reach.set(err)
			return list, err
		},
		watch: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			w, err := all.Watch(ctx, o)
			c.reach.set(err)
			return w, err
		},
	})
}

// set logs when the API server goes away and when it is back, once each.
func (r *reach) set(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.over:
		return
	case err != nil && !r.away:
		r.log.Warn("failed to read from the API server, using the last known state", "error", err)
	case err == nil && r.away:
		r.log.Info("recovered the connection to the API server")
	}
	r.away = err != nil
}

// end keeps set silent from now on.
func (r *reach) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.over = true
}

// Synced tells whether the node's pods have been read once.
func (c *Client) Synced() bool { return c.pods.isSynced() }

// Pod returns the node's pod of that UID, and waits for it until ctx ends. False means that the API server has not
// reported such a pod by then; it may still exist. The error wraps sharing.ErrUnavailable: the API server has not
// been read yet.
func (c *Client) Pod(ctx context.Context, uid string) (sharing.Pod, bool, error) {
	return c.pods.wait(ctx, uid)
}

// Labels are those of a pod of the node, as last reported; nil for an unknown pod. It does not wait. Do not change
// the map.
func (c *Client) Labels(uid string) map[string]string {
	p, _, _, _ := c.pods.get(uid)
	return p.Labels
}

// Asking returns the node's pods that request Kerf's resources and have not ended, as last reported, in no order;
// false until the first read. Do not change what the pods point to.
func (c *Client) Asking() ([]sharing.Pod, bool) { return c.pods.asking() }

// OnPodRemoved registers f, which is called once for each pod of the node that is deleted, succeeded or failed. It is
// called from one goroutine and must return soon. Resync handles a pod that ended while there was no watch. Register
// before Run.
func (c *Client) OnPodRemoved(f func(uid string)) { c.pods.onGone(f) }

// core asks for the kinds of the group "" that are used here. The client library's own client of that group knows the
// kinds of all groups, which is half of what such a program holds in memory.
type core struct {
	rest   rest.Interface
	params runtime.ParameterCodec
}

// newCore makes one that speaks through h.
func newCore(c *rest.Config, h *http.Client) (*core, error) {
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, metav1.Unversioned)
	utilruntime.Must(corev1.AddToScheme(scheme)) // it fails only for kinds that contradict each other
	config, version := *c, corev1.SchemeGroupVersion
	config.GroupVersion, config.APIPath = &version, "/api"
	config.NegotiatedSerializer = rest.CodecFactoryForGeneratedClient(scheme,
		serializer.NewCodecFactory(scheme)).WithoutConversion()
	client, err := rest.RESTClientForConfigAndClient(&config, h)
	if err != nil {
		return nil, err
	}
	return &core{client, runtime.NewParameterCodec(scheme)}, nil
}

// RESTClient is for what has no kind here.
func (c *core) RESTClient() rest.Interface { return c.rest }

// Pods are those of a namespace, or all.
func (c *core) Pods(namespace string) *gentype.ClientWithList[*corev1.Pod, *corev1.PodList] {
	return gentype.NewClientWithList("pods", c.rest, c.params, namespace,
		func() *corev1.Pod { return &corev1.Pod{} }, func() *corev1.PodList { return &corev1.PodList{} },
		gentype.PrefersProtobuf[*corev1.Pod]())
}

// ConfigMaps are those of a namespace.
func (c *core) ConfigMaps(namespace string) *gentype.ClientWithList[*corev1.ConfigMap, *corev1.ConfigMapList] {
	return gentype.NewClientWithList("configmaps", c.rest, c.params, namespace,
		func() *corev1.ConfigMap { return &corev1.ConfigMap{} },
		func() *corev1.ConfigMapList { return &corev1.ConfigMapList{} }, gentype.PrefersProtobuf[*corev1.ConfigMap]())
}

// Nodes are all.
func (c *core) Nodes() *gentype.ClientWithList[*corev1.Node, *corev1.NodeList] {
	return gentype.NewClientWithList("nodes", c.rest, c.params, "",
		func() *corev1.Node { return &corev1.Node{} }, func() *corev1.NodeList { return &corev1.NodeList{} },
		gentype.PrefersProtobuf[*corev1.Node]())
}

// Events are those of a namespace.
func (c *core) Events(namespace string) *gentype.Client[*corev1.Event] {
	return gentype.NewClient("events", c.rest, c.params, namespace,
		func() *corev1.Event { return &corev1.Event{} }, gentype.PrefersProtobuf[*corev1.Event]())
}

// quiet shows what the client library logs at debug level only. The library reports every attempt to reach an absent
// API server as an error; the Client says it once. Its verbosities, 1 and up, are the levels below info, -1 and down;
// from 3 on it logs every request.
type quiet struct{ slog.Handler }

func (q quiet) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= slog.LevelInfo-2 && q.Handler.Enabled(ctx, slog.LevelDebug)
}

func (q quiet) Handle(ctx context.Context, r slog.Record) error {
	r.Level = slog.LevelDebug
	if !q.Handler.Enabled(ctx, r.Level) {
		return nil // the library does not ask before it logs an error
	}
	return q.Handler.Handle(ctx, r)
}

func (q quiet) WithAttrs(attrs []slog.Attr) slog.Handler { return quiet{q.Handler.WithAttrs(attrs)} }

func (q quiet) WithGroup(name string) slog.Handler { return quiet{q.Handler.WithGroup(name)} }
