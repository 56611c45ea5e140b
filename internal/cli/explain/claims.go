// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kerf-gpu/kerf/api/gpunode"
	"github.com/kerf-gpu/kerf/internal/cli/claims"
	"github.com/kerf-gpu/kerf/internal/kube/access"
	"github.com/kerf-gpu/kerf/internal/kube/survey"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/dra"
)

// claimed is a ResourceClaim of the pod.
type claimed struct {
	// Claim is its name; empty until the pod's template has made it. Name is that in the pod.
	Claim string `json:"claim,omitempty"`
	Name  string `json:"name"`
	// Requests are its requests, and Devices what it was allocated.
	Requests []string `json:"requests,omitempty"`
	Devices  []string `json:"devices,omitempty"`
	// Problems are reasons of its devices that are not ready.
	Problems []string `json:"problems,omitempty"`

	wanted    []dra.Wanted
	allocated bool
	// otherPod is true if it is reserved for pods, and this is none of them.
	otherPod bool
}

// byClaims explains a pod that requests GPUs by ResourceClaim alone.
func byClaims(ctx context.Context, api *access.Client, found survey.Cluster, more survey.More, p survey.Pod,
	now time.Time) (Explanation, error) {
	x := Explanation{Pod: p.Name, Namespace: p.Namespace, UID: p.UID, Node: p.Node,
		ComputedAt: now.UTC().Truncate(time.Second), Left: more.Left, Events: eventsOf(more)}
	all, err := claims.List(ctx, api, "")
	if err != nil {
		x.Left = append(x.Left, err.Error())
		if all, err = claims.List(ctx, api, p.Namespace); err != nil {
			return Explanation{}, fmt.Errorf("read its ResourceClaims: %w", err)
		}
	}
	others := x.claims(p, all)
	if len(x.Claims) == 0 {
		return Explanation{}, fmt.Errorf("it requests no GPU of Kerf's: %w", sharing.ErrInvalid)
	}
	devices, err := claims.Devices(ctx, api)
	if err != nil {
		x.Left = append(x.Left, err.Error())
	}
	claims.Take(devices, others)
	x.ask(devices)
	x.has(found)
	x.PendingReason = x.waits(p)
	return x, nil
}

// claims notes the pod's claims with GPUs of Kerf, and returns the claims of others.
func (x *Explanation) claims(p survey.Pod, all []claims.Claim) (others []claims.Claim) {
	mine := map[string]bool{}
	for _, ref := range p.Claims {
		if ref.Claim == "" {
			x.Claims = append(x.Claims, claimed{Name: ref.Name})
			continue
		}
		at := slices.IndexFunc(all, func(c claims.Claim) bool {
			return c.Namespace == p.Namespace && c.Name == ref.Claim
		})
		if at < 0 {
			x.Claims = append(x.Claims, claimed{Name: ref.Name, Problems: []string{"there is no claim " + ref.Claim}})
			continue
		}
		c := all[at]
		mine[c.Name] = true
		if len(c.Wanted)+len(c.Results) == 0 {
			continue // of another driver
		}
		x.Claims = append(x.Claims, claimOf(ref.Name, c, p.UID))
	}
	var needs []string
	for _, c := range x.Claims {
		needs = append(needs, c.Requests...)
	}
	x.Needs = strings.Join(needs, "; ")
	return slices.DeleteFunc(slices.Clone(all), func(c claims.Claim) bool {
		return c.Namespace == p.Namespace && mine[c.Name]
	})
}

func claimOf(name string, c claims.Claim, pod string) claimed {
	out := claimed{Claim: c.Name, Name: name, Problems: c.Reasons, wanted: c.Wanted, allocated: c.Allocated,
		otherPod: len(c.Users) > 0 && !slices.Contains(c.Users, pod)}
	for _, w := range c.Wanted {
		out.Requests = append(out.Requests, w.String())
	}
	for _, r := range c.Results {
		amount := "all"
		if r.Memory > 0 {
			amount = sharing.Bytes(r.Memory).String()
		}
		if r.Percent > 0 {
			amount += fmt.Sprintf(" and %d%%", r.Percent)
		}
		out.Devices = append(out.Devices, fmt.Sprintf("request %s: %s of %s on node %s", r.Request, amount, r.Device,
			r.Pool))
	}
	return out
}

