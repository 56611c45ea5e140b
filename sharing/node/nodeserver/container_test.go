// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package nodeserver

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/testing/protocmp"

	nodeapi "github.com/kerf-gpu/kerf/api/node/v1alpha1"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/ledger"
	"github.com/kerf-gpu/kerf/sharing/node"
	"github.com/kerf-gpu/kerf/sharing/node/lifecycle"
)

// containers grants in the runtime as if for the caller, and remembers the hold.
type containers struct {
	*node.Runtime
	hold time.Duration
}

func (c *containers) ReserveForContainer(ctx context.Context, peer lifecycle.Peer, name string, asked sharing.Request,
	hold time.Duration) (ledger.GrantID, error) {
	c.hold = hold
	return c.Reserve(ctx, peer, name, asked)
}

func (c *containers) InjectionOf(id ledger.GrantID) (sharing.Injection, error) {
	g, _ := c.Grant(id)
	return sharing.Injection{Grant: string(id), Placement: g.Placement,
		Requests:   []sharing.ResourceRequest{{Resource: "gpu-memory-gib", Count: 10}},
		Env:        map[string]string{"KERF_GRANT": string(id)},
		Annotation: "note"}, nil
}

func TestGrantsForContainers(t *testing.T) {
	fake := &containers{}
	c, r := serveWith(t, func(s *Server, r *node.Runtime) {
		fake.Runtime = r
		s.ServeContainers(fake, Hook{Path: "/opt/kerf/1/kerf-hook", Socket: "/run/kerf/hook.sock",
			CDIDirs: []string{"/etc/cdi", "/var/run/cdi"}})
	})
	attach(t, r)
	ask := func(hold uint32) *nodeapi.ReserveRequest {
		return &nodeapi.ReserveRequest{MemoryBytes: uint64(10 * sharing.GiB), Container: true, ReserveSeconds: hold}
	}
	_, err := c.Reserve(t.Context(), ask(3601))
	if os.Geteuid() != 0 {
		wantCode(t, err, codes.PermissionDenied)
		return
	}
	wantCode(t, err, codes.InvalidArgument)
	got, err := c.Reserve(t.Context(), ask(300))
	if err != nil {
		t.Fatal(err)
	}
	if fake.hold != 5*time.Minute {
		t.Errorf("held for %s", fake.hold)
	}
	want := &nodeapi.ContainerGrant{
		CdiDevices: []string{"kerf.dev/gpu=" + gpu.String()}, CdiDirs: []string{"/etc/cdi", "/var/run/cdi"},
		HookPath: "/opt/kerf/1/kerf-hook", HookSocket: "/run/kerf/hook.sock",
		Env: map[string]string{"KERF_GRANT": got.GetGrant().GetId()}, Annotation: "note",
		Requests: []string{"gpu-memory-gib:10"},
	}
	if diff := cmp.Diff(want, got.GetContainer(), protocmp.Transform()); diff != "" {
		t.Error(diff)
	}
}

// A MIG instance's device brings its GPU's own file: nothing else is named.
func TestAnInstanceIsNamedAlone(t *testing.T) {
	in := sharing.Injection{Placement: sharing.Placement{{GPU: sharing.GPURef{UUID: "GPU-1"}}},
		Device: sharing.MIGDevice{GPU: "GPU-1", UUID: "MIG-1"}}
	if got := containerGrant(in, Hook{}).GetCdiDevices(); len(got) != 1 || got[0] != "kerf.dev/mig=MIG-1" {
		t.Errorf("%q", got)
	}
}

func TestWithoutAHookThereAreNoGrantsForContainers(t *testing.T) {
	c, r := start(t)
	attach(t, r)
	_, err := c.Reserve(t.Context(), &nodeapi.ReserveRequest{MemoryBytes: 1 << 30, Container: true})
	wantCode(t, err, codes.FailedPrecondition)
	_, err = c.Reserve(t.Context(), &nodeapi.ReserveRequest{MemoryBytes: 1 << 30, ReserveSeconds: 5})
	wantCode(t, err, codes.InvalidArgument)
}
