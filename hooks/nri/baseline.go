// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package nri

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/kerf-gpu/kerf/sharing"
)

// Baseline says which pods with ResourceClaims may have rights by which a container takes off its cap. Admission checks
// only pods with limits: a policy does not see which driver a claim uses.
type Baseline struct {
	// Namespaces is asked for the label that allows it. Without it, no namespace has the label.
	Namespaces Namespaces
	// Permitted reports whether the profile of these requests allows it. It may be nil.
	Permitted func(requests []sharing.ResourceRequest) bool
}

// adminAccessLabel is the label of namespaces in which Kubernetes allows claims with admin access.
const adminAccessLabel = "resource.kubernetes.io/admin-access"

// checkAdmin rejects a container that was given GPUs by name, unless its pod has a ResourceClaim in a namespace with
// admin access. What is not known is rejected, too. It asks the API server for at most limit.
func (b Baseline) checkAdmin(ctx context.Context, pod sharing.Pod, box sandbox, container string,
	limit time.Duration) error {
	if b.Namespaces == nil || pod.UID == "" {
		return fmt.Errorf("container %q: it names GPUs, and whether its pod may have admin access is not known: %w",
			container, sharing.ErrUnavailable)
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	labels, err := b.Namespaces.NamespaceLabels(ctx, box.namespace)
	if err != nil {
		return fmt.Errorf("container %q: whether namespace %q allows admin access is not known: %w (%w)", container,
			box.namespace, err, sharing.ErrUnavailable)
	}
	if labels[adminAccessLabel] == "true" && len(pod.Claims) > 0 {
		return nil
	}
	return fmt.Errorf("container %q: it names GPUs without a claim with adminAccess in a namespace that allows it: %w",
		container, sharing.ErrInvalid)
}

// check rejects a container that claims admit, if its pod has such rights. A pod that is not known is rejected, too,
// and kubelet tries again. It asks the API server for at most limit.
func (b Baseline) check(ctx context.Context, pod sharing.Pod, ask sharing.ContainerRequest, limit time.Duration) error {
	if !sharing.OfClaims(ask.Requests) || b.Namespaces == nil {
		return nil
	}
	switch {
	case pod.UID == "":
		return fmt.Errorf("container %q: the API server has not reported whether its pod is privileged: %w",
			ask.Ref.Container, sharing.ErrUnavailable)
	case len(pod.Strong) == 0, b.Permitted != nil && b.Permitted(ask.Requests):
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	labels, err := b.Namespaces.NamespaceLabels(ctx, ask.Ref.Namespace)
	switch {
	case err != nil:
		return fmt.Errorf("container %q: the pod has %s, and whether namespace %q allows that is not known: %w (%w)",
			ask.Ref.Container, strings.Join(pod.Strong, ", "), ask.Ref.Namespace, err, sharing.ErrUnavailable)
	case labels[sharing.LabelPrivileged] == "true":
		return nil
	}
	return fmt.Errorf("container %q: the pod has %s, by which it could take off the cap of its GPU claim; leave that "+
		"out, or label namespace %q with %s=true: %w", ask.Ref.Container, strings.Join(pod.Strong, ", "),
		ask.Ref.Namespace, sharing.LabelPrivileged, sharing.ErrInvalid)
}
