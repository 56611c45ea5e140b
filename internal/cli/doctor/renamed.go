// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kerf-gpu/kerf/internal/kube/access"
	"github.com/kerf-gpu/kerf/sharing"
)

// renamed finds nodes and namespaces with labels and taints of earlier versions, which have no effect now. Namespaces
// are left out if they may not be read.
func renamed(ctx context.Context, api *access.Client) ([]finding, error) {
	var out []finding
	err := api.List(ctx, "/api/v1/nodes", nil, func(raw json.RawMessage) error {
		var n corev1.Node
		if err := json.Unmarshal(raw, &n); err != nil {
			return err //nolint:wrapcheck // List says what it did
		}
		reasons := append(renamedLabels("node", n.ObjectMeta), renamedTaints(n)...)
		if len(reasons) > 0 {
			out = append(out, finding{Node: n.Name, Reasons: reasons, Notes: []string{}})
		}
		return nil
	})
	if err != nil {
		return nil, err //nolint:wrapcheck // it says what it did
	}
	err = api.List(ctx, "/api/v1/namespaces", nil, func(raw json.RawMessage) error {
		var n corev1.Namespace
		if err := json.Unmarshal(raw, &n); err != nil {
			return err //nolint:wrapcheck // List says what it did
		}
		if reasons := renamedLabels("namespace", n.ObjectMeta); len(reasons) > 0 {
			out = append(out, finding{Namespace: n.Name, Reasons: reasons, Notes: []string{}})
		}
		return nil
	})
	if errors.Is(err, sharing.ErrDenied) || errors.Is(err, sharing.ErrNotFound) {
		err = nil
	}
	return out, err //nolint:wrapcheck // it says what it did
}

// renamedLabels are the labels of earlier versions on a node or namespace whose replacement is not there.
func renamedLabels(kind string, o metav1.ObjectMeta) []string {
	labels := sharing.RenamedLabels()
	var out []string
	for _, former := range slices.Sorted(maps.Keys(labels)) {
		key, value, _ := strings.Cut(former, "=")
		current := labels[former]
		if _, has := o.Labels[currentKey(current)]; has || o.Labels[key] != value || onNodes(key) != (kind == "node") {
			continue
		}
		out = append(out, "the label "+former+" has no effect; replace it: kubectl label "+kind+" "+o.Name+" "+current+
			" "+key+"-")
	}
	return out
}

func currentKey(label string) string {
	key, _, _ := strings.Cut(label, "=")
	return key
}

// onNodes is true for the label of a node; the others are of namespaces.
func onNodes(former string) bool {
	return currentKey(sharing.RenamedLabels()[former+"=true"]) == sharing.LabelNode
}

// renamedTaints is the taint of earlier versions, which no agent removes.
func renamedTaints(n corev1.Node) []string {
	for _, t := range n.Spec.Taints {
		if t.Key == sharing.RenamedTaint {
			return []string{"the agent does not remove the taint " + t.Key +
				" of an earlier version: kubectl taint node " +
				n.Name + " " + t.Key + "-"}
		}
	}
	return nil
}

// merged adds findings about renamed labels and taints to those of nodes.
func merged(found, more []finding) []finding {
	for _, m := range more {
		at := slices.IndexFunc(found, func(f finding) bool { return m.Node != "" && f.Node == m.Node })
		if at < 0 {
			found = append(found, m)
			continue
		}
		found[at].Reasons, found[at].Serves = append(found[at].Reasons, m.Reasons...), false
	}
	return found
}
