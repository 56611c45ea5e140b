// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"context"
	"encoding/json"
	"fmt"
	"io"

	"github.com/kerf-gpu/kerf/api/gpunode"
	"github.com/kerf-gpu/kerf/internal/cli/command"
	"github.com/kerf-gpu/kerf/internal/kube/access"
	"github.com/kerf-gpu/kerf/internal/kube/survey"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/allocator/cluster"
	"github.com/kerf-gpu/kerf/sharing/simulate"
)

// readCluster takes the cluster as it runs. What of it could not be read is told.
func (s *simulation) readCluster(ctx context.Context, to access.Options, tell io.Writer) (simulate.Live, error) {
	ctx, cancel := context.WithTimeout(ctx, command.SurveyTimeout)
	defer cancel()
	api, err := access.Open(to)
	if err != nil {
		return simulate.Live{}, fmt.Errorf("--from-cluster: %w", err)
	}
	defer api.Close()
	found, err := survey.Take(ctx, api)
	if err != nil {
		return simulate.Live{}, fmt.Errorf("--from-cluster: %w", err)
	}
	var nodes []simulate.LiveNode
	var names []string
	for _, n := range found.Nodes {
		names = append(names, n.Name)
		node := simulate.LiveNode{Name: n.Name, CPU: cluster.Milli(n.MilliCPU), Memory: n.Memory, Closed: n.Closed, Offers: n.Offers}
		if raw := found.Reports[n.Name]; raw != nil {
			node.Report = &gpunode.Status{}
			if err := json.Unmarshal(raw, node.Report); err != nil {
				return simulate.Live{}, fmt.Errorf("--from-cluster: read the status of gpunode %s: %w", n.Name, err)
			}
		}
		nodes = append(nodes, node)
	}
	if err := s.checkNames(names); err != nil {
		return simulate.Live{}, err
	}
	var pods []simulate.LivePod
	for _, p := range found.Pods {
		pods = append(pods, simulate.LivePod{Pod: p.Pod, CPU: cluster.Milli(p.MilliCPU), Memory: p.Memory, Owner: p.Owner, Fixed: p.Fixed})
	}
	live, err := simulate.NewLive(nodes, pods, s.isGone, s.isMIG)
	if err != nil {
		return live, fmt.Errorf("--from-cluster: %w", err)
	}
	for _, why := range live.Left {
		_, _ = fmt.Fprintf(tell, "kerf simulate: left out: %s\n", why)
	}
	for _, note := range live.Notes {
		_, _ = fmt.Fprintf(tell, "kerf simulate: note: %s\n", note)
	}
	return live, nil
}

func (s *simulation) isGone(node string) bool {
	return len(s.Gone) > 0 && sharing.MatchModels(s.Gone, node)
}

func (s *simulation) isMIG(node string) bool {
	return len(s.MIG) > 0 && sharing.MatchModels(s.MIG, node)
}

// named puts a word before the types of pods, so that the table tells them from those of --pods.
func named(word string, pods []simulate.Pod) []simulate.Pod {
	out := make([]simulate.Pod, len(pods))
	for i, p := range pods {
		p.Type = word + ": " + p.Type
		out[i] = p
	}
	return out
}
