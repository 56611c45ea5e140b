// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package nodeserver

import (
	"context"
	"fmt"

	nodev1 "github.com/kerf-gpu/kerf/api/node/v1"
	"github.com/kerf-gpu/kerf/mig"
	"github.com/kerf-gpu/kerf/sharing"
)

// maxDocument bounds a SharingConfig to plan with, in bytes.
const maxDocument = 256 << 10

// MIGPlanner returns the steps that bring MIG modes and instances to what a config requires; an empty text means the
// applied config. With apply, it has done the steps that are possible now.
type MIGPlanner interface {
	PlanMIG(ctx context.Context, document string, apply bool) ([]mig.Proposal, error)
}

// ServeMIG makes the server answer PlanMIG. It is called before Serve; a server without it refuses with
// ErrUnsupported.
func (s *Server) ServeMIG(p MIGPlanner) { s.planner = p }

// PlanMIG implements the node API.
func (s *Server) PlanMIG(ctx context.Context, in *nodev1.PlanMIGRequest) (*nodev1.PlanMIGResponse, error) {
	peer, err := callerOf(ctx)
	switch {
	case err != nil:
		return nil, statusOf(err)
	case s.planner == nil:
		return nil, statusOf(fmt.Errorf("plan mig: this agent manages no MIG GPU: %w", sharing.ErrUnsupported))
	case in.GetApply() && peer.UID != 0:
		return nil, statusOf(fmt.Errorf("apply mig: it is for root, and uid %d asks: %w", peer.UID, sharing.ErrDenied))
	case len(in.GetDocument()) > maxDocument:
		return nil, statusOf(sharing.Invalid("document", "", "write fewer pools, or plan with fewer of them",
			"has %d bytes; %d are possible", len(in.GetDocument()), maxDocument))
	case in.GetApply() && in.GetDocument() != "":
		return nil, statusOf(sharing.Invalid("document", "", "leave it out, and change the agent's own document",
			"is not to be applied by a call"))
	}
	plans, err := s.planner.PlanMIG(ctx, in.GetDocument(), in.GetApply())
	if err != nil {
		return nil, statusOf(err)
	}
	out := &nodev1.PlanMIGResponse{}
	for _, p := range plans {
		out.Gpus = append(out.Gpus, &nodev1.MIGPlan{Gpu: string(p.GPU), Index: small(p.Index), Steps: p.Steps,
			Waits: p.Waits, After: instancesMessage(p.After), Units: small(p.Units)})
	}
	return out, nil
}