// ask has each node answer for the requests, as if the pod were not placed.
func (x *Explanation) ask(devices []dra.Offered) {
	var wanted []dra.Wanted
	selected := false
	for _, c := range x.Claims {
		wanted = append(wanted, c.wanted...)
		selected = selected || slices.ContainsFunc(c.wanted, func(w dra.Wanted) bool { return w.Selected })
	}
	if selected {
		x.Left = append(x.Left, "CEL selectors and constraints of the claims")
	}
	if len(wanted) == 0 {
		return
	}
	for _, a := range dra.Ask(wanted, devices) {
		x.Nodes = append(x.Nodes, answer{Node: a.Node, Fits: a.Fits, GPUs: a.GPUs, Text: a.Reason,
			Reason: map[bool]string{false: "no device for a claim"}[a.Fits]})
	}
}

// has notes what the pod's node reports of its grants.
func (x *Explanation) has(found survey.Cluster) {
	s, err := gpunode.ReadStatus(found.Reports[x.Node])
	if x.Node == "" || err != nil {
		return
	}
	for _, g := range s.Grants {
		if g.PodUID != x.UID {
			continue
		}
		for _, f := range g.Shares {
			amount := "all"
			if !f.Whole {
				amount = sharing.Bytes(f.MemoryBytes).String() //nolint:gosec // no agent reports less than 0
			}
			x.Has = append(x.Has, fmt.Sprintf("%s of %s in container %s, level %s", amount, f.GPU, g.Container,
				g.Level))
		}
	}
}

// waits is why the pod has no GPU; empty where it has.
func (x *Explanation) waits(p survey.Pod) string {
	for _, c := range x.Claims {
		switch {
		case c.Claim == "" && len(c.Problems) == 0:
			return "claim " + c.Name + " of the pod has not been created from its template; its events say why"
		case c.Claim == "" || len(c.Problems) > 0:
			return strings.Join(c.Problems, "; ")
		case c.otherPod:
			return "claim " + c.Claim + " is reserved for another pod; give each pod a claim (ResourceClaimTemplate)"
		}
	}
	fits := slices.ContainsFunc(x.Nodes, func(a answer) bool { return a.Fits })
	open := slices.ContainsFunc(x.Claims, func(c claimed) bool { return !c.allocated })
	switch {
	case len(x.Has) > 0:
		return ""
	case p.Node != "":
		return "node " + p.Node + " has not prepared its claims" +
			x.lastOf("GPUClaimRejected", "FailedPrepareDynamicResources")
	case open && len(x.Nodes) == 0:
		return "no node publishes GPUs by DRA; a pool needs frontend: dra"
	case open && !fits:
		return fmt.Sprintf("none of %d nodes has the devices of its claims: %s", len(x.Nodes), x.Nodes[0].Text)
	case open:
		return "a node has the devices of its claims now" + x.lastOf("FailedScheduling")
	}
	return "its claims are allocated, and it has no node yet" + x.lastOf("FailedScheduling")
}

// lastOf is the newest event with one of the reasons.
func (x *Explanation) lastOf(reasons ...string) string {
	for _, e := range slices.Backward(x.Events) {
		if slices.Contains(reasons, e.Reason) {
			return "; the last event is " + e.Reason + ": " + strings.TrimSpace(e.Message)
		}
	}
	return ""
}

// lines describe the claims for people.
func (x *Explanation) lines() string {
	var b strings.Builder
	for _, c := range x.Claims {
		if c.Claim != "" {
			fmt.Fprintf(&b, "claim %s: %s\n", c.Claim, strings.Join(c.Requests, " or "))
		}
		for _, d := range c.Devices {
			fmt.Fprintf(&b, "  allocated: %s\n", d)
		}
	}
	return b.String()
}
