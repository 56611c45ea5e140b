// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package model

import (
	"slices"
	"strings"
)

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

// Text is the text without names of pods that the scope does not include. It knows a name by the word pod before it, as
// in the reason of a cordon for defragmentation.
func (s Scope) Text(text string) string {
	words := strings.Split(text, " ")
	for i := 1; i < len(words) && !s.All; i++ {
		name := strings.TrimRight(words[i], ".,;:)")
		namespace, _, ok := strings.Cut(name, "/")
		if ok && !s.Sees(namespace) && strings.HasSuffix(strings.ToLower(words[i-1]), "pod") {
			words[i] = "of another namespace" + words[i][len(name):]
		}
	}
	return strings.Join(words, " ")
}

// Pod is the pod without the names that the scope does not include.
func (s Scope) Pod(p Pod) Pod {
	p.Reason = s.Text(p.Reason)
	return p
}

// Node is the node without the names that the scope does not include. Amounts stay, so that a drawing is to scale.
func (s Scope) Node(n Node) Node {
	if s.All {
		return n
	}
	n.Config.Errors, n.Config.Pending = nil, nil // they can name pods of others
	n.Reason = s.Text(n.Reason)
	n.GPUs = slices.Clone(n.GPUs)
	for i := range n.GPUs {
		g := &n.GPUs[i]
		g.Problem = s.Text(g.Problem)
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
