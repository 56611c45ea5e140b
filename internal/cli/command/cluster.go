// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package command

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kerf-gpu/kerf/api/gpunode"
	"github.com/kerf-gpu/kerf/internal/kube/access"
	"github.com/kerf-gpu/kerf/internal/kube/survey"
	"github.com/kerf-gpu/kerf/internal/nodeclient"
	"github.com/kerf-gpu/kerf/internal/present"
	"github.com/kerf-gpu/kerf/sharing"
)

const (
	// ClusterDeadline bounds what one picture of a cluster takes.
	ClusterDeadline = time.Minute
	// GPUNodesPath is where the agents' reports are.
	GPUNodesPath = "/apis/" + gpunode.Group + "/" + gpunode.Version + "/" + gpunode.Resource
	// SystemNamespace is where Kerf's own pods are.
	SystemNamespace = "kerf-system"
)

// connectionFlags are kubectl's flags for how to reach a cluster, as far as they are hidden from the help: those that
// people rarely type.
func connectionFlags() []string {
	return []string{
		"as", "as-group", "as-uid", "as-user-extra", "certificate-authority", "client-certificate", "client-key",
		"cluster", "disable-compression",
		"insecure-skip-tls-verify", "password", "proxy-url", "request-timeout", "server", "tls-server-name", "token",
		"user", "username",
	}
}

// DefineConnection defines the flags by which kubectl's users name a cluster.
func (a *App) DefineConnection(root *cobra.Command) {
	f := root.PersistentFlags()
	f.StringVar(&a.Kubeconfig, "kubeconfig", "", "kubeconfig of the cluster (default: what kubectl would read)")
	clientcmd.BindOverrideFlags(&a.Overrides, f, clientcmd.RecommendedConfigOverrideFlags(""))
	for _, name := range connectionFlags() {
		if flag := f.Lookup(name); flag != nil {
			flag.Hidden = true
		}
	}
	f.Lookup("namespace").Usage = "namespace of the pods"
	f.Lookup("context").Usage = "context of the kubeconfig"
	CompleteWith(root, "context", a.completeContexts)
}

// Reach says how to reach the cluster: by flags, else as kubectl would.
func (a *App) Reach() access.Options {
	o := access.Options{File: a.Kubeconfig, Overrides: a.Overrides}
	if o.File != "" {
		return o
	}
	for _, f := range filepath.SplitList(a.Getenv("KUBECONFIG")) {
		if f != "" {
			o.Files = append(o.Files, f)
		}
	}
	if home := cmp.Or(a.Getenv("HOME"), a.Getenv("USERPROFILE")); len(o.Files) == 0 && home != "" {
		if path := filepath.Join(home, ".kube", "config"); Exists(path) {
			o.Files = []string{path}
		}
	}
	return o
}

// Cluster connects to the cluster. The caller closes the client.
func (a *App) Cluster() (*access.Client, error) {
	return access.Open(a.Reach()) //nolint:wrapcheck // it says what it did
}

// Remote reports whether a command asks the cluster, and not the agent of this machine. It does so if a flag names the
// cluster or kubectl called. It also does so if there is no agent's socket here and a cluster is reachable. --run-dir
// and KERF_DIR name a machine's agent.
func (a *App) Remote(c *cobra.Command) bool {
	if Changed(c, "run-dir") || a.Getenv("KERF_DIR") != "" {
		return false
	}
	if a.Meant(c) {
		return true
	}
	if Exists(nodeclient.SocketPath(a.Dir)) {
		return false
	}
	return a.Reach().Named() || a.Getenv("KUBERNETES_SERVICE_HOST") != ""
}

// Meant is true where the user says that a cluster is meant.
func (a *App) Meant(c *cobra.Command) bool {
	return a.Plugin || Changed(c, append(connectionFlags(), "kubeconfig", "context")...)
}

// Changed is true when any of the flags was given.
func Changed(c *cobra.Command, names ...string) bool {
	return slices.ContainsFunc(names, func(name string) bool {
		f := c.Flags().Lookup(name)
		return f != nil && f.Changed
	})
}

// WithCluster runs f with a client of the cluster, within a deadline.
func (a *App) WithCluster(parent context.Context, f func(ctx context.Context, api *access.Client) error) error {
	api, err := a.Cluster()
	if err != nil {
		return err
	}
	defer api.Close()
	ctx, cancel := context.WithTimeout(parent, ClusterDeadline)
	defer cancel()
	return f(ctx, api)
}

