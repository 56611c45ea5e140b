// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package command

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	basecompatibility "k8s.io/component-base/compatibility"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/cmd/kube-scheduler/app/options"
	schedconfig "k8s.io/kubernetes/pkg/scheduler/apis/config"
)

// minorsBack is how many minor versions back a Kubernetes component emulates at most (k8s.io/apiserver,
// util/compatibility).
const minorsBack = 3

// The API server is asked again after retryAfter, and each time has askTimeout to answer.
const (
	retryAfter = 2 * time.Second
	askTimeout = 10 * time.Second
)

// emulate returns the version to emulate, or "" for the own one. It waits for the API server until ctx ends, and
// asks it again after each retry.
func emulate(ctx context.Context, opts *options.Options, retry time.Duration) (string, error) {
	config, err := clientConfig(opts)
	if err != nil {
		return "", err
	}
	config.Timeout = askTimeout
	client, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return "", fmt.Errorf("make client: %w", err)
	}
	own := opts.ComponentGlobalsRegistry.EffectiveVersionFor(basecompatibility.DefaultKubeComponent).BinaryVersion()
	var older string
	err = wait.PollUntilContextCancel(ctx, retry, true, func(context.Context) (bool, error) {
		info, err := client.ServerVersion()
		if err != nil {
			klog.Background().Info("failed to read the version of the API server, will retry", "err", err)
			return false, nil
		}
		older, err = olderOf(info.GitVersion, own)
		return true, err
	})
	if err != nil {
		return "", fmt.Errorf("read version of the API server: %w", err)
	}
	if older != "" {
		klog.Background().Info("emulating the version of an older API server", "version", older, "own", own.String())
	}
	return older, nil
}

// olderOf is the version that a scheduler of version own emulates for an API server, or "" for the own one. For a
// server that is older than any it can emulate, it is the oldest of these.
func olderOf(server string, own *version.Version) (string, error) {
	v, err := version.ParseGeneric(server)
	if err != nil {
		return "", fmt.Errorf("parse version %q: %w", server, err)
	}
	if v.Major() != own.Major() || v.Minor() >= own.Minor() {
		return "", nil
	}
	oldest := own.SubtractMinor(minorsBack)
	return fmt.Sprintf("%d.%d", own.Major(), max(v.Minor(), oldest.Minor())), nil
}

// clientConfig is how the options reach the API server, as kube-scheduler takes it from them.
func clientConfig(opts *options.Options) (*rest.Config, error) {
	var connection schedconfig.KubeSchedulerConfiguration
	switch {
	case opts.ConfigFile != "":
		c, err := options.LoadConfigFromFile(klog.Background(), opts.ConfigFile)
		if err != nil {
			return nil, fmt.Errorf("read config %s: %w", opts.ConfigFile, err)
		}
		connection = *c
	case opts.ComponentConfig != nil:
		connection = *opts.ComponentConfig
	}
	path := connection.ClientConnection.Kubeconfig
	if opts.ConfigFile == "" && opts.Deprecated != nil && opts.Deprecated.Kubeconfig != "" {
		path = opts.Deprecated.Kubeconfig
	}
	config, err := clientcmd.BuildConfigFromFlags(opts.Master, path)
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig: %w", err)
	}
	return config, nil
}
