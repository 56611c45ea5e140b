// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package access reaches an API server as a user of kubectl does. It uses a kubeconfig, the flags of kubectl over it,
// or the service account of the pod that the process runs in.
//
// It promises that each request but a stream has a deadline, and that an error says what the user can do. It does
// without the client library's typed clients: they would cost every program that links them some milliseconds at its
// start. It knows no object: its users read and write JSON.
package access

import (
	"fmt"
	"net/http"
	"net/url"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kerf-gpu/kerf/sharing"
)

// Options say which cluster, and as whom. The zero value is the service account of the pod that the process runs in.
type Options struct {
	// File is the kubeconfig to read. If it is empty, Files are read in its place: the first that sets something
	// counts, and a missing one is ignored.
	File  string
	Files []string
	// Overrides are what flags say in the place of the file.
	Overrides clientcmd.ConfigOverrides
}

// Named tells whether any of the flags or files names a cluster.
func (o Options) Named() bool {
	return o.File != "" || len(o.Files) > 0 || o.Overrides.ClusterInfo.Server != ""
}

// Client speaks to one API server. Its methods may be called at the same time.
type Client struct {
	// Namespace is the one that the user works in: that of the flag, else of the kubeconfig's context, else "default".
	Namespace string

	client *http.Client
	base   *url.URL
}

// Open makes a Client; it does not connect. The error wraps sharing.ErrInvalid.
func Open(o Options) (*Client, error) {
	config, namespace, err := configure(o)
	if err != nil {
		return nil, err
	}
	config.UserAgent = "kerf"
	return For(config, namespace)
}

// For makes a Client of a configuration that a program has already. The error wraps sharing.ErrInvalid.
func For(config *rest.Config, namespace string) (*Client, error) {
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("make a client for %q: %w (%w)", config.Host, err, sharing.ErrInvalid)
	}
	base, _, err := rest.DefaultServerURL(config.Host, "", schema.GroupVersion{}, config.CAFile != "" ||
		len(config.CAData) > 0 || config.Insecure)
	if err != nil {
		return nil, fmt.Errorf("read the address %q: %w (%w)", config.Host, err, sharing.ErrInvalid)
	}
	return &Client{Namespace: namespace, client: client, base: base}, nil
}

func configure(o Options) (config *rest.Config, namespace string, err error) {
	if !o.Named() {
		config, err = rest.InClusterConfig()
		if err != nil {
			return nil, "", fmt.Errorf("find a cluster: no kubeconfig is there, and this is no pod with a service "+
				"account (%w): name one with --kubeconfig or KUBECONFIG: %w", err, sharing.ErrInvalid)
		}
		namespace = o.Overrides.Context.Namespace
	} else {
		loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(
			&clientcmd.ClientConfigLoadingRules{ExplicitPath: o.File, Precedence: o.Files}, &o.Overrides)
		if config, err = loader.ClientConfig(); err == nil {
			namespace, _, err = loader.Namespace()
		}
		if err != nil {
			return nil, "", fmt.Errorf("read kubeconfig %q: %w (%w)", name(o), err, sharing.ErrInvalid)
		}
	}
	if namespace == "" {
		namespace = "default"
	}
	return config, namespace, nil
}

func name(o Options) string {
	if o.File == "" && len(o.Files) > 0 {
		return o.Files[0]
	}
	return o.File
}

// Close closes the connections that are kept for the next request.
func (c *Client) Close() { c.client.CloseIdleConnections() }
