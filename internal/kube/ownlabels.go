// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kerf-gpu/kerf/sharing"
)

// OwnLabels are the labels of this node's object, as the API server has them in its cache. Errors: sharing.ErrDenied, with what
// gives the right, and sharing.ErrUnavailable.
func (c *Client) OwnLabels(ctx context.Context) (map[string]string, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	n, err := c.core.Nodes().Get(ctx, c.node, metav1.GetOptions{ResourceVersion: "0"})
	if err == nil {
		c.owner.saw(n.UID)
		return n.Labels, nil
	}
	if err = refused("read the labels of node "+c.node, err); errors.Is(err, sharing.ErrDenied) {
		err = fmt.Errorf("%w; apply deploy/manifests/10-rbac.yaml", err)
	}
	return nil, err
}
