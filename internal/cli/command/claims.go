// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package command

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/kerf-gpu/kerf/api/gpunode"
	"github.com/kerf-gpu/kerf/internal/cli/claims"
	"github.com/kerf-gpu/kerf/internal/kube/access"
	"github.com/kerf-gpu/kerf/internal/present"
	"github.com/kerf-gpu/kerf/sharing"
)

// NameClaims notes the ResourceClaims of the grants. A cluster without DRA, or a user without the right to list claims,
// has none: the rest of the picture does not depend on it.
func NameClaims(ctx context.Context, api *access.Client, c *present.Cluster) error {
	all, err := claims.List(ctx, api, "")
	if errors.Is(err, sharing.ErrDenied) || errors.Is(err, sharing.ErrNotFound) {
		return nil // There are no names then.
	}
	if err != nil {
		return err //nolint:wrapcheck // it says what it did
	}
	of := map[string][]claims.Claim{}
	for _, claim := range all {
		for _, pod := range claim.Users {
			of[pod] = append(of[pod], claim)
		}
	}
	for i := range c.Nodes {
		n := &c.Nodes[i]
		for _, g := range n.Grants {
			if names := claimsOf(g, of[g.PodUID]); len(names) > 0 {
				if n.Claims == nil {
					n.Claims = map[string][]string{}
				}
				n.Claims[g.ID] = names
			}
		}
	}
	return nil
}

// claimsOf are the claims of the pod that have a device of a GPU of the grant, as CLAIM/REQUEST. The name of a device
// begins with the GPU's UUID.
func claimsOf(g gpunode.Grant, all []claims.Claim) (out []string) {
	for _, c := range all {
		for _, r := range c.Results {
			has := func(f gpunode.Share) bool { return strings.HasPrefix(r.Device, strings.ToLower(f.GPU)) }
			name := c.Name + "/" + r.Request
			if slices.ContainsFunc(g.Shares, has) && !slices.Contains(out, name) {
				out = append(out, name)
			}
		}
	}
	return out
}
