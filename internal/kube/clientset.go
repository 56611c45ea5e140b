// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"fmt"

	"k8s.io/client-go/kubernetes"

	"github.com/kerf-gpu/kerf/sharing"
)

// Clientset returns the client library's client of all groups, for libraries that ask for it. It uses the Client's
// connections.
func Clientset(c *Client) (kubernetes.Interface, error) {
	client, err := kubernetes.NewForConfigAndClient(c.config, c.http)
	if err != nil {
		return nil, fmt.Errorf("make a client for %q: %w (%w)", c.config.Host, err, sharing.ErrInvalid)
	}
	return client, nil
}
