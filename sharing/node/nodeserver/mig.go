// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package nodeserver

import (
	"context"
	"fmt"

	nodeapi "github.com/kerf-gpu/kerf/api/node/v1alpha1"
	"github.com/kerf-gpu/kerf/mig"
	"github.com/kerf-gpu/kerf/sharing"
)

// maxConfig bounds a SharingConfig to plan with, in bytes.
const maxConfig = 256 << 10

// MIGPlanner returns the steps that bring MIG modes and instances to what a config requires; an empty text means the
// applied config. With apply, it has done the steps that are possible now.
type MIGPlanner interface {
	PlanMIG(ctx context.Context, document string, apply bool) ([]mig.Proposal, error)
}

// ServeMIG makes the server answer PlanMIG. It is called before Serve; a server without it refuses with
// ErrUnsupported.
func (s *Server) ServeMIG(p MIGPlanner) { s.planner = p }

// PlanMIG implements the node API.
func (s *Server) PlanMIG(ctx context.Context, in *nodeapi.PlanMIGRequest) (*nodeapi.PlanMIGResponse, error) {
	peer, err := callerOf(ctx)
	switch {
	case err != nil:
		return nil, statusOf(err)
	case s.planner == nil:
		return nil, statusOf(fmt.Errorf("plan mig: this agent manages no MIG GPU: %w", sharing.ErrUnsupported))
	case in.GetApply() && peer.UID != 0:
		return nil, statusOf(fmt.Errorf("apply mig: it is for root, and uid %d requests it: %w", peer.UID,
			sharing.ErrDenied))
	case len(in.GetConfig()) > maxConfig:
		return nil, statusOf(sharing.Invalid("config", "", "write fewer pools, or plan with fewer of them",
			"has %d bytes; %d are possible", len(in.GetConfig()), maxConfig))
	case in.GetApply() && in.GetConfig() != "":
		return nil, statusOf(sharing.Invalid("config", "", "leave it out, and change the config of the agent",
			"is not to be applied by a call"))
	}
	plans, err := s.planner.PlanMIG(ctx, in.GetConfig(), in.GetApply())
	if err != nil {
		return nil, statusOf(err)
	}
	out := &nodeapi.PlanMIGResponse{}
	for _, p := range plans {
		out.Gpus = append(out.Gpus, &nodeapi.MIGPlan{Gpu: string(p.GPU), Index: small(p.Index), Steps: p.Steps,
			PendingReason: p.PendingReason, InstancesAfter: instancesMessage(p.After), MemorySlices: small(p.Units)})
	}
	return out, nil
}
