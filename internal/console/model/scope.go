// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package model

import "slices"

// Scope is what a viewer may see: all pods, or those of some namespaces.
type Scope struct {
	// All is the right to list pods in every namespace.
	All bool
	// Namespaces are those in which the viewer may list pods.
	Namespaces map[string]bool
}

// Sees reports whether the viewer may see the namespace's pods. A process without a namespace belongs to the machine;
// only a viewer of everything sees it.
func (s Scope) Sees(namespace string) bool {
	return s.All || namespace != "" && s.Namespaces[namespace]
}

// Node is the node without the names that the scope does not include. Amounts stay, so that a drawing is to scale.
func (s Scope) Node(n Node) Node {
	if s.All {
		return n
	}
	n.Config.Errors, n.Config.Pending = nil, nil // they can name pods of others
	n.GPUs = slices.Clone(n.GPUs)
	for i := range n.GPUs {
		g := &n.GPUs[i]
		g.Shares = slices.Clone(g.Shares)
		for k, f := range g.Shares {
			if !s.Sees(f.Namespace) {
				g.Shares[k] = Share{State: f.State, Level: f.Level, Memory: f.Memory, Percent: f.Percent,
					Whole: f.Whole, MIG: f.MIG, Start: f.Start, Hidden: true}
			}
		}
	}
	return n
}