// Reported reads what the agents tell of their nodes.
func Reported(ctx context.Context, api *access.Client, now time.Time) (present.Cluster, error) {
	c := present.Cluster{Nodes: []present.ClusterNode{}, Left: []string{}}
	err := api.List(ctx, GPUNodesPath, nil, func(raw json.RawMessage) error {
		var o gpunode.Object
		err := json.Unmarshal(raw, &o)
		o.Status.Cordon(o.Spec)
		c.Nodes = append(c.Nodes, present.ClusterNode{Name: o.Metadata.Name, Status: o.Status})
		return err
	})
	if errors.Is(err, sharing.ErrNotFound) {
		return c, fmt.Errorf("%w; Kerf is not installed in this cluster: apply deploy/manifests or the chart", err)
	}
	if err != nil {
		return c, err //nolint:wrapcheck // it says what it did
	}
	slices.SortFunc(c.Nodes, func(a, b present.ClusterNode) int { return strings.Compare(a.Name, b.Name) })
	beats, err := survey.Heartbeats(ctx, api)
	if err != nil {
		c.Left = append(c.Left, "when the agents were heard from last: "+err.Error())
		return c, nil //nolint:nilerr // it is said, and the rest is known
	}
	for i := range c.Nodes {
		n := &c.Nodes[i]
		if b, ok := beats[n.Name]; ok {
			n.LastSeen, n.Stale = &b.Renewed, now.Sub(b.Renewed) > b.Valid
		}
	}
	return c, nil
}

// ListTimeout bounds how long the lists of --from-cluster take together.
const ListTimeout = 5 * time.Minute

// The ports at which Kerf's pods answer, as deploy/manifests has them.
const (
	AgentPort   = 9445
	MonitorPort = 9446
)

// OwnPod is a pod of Kerf's own on a node.
type OwnPod struct{ name, Node string }

// OwnPods are Kerf's own pods of that name, by their nodes.
func OwnPods(ctx context.Context, api *access.Client, app string) ([]OwnPod, error) {
	var out []OwnPod
	query := url.Values{"labelSelector": {"app.kubernetes.io/name=" + app}, "fieldSelector": {"status.phase=Running"}}
	err := api.List(ctx, "/api/v1/namespaces/"+SystemNamespace+"/pods", query, func(raw json.RawMessage) error {
		var p struct {
			Metadata struct{ Name string }
			Spec     struct{ NodeName string }
		}
		err := json.Unmarshal(raw, &p)
		out = append(out, OwnPod{p.Metadata.Name, p.Spec.NodeName})
		return err
	})
	slices.SortFunc(out, func(a, b OwnPod) int { return strings.Compare(a.Node, b.Node) })
	return out, err //nolint:wrapcheck // it says what it did
}

// CallPod asks a pod of Kerf's over the API server, which needs the right to pods/proxy in Kerf's namespace.
func CallPod(ctx context.Context, api *access.Client, p OwnPod, port int, what string, query url.Values,
	most int64) ([]byte, error) {
	path := fmt.Sprintf("/api/v1/namespaces/%s/pods/%s:%d/proxy/%s", SystemNamespace, url.PathEscape(p.name), port,
		what)
	text, err := api.Text(ctx, path, query, most)
	if err != nil {
		return nil, fmt.Errorf("ask pod %s of node %s: %w", p.name, p.Node, err)
	}
	return text, nil
}

// Process is what the command line uses of the process that it runs in.
type Process struct {
	In          *os.File
	Out, ErrOut *os.File
	// Getenv gives one variable of the environment, Environ all of them as "key=value".
	Getenv  func(string) string
	Environ func() []string
	// Exec replaces the process by a program; it returns only with an error.
	Exec func(path string, argv, env []string) error
	// Version is the version of the build. Registry has the images of a release; empty for that of the chart.
	Version, Registry string
}

// Main runs the command line argv, whose first word is the program's path, of the tree that root makes. It returns the
// exit status of the process, and the signal that stopped the command, or 0. A caller that got a signal ends as that
// signal does by default.
func Main(argv []string, p Process, root func(*App) *cobra.Command) (code int, stopped syscall.Signal) {
	a := &App{
		Plugin: strings.TrimSuffix(filepath.Base(argv[0]), ".exe") == pluginName,
		In:     p.In, Out: p.Out, ErrOut: p.ErrOut, Getenv: p.Getenv, Environ: p.Environ,
		Screen: screenOf(p.Out), ErrScreen: screenOf(p.ErrOut), Exec: p.Exec, Version: p.Version, Registry: p.Registry,
	}
	code, err := a.Run(root(a), argv[1:])
	if e, ok := errors.AsType[*InterruptedError](err); ok {
		stopped = e.signal
	}
	return code, stopped
}
