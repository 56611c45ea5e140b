// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package nri

import (
	"path"
	"strings"

	"github.com/containerd/nri/pkg/api"
)

// viewTarget is where a container finds the folder of the socket that tells it its own numbers.
const viewTarget = "/run/kerf-pod"

// addView mounts the host's folder view, if there is one. Nothing depends on it: a container that mounts something of its
// own there, above it or below it, goes without.
func addView(a *api.ContainerAdjustment, c *api.Container, view string) {
	if view == "" {
		return
	}
	for _, own := range c.GetMounts() {
		at := path.Clean(own.GetDestination())
		if at == viewTarget || strings.HasPrefix(at, viewTarget+"/") || at != "/" && strings.HasPrefix(viewTarget, at+"/") {
			return
		}
	}
	a.AddMount(&api.Mount{Source: view, Destination: viewTarget, Type: "bind", Options: []string{"bind", "nosuid", "nodev", "noexec", "ro"}})
}
