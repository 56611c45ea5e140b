// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/kerf-gpu/kerf/internal/kube/access"
	"github.com/kerf-gpu/kerf/internal/present"
	"github.com/kerf-gpu/kerf/sharing"
)

// The ports at which Kerf's pods answer, as deploy/manifests has them.
const (
	agentPort   = 9445
	monitorPort = 9446
)

// ownPod is a pod of Kerf's own on a node.
type ownPod struct{ name, node string }

// ownPods are Kerf's own pods of that name, by their nodes.
func ownPods(ctx context.Context, api *access.Client, app string) ([]ownPod, error) {
	var out []ownPod
	query := url.Values{"labelSelector": {"app.kubernetes.io/name=" + app}, "fieldSelector": {"status.phase=Running"}}
	err := api.List(ctx, "/api/v1/namespaces/"+systemNamespace+"/pods", query, func(raw json.RawMessage) error {
		var p struct {
			Metadata struct{ Name string }
			Spec     struct{ NodeName string }
		}
		err := json.Unmarshal(raw, &p)
		out = append(out, ownPod{p.Metadata.Name, p.Spec.NodeName})
		return err
	})
	slices.SortFunc(out, func(a, b ownPod) int { return strings.Compare(a.node, b.node) })
	return out, err //nolint:wrapcheck // it says what it did
}

// askPod asks a pod of Kerf's over the API server, which needs the right to pods/proxy in Kerf's namespace.
func askPod(ctx context.Context, api *access.Client, p ownPod, port int, what string, query url.Values, most int64) ([]byte, error) {
	path := fmt.Sprintf("/api/v1/namespaces/%s/pods/%s:%d/proxy/%s", systemNamespace, url.PathEscape(p.name), port, what)
	text, err := api.Text(ctx, path, query, most)
	if err != nil {
		return nil, fmt.Errorf("ask pod %s of node %s: %w", p.name, p.node, err)
	}
	return text, nil
}

// clusterUsage asks the agents of all nodes what was used.
func (a *app) clusterUsage(ctx context.Context, since time.Time, take func(from string, answer []byte) error) error {
	return a.withCluster(ctx, func(ctx context.Context, api *access.Client) error {
		pods, err := ownPods(ctx, api, "kerf-agent")
		if err != nil {
			return err
		}
		if len(pods) == 0 {
			return fmt.Errorf("no kerf-agent runs in namespace %s: name the agents with --agent, or deploy them: %w", systemNamespace, sharing.ErrNotFound)
		}
		for _, p := range pods {
			answer, err := askPod(ctx, api, p, agentPort, "usage", url.Values{"since": {since.UTC().Format(time.RFC3339)}}, mostUsage)
			if err == nil {
				err = take("the agent of "+p.node, answer)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// clusterMIG is kerf mig status of a cluster.
func (a *app) clusterMIG(ctx context.Context, output string) error {
	return a.withCluster(ctx, func(ctx context.Context, api *access.Client) error {
		p, err := reported(ctx, api, time.Now())
		if err != nil {
			return err
		}
		for i := range p.Nodes {
			n := &p.Nodes[i]
			n.GPUs = slices.Clone(n.GPUs)
			if output == "json" || output == "yaml" {
				n.Claims = nil
			}
		}
		text, err := a.formed(output, p, present.ClusterSlices)
		if err == nil {
			_, err = a.out.Write(text)
		}
		return err
	})
}
