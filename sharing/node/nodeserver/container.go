// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package nodeserver

import (
	"context"
	"fmt"
	"time"

	nodeapi "github.com/kerf-gpu/kerf/api/node/v1alpha1"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/ledger"
	"github.com/kerf-gpu/kerf/sharing/node/lifecycle"
)

// maxHold is the longest that a container's grant stays Reserved without a container.
const maxHold = time.Hour

// Containers makes grants for containers that are no pod's.
type Containers interface {
	// ReserveForContainer holds a placement that a hook activates. It ends with the peer's process or, when hold is
	// not 0, after that time; once activated, with the container.
	ReserveForContainer(ctx context.Context, peer lifecycle.Peer, name string, asked sharing.Request,
		hold time.Duration) (ledger.GrantID, error)
	// InjectionOf is what the grant's container gets before it is made.
	InjectionOf(id ledger.GrantID) (sharing.Injection, error)
}

// Hook is where this node has what activates a container.
type Hook struct {
	// Path is kerf-hook's program, and Socket the agent's socket that it speaks to, both as the container
	// runtime sees them.
	Path, Socket string
	// CDIDirs hold the CDI specs, in rising order of precedence.
	CDIDirs []string
}

// ServeContainers makes the server take grants for containers. It is called before Serve; a server without
// it refuses such grants with ErrUnsupported.
func (s *Server) ServeContainers(c Containers, hook Hook) { s.containers, s.hook = c, hook }

// reserveForContainer is Reserve for a request with container.
func (s *Server) reserveForContainer(ctx context.Context, peer lifecycle.Peer, in *nodeapi.ReserveRequest,
	req sharing.Request) (*nodeapi.ReserveResponse, error) {
	hold := time.Duration(in.GetReserveSeconds()) * time.Second
	switch {
	case s.containers == nil:
		return nil, statusOf(fmt.Errorf(
			"grants for containers: this agent has no hook installed; start it with --hook-dir: %w",
			sharing.ErrUnsupported))
	case peer.UID != 0:
		return nil, statusOf(fmt.Errorf("grants for containers are for root, since their hook is: %w",
			sharing.ErrDenied))
	case hold > maxHold:
		return nil, statusOf(sharing.Invalid("reserve_seconds", fmt.Sprint(in.GetReserveSeconds()), "write 0 to 3600",
			"is too long"))
	}
	id, err := s.containers.ReserveForContainer(ctx, peer, in.GetName(), req, hold)
	if err != nil {
		return nil, statusOf(err)
	}
	injection, err := s.containers.InjectionOf(id)
	if err != nil {
		return nil, statusOf(err)
	}
	grant, err := s.grant(id)
	return &nodeapi.ReserveResponse{Grant: grant, Container: containerGrant(injection, s.hook)}, err
}

func mountMessages(mounts []sharing.Mount) []*nodeapi.Mount {
	var out []*nodeapi.Mount
	for _, m := range mounts {
		out = append(out, &nodeapi.Mount{Source: m.Source, Target: m.Target, ReadOnly: m.ReadOnly})
	}
	return out
}

// containerGrant renders what the container's OCI spec needs.
func containerGrant(in sharing.Injection, hook Hook) *nodeapi.ContainerGrant {
	out := &nodeapi.ContainerGrant{
		CdiDirs: hook.CDIDirs, HookPath: hook.Path, HookSocket: hook.Socket, Env: in.Env, Annotation: in.Annotation,
	}
	out.Mounts = mountMessages(in.Mounts)
	for _, a := range in.Requests {
		out.Requests = append(out.Requests, a.String())
	}
	if in.Device.UUID != "" { // it brings its GPU's own file
		out.CdiDevices = []string{sharing.CDIMIG + "=" + in.Device.UUID}
		return out
	}
	for _, f := range in.Placement {
		out.CdiDevices = append(out.CdiDevices, sharing.CDIGPU+"="+f.GPU.String())
	}
	return out
}
