// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kerf-gpu/kerf/api/gpunode"
	"github.com/kerf-gpu/kerf/internal/cli/command"
	"github.com/kerf-gpu/kerf/internal/kube/access"
	"github.com/kerf-gpu/kerf/internal/present"
	"github.com/kerf-gpu/kerf/sharing"
)

// finding is the state of one node of a cluster, or of a namespace with labels of an earlier version.
type finding struct {
	Node      string `json:"node,omitempty"`
	Namespace string `json:"namespace,omitempty"`
	// Serves is true if containers of pods can get GPUs there. Reasons says why not; Notes has other facts.
	Serves  bool     `json:"serves"`
	Reasons []string `json:"reasons"`
	Notes   []string `json:"notes"`
}

// foreignGPUs is the resource of NVIDIA's device plugin.
const foreignGPUs = "nvidia.com/gpu"

func clusterDoctor(parent context.Context, a *command.App, output string) error {
	var found []finding
	err := a.WithCluster(parent, func(ctx context.Context, api *access.Client) (err error) {
		found, err = findings(ctx, api)
		return err
	})
	if err != nil {
		return command.Fail(err)
	}
	if output == "" {
		_, err = a.Out.Write([]byte(findingsText(found, a.Colors())))
	} else {
		var text []byte
		if text, err = command.Encoded(output, append([]finding{}, found...)); err == nil {
			_, err = a.Out.Write(text)
		}
	}
	if err != nil {
		return command.Fail(err)
	}
	if len(found) == 0 {
		return command.Fail(fmt.Errorf("no node has the label %s=true: label the nodes whose GPUs Kerf shares: %w",
			sharing.LabelNode, sharing.ErrNotFound))
	}
	for _, f := range found {
		if !f.Serves {
			return command.Fail(errors.New("some nodes or namespaces serve no pods"))
		}
	}
	return nil
}

// findings are those of all nodes with the label, and of what has labels of an earlier version.
func findings(ctx context.Context, api *access.Client) ([]finding, error) {
	p, err := command.Reported(ctx, api, time.Now())
	if err != nil {
		return nil, err
	}
	var nodes []corev1.Node
	if err := api.List(ctx, "/api/v1/nodes", url.Values{"labelSelector": {sharing.LabelNode + "=true"}},
		func(raw json.RawMessage) error {
			var n corev1.Node
			err := json.Unmarshal(raw, &n)
			nodes = append(nodes, n)
			return err
		}); err != nil {
		return nil, err //nolint:wrapcheck // it says what it did
	}
	more, err := renamed(ctx, api)
	return merged(examine(nodes, p), more), err
}

// examine evaluates each node with the label.
func examine(nodes []corev1.Node, p present.Cluster) []finding {
	reports := map[string]present.ClusterNode{}
	for _, n := range p.Nodes {
		reports[n.Name] = n
	}
	var out []finding
	for _, n := range nodes {
		f := finding{Node: n.Name, Reasons: []string{}, Notes: []string{}}
		r, ok := reports[n.Name]
		switch {
		case !ok:
			f.Reasons = append(f.Reasons, "no report from a kerf-agent: check its pod with kubectl -n "+
				command.SystemNamespace+" get pods -o wide")
		case r.Stale:
			f.Reasons = append(f.Reasons,
				fmt.Sprintf("the last report of its kerf-agent is from %s: check its pod on the node",
					r.LastSeen.UTC().Format(time.RFC3339)))
		case !r.Ready():
			f.Reasons = append(f.Reasons, strings.Split(r.Condition(gpunode.ConditionReady).Message, "\n")...)
		case len(r.GPUs) == 0:
			f.Reasons = append(f.Reasons, "it has no GPU: remove the label "+sharing.LabelNode+
				", or run kerf doctor on it")
		}
		if ok {
			f.Notes = append(f.Notes, notesOf(r)...)
		}
		if q := n.Status.Allocatable[foreignGPUs]; q.Value() > 0 {
			f.Notes = append(f.Notes, fmt.Sprintf("another device plugin advertises %d %s here: if these are the "+
				"same GPUs, two pods can get one GPU; see docs/operate/migrate.md", q.Value(), foreignGPUs))
		}
		f.Serves = len(f.Reasons) == 0
		out = append(out, f)
	}
	return out
}

func notesOf(r present.ClusterNode) (notes []string) {
	for _, g := range r.GPUs {
		name := present.GPUName(r.Name, g)
		switch {
		case g.Health != sharing.HealthOK.String():
			notes = append(notes, fmt.Sprintf("GPU %s is %s: %s", name, g.Health, g.HealthReason))
		case g.Cordoned != "":
			notes = append(notes, fmt.Sprintf("GPU %s is cordoned: %s; to clear the mark: kerf uncordon %s", name,
				g.Cordoned, name))
		case len(g.Levels) == 0 && !g.MIG:
			notes = append(notes, fmt.Sprintf("GPU %s enforces no share: run kerf doctor on the node", name))
		}
	}
	return notes
}

func findingsText(found []finding, color bool) string {
	var b strings.Builder
	for _, f := range found {
		word, code := "serves pods", "32"
		if !f.Serves {
			word, code = "does not serve pods", "31"
		}
		if color {
			word = "\x1b[" + code + "m" + word + "\x1b[0m"
		}
		name := f.Node
		if f.Namespace != "" {
			name = "namespace " + f.Namespace
		}
		fmt.Fprintf(&b, "%s %s\n", name, word)
		for _, w := range f.Reasons {
			fmt.Fprintf(&b, "  reason: %s\n", w)
		}
		for _, n := range f.Notes {
			fmt.Fprintf(&b, "  note:   %s\n", n)
		}
	}
	return b.String()
}
