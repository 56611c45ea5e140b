// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/kerf-gpu/kerf/sharing"
)

// NamespaceLabels are the labels of a namespace. Errors: sharing.ErrDenied, with what gives the right, and
// sharing.ErrUnavailable.
func (c *Client) NamespaceLabels(ctx context.Context, name string) (map[string]string, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	var n corev1.Namespace
	err := c.core.RESTClient().Get().Resource("namespaces").Name(name).Do(ctx).Into(&n)
	if err == nil {
		return n.Labels, nil
	}
	if err = refused("read the labels of namespace "+name, err); errors.Is(err, sharing.ErrDenied) {
		err = fmt.Errorf("%w; apply deploy/manifests/10-rbac.yaml", err)
	}
	return nil, err
}
