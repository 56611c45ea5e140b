// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/kerf-gpu/kerf/api/gpunode"
	"github.com/kerf-gpu/kerf/internal/kube/survey"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/dra"
	"github.com/kerf-gpu/kerf/sharing/translate"
)

// byClaimAlone are the nodes with GPUs that pods get by ResourceClaim only, and the least memory of such a GPU.
func byClaimAlone(c survey.Cluster) (nodes []string, memory sharing.Bytes, err error) {
	for _, name := range slices.Sorted(maps.Keys(c.Reports)) {
		s, err := gpunode.ReadStatus(c.Reports[name])
		if err != nil {
			return nil, 0, fmt.Errorf("node %s: %w", name, err)
		}
		gives := false
		for _, g := range s.GPUs {
			if g.Mode != gpunode.ModeDRA {
				continue
			}
			gives = true
			if of := sharing.Bytes(max(0, g.AllocatableBytes)); !g.SystemMemory && (memory == 0 || of < memory) {
				memory = of
			}
		}
		if gives {
			nodes = append(nodes, name)
		}
	}
	return nodes, memory, nil
}

// claimInstead says how a pod with limits requests the same by ResourceClaim. It is empty if no node gives GPUs by
// ResourceClaim alone.
func claimInstead(c survey.Cluster, p survey.Pod) (string, error) {
	nodes, memory, err := byClaimAlone(c)
	if err != nil || len(nodes) == 0 {
		return "", err
	}
	about := fmt.Sprintf("pods get GPUs of %d nodes (%s) only by ResourceClaim (frontend dra); ", len(nodes),
		few(nodes))
	asked := translate.Pod{Annotations: p.Annotations}
	for _, container := range p.Containers {
		asked.Containers = append(asked.Containers, translate.Container{Name: container.Name, Limits: container.Limits,
			Init: container.Kind != sharing.ContainerApp})
	}
	claims, err := translate.ClaimOptions{Memory: memory}.Claims(asked)
	if err != nil {
		return about + "no claim requests the same: " + err.Error(), nil //nolint:nilerr // it is the answer
	}
	var texts []string
	byLimits := true
	for _, name := range slices.Sorted(maps.Keys(claims.Of)) {
		one := claims.Of[name]
		byLimits = byLimits && one.Class != dra.ClassShare
		texts = append(texts, "container "+name+": "+requestOf(one))
	}
	if byLimits {
		return about + "kube-scheduler serves these limits there: set schedulerName: default-scheduler", nil
	}
	return about + "write a ResourceClaimTemplate for " + strings.Join(texts, "; ") +
		"; 'kerf translate --to dra' writes it", nil
}

// requestOf is the request that a template is to have.
func requestOf(c translate.Claim) string {
	out := "deviceClassName " + c.Class
	if c.Count > 1 {
		out += fmt.Sprintf(", count %d", c.Count)
	}
	if c.GiB > 0 {
		out += fmt.Sprintf(", capacity.requests {memory: %dGi", c.GiB)
		if c.Percent > 0 {
			out += fmt.Sprintf(", percent: %q", fmt.Sprint(c.Percent))
		}
		out += "}"
	}
	if n := len(c.Expressions()); n > 0 {
		out += fmt.Sprintf(", %d CEL selectors", n)
	}
	return out
}

// few are the first names of nodes.
func few(nodes []string) string {
	const most = 3
	if len(nodes) > most {
		nodes = append(slices.Clone(nodes[:most]), "...")
	}
	return strings.Join(nodes, ", ")
}
