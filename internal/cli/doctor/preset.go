// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"fmt"
	"net/url"

	corev1 "k8s.io/api/core/v1"

	"github.com/kerf-gpu/kerf/internal/cli/command"
	"github.com/kerf-gpu/kerf/internal/kube/access"
	"github.com/kerf-gpu/kerf/sharing/doctor/preset"
)

// presetAnswer is the chart's preset for one node.
type presetAnswer struct {
	Node   string `json:"node"`
	Preset string `json:"preset"`
	File   string `json:"file"`
	Reason string `json:"reason"`
}

// presetOfNode prints the chart's preset for a node of the cluster.
func presetOfNode(parent context.Context, a *command.App, name, output string) error {
	var n corev1.Node
	err := a.WithCluster(parent, func(ctx context.Context, api *access.Client) error {
		if err := api.Get(ctx, "/api/v1/nodes/"+url.PathEscape(name), nil, &n); err != nil {
			return fmt.Errorf("read node %s: %w", name, err)
		}
		return nil
	})
	if err != nil {
		return command.Fail(err)
	}
	i := n.Status.NodeInfo
	p := presetAnswer{Node: name}
	c := preset.Decide(preset.System{OSImage: i.OSImage, KubeletVersion: i.KubeletVersion,
		ContainerRuntime: i.ContainerRuntimeVersion, Labels: n.Labels}, nil, nil)
	p.Preset, p.Reason = c.Preset, c.Reason
	p.File = "deploy/chart/presets/" + p.Preset + ".yaml"
	text := fmt.Appendf(nil, "%s needs preset %s: %s\n  helm install -f %s\n", p.Node, p.Preset, p.Reason, p.File)
	if output != "" {
		if text, err = command.Encoded(output, p); err != nil {
			return command.Fail(err)
		}
	}
	if _, err = a.Out.Write(text); err != nil {
		return command.Fail(err)
	}
	return nil
}
