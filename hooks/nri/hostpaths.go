// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package nri

import (
	"context"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/containerd/nri/pkg/api"

	"github.com/kerf-gpu/kerf/sharing"
)

// Namespaces is what the plugin needs of the API server's namespaces.
type Namespaces interface {
	// NamespaceLabels are the labels of a namespace. The error says why they cannot be read.
	NamespaceLabels(ctx context.Context, name string) (map[string]string, error)
}

// HostPaths says which containers may mount what reaches GPUs past Kerf: its own folders, those by which GPUs are given
// away, and the device files. At admission such a mount only warns, since a policy does not know the node.
type HostPaths struct {
	// Guarded are folders of this node, as absolute paths.
	Guarded []string
	// Allowed are namespaces whose containers may mount all that.
	Allowed []string
	// Namespaces is asked for the label of all others. Without it no other namespace is let off.
	Namespaces Namespaces
}

// proc is another process's view of the node: its root has all files of it.
var proc = regexp.MustCompile(`^/proc/(self|thread-self|[0-9]+)/`)

// reach is the source of the first of a container's mounts that reaches GPUs past Kerf; empty if there is none.
func (h HostPaths) reach(c *api.Container) string {
	for _, m := range c.GetMounts() {
		if !bound(m) {
			continue
		}
		from := unlinked(path.Clean(m.GetSource()))
		below := func(dir string) bool {
			dir = unlinked(path.Clean(dir))
			return from == dir || strings.HasPrefix(from, dir+"/")
		}
		if strings.HasPrefix(from, "/dev/nvidia") || proc.MatchString(from+"/") ||
			slices.ContainsFunc(h.Guarded, below) {
			return from
		}
	}
	return ""
}

// bound is true of a mount of files of the node. The source of others (proc, tmpfs) is no path.
func bound(m *api.Mount) bool {
	return path.IsAbs(m.GetSource()) && (m.GetType() == "bind" || slices.Contains(m.GetOptions(), "bind") ||
		slices.Contains(m.GetOptions(), "rbind"))
}

// unlinked is a path without the link that every system has: /var/run is /run.
func unlinked(p string) string {
	if rest, under := strings.CutPrefix(p, "/var/run/"); under {
		return "/run/" + rest
	}
	return p
}

// check refuses a container of that namespace whose mounts reach GPUs past Kerf. It asks the API server only then, for
// at most limit. Where that does not answer, the container is refused, and may come again.
func (h HostPaths) check(ctx context.Context, namespace string, c *api.Container, limit time.Duration) error {
	from := h.reach(c)
	if from == "" || slices.Contains(h.Allowed, namespace) {
		return nil
	}
	err := sharing.Invalid("host path", from, "leave it out of the pod, or label its namespace "+sharing.LabelHostPaths+
		"=true",
		"reaches GPUs past Kerf")
	if h.Namespaces == nil {
		return fmt.Errorf("container %q: %w", c.GetName(), err)
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	labels, unread := h.Namespaces.NamespaceLabels(ctx, namespace)
	switch {
	case unread != nil:
		return fmt.Errorf("container %q: host path %q reaches GPUs past Kerf, and whether namespace %q may mount it "+
			"is not known: %w (%w)",
			c.GetName(), from, namespace, unread, sharing.ErrUnavailable)
	case labels[sharing.LabelHostPaths] == "true":
		return nil
	}
	return fmt.Errorf("container %q: %w", c.GetName(), err)
}
