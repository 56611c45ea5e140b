// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package command

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/kerf-gpu/kerf/internal/kube/access"
)

// The ports at which Kerf's pods answer, as deploy/manifests has them.
const (
	AgentPort   = 9445
	MonitorPort = 9446
)

// OwnPod is a pod of Kerf's own on a node.
type OwnPod struct{ name, Node string }

// OwnPods are Kerf's own pods of that name, by their nodes.
func OwnPods(ctx context.Context, api *access.Client, app string) ([]OwnPod, error) {
	var out []OwnPod
	query := url.Values{"labelSelector": {"app.kubernetes.io/name=" + app}, "fieldSelector": {"status.phase=Running"}}
	err := api.List(ctx, "/api/v1/namespaces/"+SystemNamespace+"/pods", query, func(raw json.RawMessage) error {
		var p struct {
			Metadata struct{ Name string }
			Spec     struct{ NodeName string }
		}
		err := json.Unmarshal(raw, &p)
		out = append(out, OwnPod{p.Metadata.Name, p.Spec.NodeName})
		return err
	})
	slices.SortFunc(out, func(a, b OwnPod) int { return strings.Compare(a.Node, b.Node) })
	return out, err //nolint:wrapcheck // it says what it did
}

// AskPod asks a pod of Kerf's over the API server, which needs the right to pods/proxy in Kerf's namespace.
func AskPod(ctx context.Context, api *access.Client, p OwnPod, port int, what string, query url.Values, most int64) ([]byte, error) {
	path := fmt.Sprintf("/api/v1/namespaces/%s/pods/%s:%d/proxy/%s", SystemNamespace, url.PathEscape(p.name), port, what)
	text, err := api.Text(ctx, path, query, most)
	if err != nil {
		return nil, fmt.Errorf("ask pod %s of node %s: %w", p.name, p.Node, err)
	}
	return text, nil
}
